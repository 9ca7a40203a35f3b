"""The client as it is written. `waypost.client.sync` is generated from it by scripts/unasync.py."""
