# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""The sync client, generated from `waypost.client.aio`."""
