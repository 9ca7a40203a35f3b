# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""The client without `await`, generated from `waypost.client.aio`."""
