"""MCP hosts: the configuration that makes Claude, Cursor and VS Code use the tools of a registry.

Hosts that speak HTTP are given the address of `/mcp`; Claude Desktop starts `waypost mcp`, which finds address and token by
itself on the machine of the service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_NAME: Final = "waypost"


def claude_desktop(base_url: str, token: str | None = None) -> dict[str, Any]:
    """The content of `claude_desktop_config.json`."""
    environment = {"WAYPOST_SERVER": base_url} | ({"WAYPOST_TOKEN": token} if token else {})
    return {"mcpServers": {_NAME: {"command": "waypost", "args": ["mcp"], "env": environment}}}


def claude_code(base_url: str, token: str | None = None) -> dict[str, Any]:
    """The content of `.mcp.json`."""
    return {"mcpServers": {_NAME: {"type": "http", **_remote(base_url, token)}}}


def cursor(base_url: str, token: str | None = None) -> dict[str, Any]:
    """The content of `.cursor/mcp.json`."""
    return {"mcpServers": {_NAME: _remote(base_url, token)}}


def vs_code(base_url: str, token: str | None = None) -> dict[str, Any]:
    """The content of `.vscode/mcp.json`."""
    return {"servers": {_NAME: {"type": "http", **_remote(base_url, token)}}}


HOSTS: Final[dict[str, Callable[[str, str | None], dict[str, Any]]]] = {
    "claude": claude_desktop,
    "claude-code": claude_code,
    "cursor": cursor,
    "vscode": vs_code,
}


def _remote(base_url: str, token: str | None) -> dict[str, Any]:
    headers = {"headers": {"Authorization": f"Bearer {token}"}} if token else {}
    return {"url": f"{base_url.rstrip('/')}/mcp", **headers}
