"""The announce protocol: agent objects, messages, packets, WebSocket frames."""
