"""Adapters for the frameworks that users already have. Each is an extra: the core imports none of them, and each imports its
framework when it is imported."""
