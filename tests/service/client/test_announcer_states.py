"""`Announcer` and `Finder` in a few lines: with the default transports, and with states as soon as the block begins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import RunningServer, running_server
from waypost import Announcer, Client, Finder
from waypost.client.registry_transport import registry_transport

AGENT: dict[str, Any] = {
    "name": "Echo",
    "description": "Repeats the message.",
    "version": "1.0",
    "url": "http://127.0.0.1:9999/",
    "capabilities": {},
    "skills": [{"id": "echo", "name": "Echo", "description": "Repeats.", "tags": ["echo"]}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory", "--no-health-checks") as running:
        yield running


async def tried(announcer: Announcer) -> str:
    """The state after the first attempt. The start waits for it, but not for long on a slow machine."""
    for _ in range(6000):
        if announcer.states["http"].state != "waiting":
            break
        await asyncio.sleep(0.01)
    return announcer.states["http"].state


async def test_states_are_known_when_the_block_begins(server: RunningServer, tmp_path: Path) -> None:
    transport = registry_transport(server.url, server.admin_token)
    async with Announcer.load(AGENT, [transport], data=tmp_path) as announcer:
        assert await tried(announcer) == "announced"
        async with Client(server.url, server.admin_token) as wp:
            assert (await wp.get(announcer.agent_id)).name == "Echo"
    assert announcer.states["http"].state == "withdrawn"
    assert repr(announcer) == f"<Announcer {announcer.agent_id!r} http withdrawn>"
    assert repr(Finder([transport])) == "<Finder http: 0 found>"


async def test_a_failure_is_known_when_the_block_begins(tmp_path: Path) -> None:
    announcer = Announcer.load(AGENT, [registry_transport("http://127.0.0.1:1", "t")], data=tmp_path)
    assert announcer.states["http"].state == "waiting"
    async with announcer:
        assert await tried(announcer) == "failed"
        assert "127.0.0.1:1" in announcer.states["http"].reason


async def test_an_announcer_finds_its_transports_itself(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WAYPOST_MDNS_INTERFACES", "127.0.0.1")
    announcer = Announcer.load(AGENT, data=server.data)
    assert set(announcer.states) == {"mdns", "http"}
    async with announcer:
        assert await tried(announcer) == "announced"
        async with Finder() as finder:
            found = await finder.find(agent_id=announcer.agent_id)
        assert [agent.agent_id for agent in found] == [announcer.agent_id]
