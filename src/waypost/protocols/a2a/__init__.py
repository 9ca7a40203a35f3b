"""A2A agent cards."""
