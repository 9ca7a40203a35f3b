"""The service as an MCP server on `/mcp`."""
