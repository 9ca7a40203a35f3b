"""The HTTP server: ASGI layer, authentication, one package per API, and the web pages."""
