"""The async client. `waypost.client.sync` is generated from it by scripts/unasync.py."""
