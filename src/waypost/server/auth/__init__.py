"""Authentication of callers, rate limits and trusted hosts."""
