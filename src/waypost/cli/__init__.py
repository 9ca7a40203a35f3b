"""The command: one module per command."""
