"""The announce protocol: HTTP, WebSocket, and the bridge to the LAN and the bus."""
