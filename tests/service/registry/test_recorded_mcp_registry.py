"""A recorded MCP registry of thousands of entries is taken in whole, in any order, and every server at its latest version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.recorded_mcp_registry import OFFICIAL, RecordedServer, record_servers, shuffled
from support.service import Bench, service


@pytest.fixture(scope="module")
def servers() -> list[RecordedServer]:
    recorded = record_servers()
    assert len(recorded) >= 1000
    assert sum(len(server.entries) for server in recorded) >= 2000
    return recorded


async def held(bench: Bench) -> dict[str, tuple[str, str]]:
    """Version and status of every server, by its name."""
    found: dict[str, tuple[str, str]] = {}
    cursor = ""
    while True:
        params = {"limit": "100", "include_deleted": "true", **({"cursor": cursor} if cursor else {})}
        page = (await bench.anonymous().get("/v0.1/servers", params=params)).json()
        for entry in page["servers"]:
            found[entry["server"]["name"]] = entry["server"]["version"], entry["_meta"][OFFICIAL]["status"]
        cursor = page["metadata"].get("nextCursor")
        if not cursor:
            return found


@pytest.mark.req("MCP-5")
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_server_is_held_at_its_latest_version(
    tmp_path: Path, servers: list[RecordedServer], seed: int
) -> None:
    async with service(tmp_path) as bench:
        lines = "\n".join(json.dumps(entry) for entry in shuffled(servers, seed))
        headers = {"Content-Type": "application/x-ndjson"}
        answer = await bench.admin().post("/api/v1/agents:batch", content=lines, headers=headers)
        outcomes = [json.loads(line) for line in answer.text.splitlines()]
        assert len(outcomes) == sum(len(server.entries) for server in servers)
        assert [outcome for outcome in outcomes if "error" in outcome] == []
        wanted = {server.name: (server.latest, server.status) for server in servers}
        current = await held(bench)
        assert {name: current.get(name) for name in wanted if current.get(name) != wanted[name]} == {}
