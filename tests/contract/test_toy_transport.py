"""A new transport is a module and one row: with the row of `support.toy_transport`, a registry listens on the toy.

The contract suite runs over the toy, too (`support.transports.BEDS`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.announce import AGENT_ID, announcement, key
from support.service import Bench, service
from support.toy_transport import ROW, ToyTransport
from support.transports import PATIENCE_SECONDS, eventually, query_until_found
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.factory import TRANSPORTS

pytestmark = pytest.mark.usefixtures("row")


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSPORTS, "toy", ROW)


@pytest.fixture
async def bench(tmp_path: Path, row: None) -> AsyncIterator[Bench]:
    (tmp_path / "toy").mkdir()
    async with service(tmp_path, trust_mode="tofu", anonymous_read=True) as made:
        yield made


@pytest.fixture
async def agent(bench: Bench) -> AsyncIterator[ToyTransport]:
    transport = ToyTransport(bench.application.settings.data / "toy", bench.clock)
    await transport.open()
    yield transport
    await transport.close()


async def test_an_agent_that_announces_over_the_toy_is_registered(bench: Bench, agent: ToyTransport) -> None:
    assert (await agent.announce(announcement(key("a"), seq=1, at=bench.clock.now()), 30)).accepted
    await eventually(lambda: len(bench.registry.entries) == 1)
    verified = (await bench.admin().get(f"/api/v1/agents/urn:uuid:{AGENT_ID}:verify")).json()
    assert verified["trust"]["level"] == "verified"
    assert [document["via"] for document in verified["documents"]] == ["toy"]


async def test_a_later_announcement_over_the_toy_updates_the_agent(bench: Bench, agent: ToyTransport) -> None:
    await agent.announce(announcement(key("a"), seq=1, at=bench.clock.now()), 30)
    await eventually(lambda: len(bench.registry.entries) == 1)
    await agent.announce(announcement(key("a"), seq=2, at=bench.clock.now(), capabilities={"logs": "1.0"}), 30)
    reader = bench.as_("bob")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await reader.get(f"/agents/{AGENT_ID}")).json()["agent"]["capabilities"] != {"logs": "1.0"}:
            await asyncio.sleep(0.01)


async def test_the_registry_answers_queries_over_the_toy(bench: Bench, agent: ToyTransport) -> None:
    message = announcement(key("a"), seq=1, at=bench.clock.now())
    answer = await bench.admin().post("/agents", json=message)
    assert answer.is_success, answer.text
    (found,) = await query_until_found(agent, AgentQuery(agent_id=AGENT_ID), {AGENT_ID})
    assert found["agent"] == message["agent"]
