"""Waypost: register an agent once, in any protocol, and find it through all of them."""

__version__ = "0.1.0"
