"""AGP conversations over a WebSocket."""
