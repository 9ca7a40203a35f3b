"""Commands that run, inspect or describe the service."""
