"""The Agent Framework protocol: app-scoped discovery, in the service and in a user's own ASGI application."""
