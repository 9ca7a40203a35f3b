"""Kinds of peers: each one is a module behind `port.py`, and one row in `table.py`."""
