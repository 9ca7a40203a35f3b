"""Waypost's own API below /api/v1."""
