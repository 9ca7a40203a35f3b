"""The command `waypost`."""
