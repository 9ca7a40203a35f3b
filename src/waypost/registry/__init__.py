"""The engine: the registry and its parts. It knows no HTTP, no file and no network, only the ports that it needs."""
