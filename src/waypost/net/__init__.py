"""Sockets and clocks: what reaches outside of the process."""
