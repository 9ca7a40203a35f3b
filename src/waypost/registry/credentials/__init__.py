"""API keys and revocations: whether a credential is still valid."""
