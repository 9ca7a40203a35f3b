"""An MCP server over stdio with one tool: what a package of an MCP server starts."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    return f"echo: {text}"


if __name__ == "__main__":
    server.run("stdio")
