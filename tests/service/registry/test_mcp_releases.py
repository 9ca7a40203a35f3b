"""Which of several versions of an MCP server is held, whatever the order in which a registry lists them."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.service import Bench, service

OFFICIAL = "io.modelcontextprotocol.registry/official"


def listed(
    version: str,
    *,
    latest: bool = False,
    published: int = 1,
    updated: int | None = None,
    name: str = "com.example/tool",
) -> dict[str, Any]:
    """An entry of an MCP registry. `published` and `updated` are days of May 2026."""
    server = {
        "name": name,
        "description": "Counts words.",
        "version": version,
        "remotes": [{"type": "streamable-http", "url": f"https://tool.example/{version}"}],
    }
    official = {
        "status": "active",
        "publishedAt": f"2026-05-{published:02}T00:00:00Z",
        "updatedAt": f"2026-05-{updated or published:02}T00:00:00Z",
        "isLatest": latest,
    }
    return {"server": server, "_meta": {OFFICIAL: official}}


async def register(bench: Bench, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "\n".join(json.dumps(entry) for entry in entries)
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await bench.admin().post("/api/v1/agents:batch", content=lines, headers=headers)
    return [json.loads(line) for line in answer.text.splitlines()]


async def held_version(bench: Bench, name: str = "com.example/tool") -> str:
    answer = await bench.admin().get(f"/api/v1/agents/{name.replace('/', '%2F')}")
    return str(answer.json()["version"])


CASES = {
    "the registry says which": (
        [listed("2.0.0", updated=9), listed("1.5.0", latest=True), listed("1.0.0", updated=8)],
        "1.5.0",
    ),
    "the highest, not the last that was touched": (
        [listed("1.2.0", updated=9), listed("1.10.0"), listed("1.9.0", updated=7)],
        "1.10.0",
    ),
    "a release before its candidates": ([listed("1.0.0-rc.2", updated=9), listed("1.0.0")], "1.0.0"),
    "the last published of other texts": (
        [listed("spring", published=3), listed("autumn", published=5), listed("winter", published=4)],
        "autumn",
    ),
    "a version before other texts": (
        [listed("build-7", published=8), listed("0.1.0", published=2), listed("0.2.0", published=1)],
        "0.2.0",
    ),
    "two that claim to be the latest": (
        [listed("1.0.0", latest=True, updated=9), listed("1.1.0", latest=True)],
        "1.1.0",
    ),
}


@pytest.mark.req("MCP-5")
@pytest.mark.parametrize(("entries", "current"), CASES.values(), ids=CASES)
async def test_the_order_of_arrival_does_not_matter(
    tmp_path: Path, entries: list[dict[str, Any]], current: str
) -> None:
    async with service(tmp_path) as bench:
        for number, order in enumerate(itertools.permutations(entries)):
            name = f"com.example/tool-{number}"
            named = [{**entry, "server": {**entry["server"], "name": name}} for entry in order]
            answers = await register(bench, named)
            assert not [answer for answer in answers if "error" in answer]
            assert await held_version(bench, name) == current


async def test_a_superseded_version_changes_nothing_and_says_so(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, [listed("2.0.0", latest=True)])
        before = (await bench.admin().get("/api/v1/agents/com.example%2Ftool")).headers["etag"]
        [answer] = await register(bench, [listed("1.0.0", updated=20)])
        assert answer["outcome"] == "unchanged"
        assert (await bench.admin().get("/api/v1/agents/com.example%2Ftool")).headers["etag"] == before
        receipt = (await bench.admin().post("/api/v1/agents", json=listed("1.0.0", updated=20))).json()
        assert (receipt["outcome"], any("2.0.0" in warning for warning in receipt["warnings"])) == ("unchanged", True)


async def test_a_later_state_of_the_same_version_replaces_the_earlier_one_only(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, [listed("1.0.0", latest=True, updated=5)])
        gone = listed("1.0.0", latest=True, updated=6)
        gone["_meta"][OFFICIAL]["status"] = "deleted"
        assert (await register(bench, [gone]))[0]["outcome"] == "updated"
        assert (await bench.admin().get("/api/v1/agents/com.example%2Ftool")).json()["status"] == "inactive"
        [stale] = await register(bench, [listed("1.0.0", latest=True, updated=5)])
        assert stale["error"]["code"] == "stale_metadata"


async def test_a_server_json_of_its_owner_is_compared_as_other_documents(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, [listed("2.0.0", latest=True)])
        [stale] = await register(bench, [listed("1.0.0")["server"]])
        assert stale["error"]["code"] == "stale_metadata"
        [newer] = await register(bench, [listed("3.0.0")["server"]])
        assert newer["outcome"] == "updated"


async def test_a_whole_registry_is_held_at_its_latest_versions(tmp_path: Path) -> None:
    """2,400 entries: six versions each of 400 servers, shuffled."""
    chance = random.Random(11)
    entries, latest = [], {}
    for number in range(400):
        name = f"com.example/server-{number}"
        versions = chance.sample(
            [f"{major}.{minor}.{patch}" for major in (0, 1) for minor in range(12) for patch in (0, 3)], 6
        )
        latest[name] = chance.choice(versions)
        entries += [
            listed(version, name=name, latest=version == latest[name], published=day, updated=chance.randint(1, 28))
            for day, version in enumerate(versions, 1)
        ]
    chance.shuffle(entries)
    async with service(tmp_path) as bench:
        answers = await register(bench, entries)
        assert (len(answers), [answer for answer in answers if "error" in answer]) == (2400, [])
        held = {agent["id"]: agent["version"] async for agent in _all_agents(bench)}
        assert held == latest


async def _all_agents(bench: Bench) -> Any:
    cursor = ""
    while True:
        page = (await bench.admin().get(f"/api/v1/agents?limit=200{cursor}")).json()
        for agent in page["agents"]:
            yield agent
        if "next_cursor" not in page:
            return
        cursor = f"&cursor={page['next_cursor']}"
