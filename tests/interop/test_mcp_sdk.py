"""The MCP SDK finds, reads and registers agents: over HTTP and stdio, with and without a handshake."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from support.server import RunningServer, running_server
from support.service import profile


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


def over_stdio(server: RunningServer) -> Any:
    arguments = ["-m", "waypost.cli.main", "mcp"]
    return stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=server.environment()))


@asynccontextmanager
async def over_http(server: RunningServer) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(headers=server.headers) as http,
        streamable_http_client(f"{server.url}/mcp", http_client=http) as streams,
    ):
        yield streams


@pytest.mark.judge(
    "MCP Python SDK", version("mcp"), "uses every tool, over HTTP and stdio, with and without a handshake"
)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_sdk_uses_every_tool(server: RunningServer, transport: str, mode: Any) -> None:
    way = over_http(server) if transport == "http" else over_stdio(server)
    name = f"by-{transport}-{mode}"
    async with Client(way, mode=mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["find_agents", "get_agent", "register_agent", "ard_search"]
        document = profile(name, description=f"Paints {name} in the manner of an old master.")
        made = await client.call_tool("register_agent", {"document": document})
        assert not made.is_error
        found = await client.call_tool("find_agents", {"query": f"paint {name}", "limit": 3})
        assert found.structured_content is not None
        assert name in [candidate["id"] for candidate in found.structured_content["candidates"]]
        read = await client.call_tool("get_agent", {"id": name, "as": "a2a"})
        assert read.structured_content is not None
        assert read.structured_content["description"] == document["description"]
        entries = await client.call_tool("ard_search", {"query": {"text": f"paint {name}"}})
        assert entries.structured_content is not None
        assert entries.structured_content["results"][0]["description"] == document["description"]
        missing = await client.call_tool("get_agent", {"id": "nobody"})
        assert missing.is_error
