"""ARD-36: the search as a tool of MCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.service import profile, service


def tool_call(arguments: dict[str, Any]) -> dict[str, Any]:
    params = {"name": "ard_search", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.req("ARD-36")
async def test_the_tool_answers_as_the_registry_does(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for number in range(3):
            document = profile(f"rain-{number}", description=f"Weather forecast for town {number}.")
            await bench.admin().post("/api/v1/agents", json=document)
        await bench.admin().post(
            "/api/v1/agents", json=profile("hidden", description="Weather."), headers={"Waypost-Visibility": "private"}
        )
        reader = bench.as_("reader", "discover:read")
        body: dict[str, Any] = {"query": {"text": "weather forecast"}, "pageSize": 2}
        result = (await reader.post("/mcp", json=tool_call(body))).json()["result"]
        assert result["isError"] is False
        found = result["structuredContent"]
        plain = (await reader.post("/ard/search", json=body)).json()
        assert found["results"] == plain["results"]
        assert {"identifier", "displayName", "type", "score", "source"} <= found["results"][0].keys()
        rest = (await reader.post("/mcp", json=tool_call({**body, "pageToken": found["pageToken"]}))).json()["result"]
        assert len(rest["structuredContent"]["results"]) == 1
        refused = (await reader.post("/mcp", json=tool_call({"query": {}}))).json()["result"]
        assert refused["isError"] is True
