"""MCP: server.json and messages."""
