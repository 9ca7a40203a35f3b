"""OASF records."""
