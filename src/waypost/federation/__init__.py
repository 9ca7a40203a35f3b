"""Registries that learn from each other: the change feed, peers, and pulling their agents."""
