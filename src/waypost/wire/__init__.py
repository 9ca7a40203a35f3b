"""Protocols without sockets: bytes in, values out, and back."""
