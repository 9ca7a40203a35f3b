"""Announcements over a bus (announce.md §6.6), and criteria 2 and 7 of §11."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest

from support.announce import AGENT_ID, announce, announcement, key
from support.bus import NatsServer, nats_server, settle
from support.service import NOW, service
from support.transports import (
    BEDS,
    PATIENCE_SECONDS,
    A,
    B,
    Bed,
    C,
    Watched,
    eventually,
    query_until_found,
    signed_members,
    wait_for_nothing,
)
from waypost.client.finder import Finder, FoundAgent
from waypost.model.json import dump_json, parse_object
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import TOPIC, AgentQuery, parse_capability_requirement, subject_of
from waypost.transports.bus import BusTransport
from waypost.trust.document_signatures import canonicalize

METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))
ANYTHING_ELSE = AgentQuery(requirements=(parse_capability_requirement("unheard-of"),))


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    async with BEDS["bus"]() as made:
        yield made


@pytest.mark.req("ANN-38", "ANN-7")
async def test_two_agents_announce_and_a_third_finds_the_matching_one(bed: Bed) -> None:
    """Criterion 2."""
    alice, bob, carol = await bed.open("alice"), await bed.open("bob"), await bed.open("carol")
    first, second = bed.message(), bed.message(B, capabilities={"metrics": "2.0", "logs": "1"})
    await alice.announce(first, 60)
    await bob.announce(second, 60)
    await bob.announce(bed.message(C, capabilities={"logs": "1.0"}), 60)
    found = {each["agent"]["agent_id"]: each for each in await query_until_found(carol, METRICS, {A, B})}
    assert {agent_id: signed_members(message) for agent_id, message in found.items()} == {A: first, B: second}
    assert canonicalize(found[A]["agent"]) == canonicalize(first["agent"])
    assert await carol.query(ANYTHING_ELSE, timeout=0.5) == []


@pytest.mark.req("ANN-38", "ANN-41")
async def test_a_silent_agent_is_listed_until_its_ttl_ends(bed: Bed) -> None:
    """Criterion 7."""
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    bed.clock.advance(29)
    assert len(await query_until_found(bob, METRICS, {A})) == 1
    await alice.close()
    bed.clock.advance(60)
    await eventually(lambda: watched.kinds() == ["added", "expired"])
    assert await bob.query(METRICS, timeout=0.5) == []
    await wait_for_nothing()
    assert watched.kinds() == ["added", "expired"]


@pytest.mark.req("ANN-38", "ANN-5")
async def test_a_json_query_is_answered_on_its_reply_subject(server: NatsServer) -> None:
    clock = ManualClock(time.time())
    alice = BusTransport(server.url, clock)
    await alice.open()
    client = await nats.connect(server.url)
    subject = subject_of(TOPIC)
    assert subject == "topic.discovery"
    topic = await client.subscribe(subject)
    inbox = await client.subscribe("_INBOX.mine")
    await settle(client)
    message = announcement(key("a"), seq=1, at=clock.now())
    told = await alice.announce(message, 60)
    assert told.accepted, told.reason
    published = await topic.next_msg(PATIENCE_SECONDS)
    assert signed_members(parse_object(published.data)) == message
    assert published.headers is not None
    assert published.headers["Agent-Id"] == AGENT_ID
    question = {"protocol_version": "v1.0", "query": {"capability": "metrics"}, "query_id": "q7"}
    await client.publish(subject, dump_json({**question, "reply_to": "_INBOX.mine"}))
    answers = [
        await inbox.next_msg(PATIENCE_SECONDS),
        await client.request(subject, dump_json(question), timeout=PATIENCE_SECONDS),
    ]
    for answer in answers:
        told = parse_object(answer.data)
        assert (signed_members(told), told["matched"], told["query_id"]) == (message, True, "q7")
    await topic.unsubscribe()
    topic = await client.subscribe(subject)
    await client.publish(subject, dump_json(question))
    await topic.next_msg(PATIENCE_SECONDS)
    assert parse_object((await topic.next_msg(PATIENCE_SECONDS)).data)["matched"] is True
    await client.close()
    await alice.close()


@pytest.mark.req("ANN-38")
async def test_announcements_from_the_bus_pass_the_same_admission_as_all_others(
    tmp_path: Path, server: NatsServer
) -> None:
    """B2, B4: signature, key, sequence and owner count as they do over HTTP."""
    owned = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"
    async with service(tmp_path, bus=server.url, trust_mode="tofu") as bench:
        ada = bench.as_("ada")
        assert (await announce(ada, announcement(key("b"), seq=5, at=NOW, agent_id=owned))).is_success
        transport = BusTransport(server.url, bench.clock)
        await transport.open()
        evil = {"evil": "1"}
        broken = announcement(key("b"), seq=9, at=NOW, agent_id=owned)
        broken["agent"]["capabilities"] = evil
        for message in (
            broken,
            announcement(key("mallory"), seq=9, at=NOW, agent_id=owned, capabilities=evil),
            announcement(key("b"), seq=4, at=NOW, agent_id=owned, capabilities=evil),
            announcement(key("a"), seq=1, at=NOW),
        ):
            await transport.announce(message, 30)
        await eventually(lambda: len(bench.registry.entries) == 2)
        assert (await ada.get(f"/agents/{owned}")).json()["agent"]["capabilities"] == {"metrics": "2.0"}
        judged = (await bench.admin().get(f"/api/v1/agents/urn:uuid:{AGENT_ID}:verify")).json()
        assert [document["via"] for document in judged["documents"]] == ["bus"]
        assert judged["trust"]["level"] == "verified"
        await transport.close()
        asking = BusTransport(server.url, bench.clock)
        async with Finder([asking], clock=bench.clock) as finder:
            found = await found_by(finder, bench.clock)
            assert [(each.agent_id, each.transports, each.trust) for each in found] == [(AGENT_ID, ("bus",), "signed")]
        bench.clock.advance(31)
        assert (await ada.get(f"/agents/{AGENT_ID}")).status_code == 404


async def found_by(finder: Finder, clock: ManualClock) -> list[FoundAgent]:
    """Query again while the result is empty: a busy machine answers late, and empty results are cached only briefly."""
    for seconds in (1.0, 5.0, 20.0):
        if found := await finder.find("metrics", seconds=seconds):
            return found
        clock.advance(6)
    return []


@pytest.mark.req("ANN-38")
async def test_the_allow_list_applies_to_the_bus(tmp_path: Path, server: NatsServer) -> None:
    async with service(tmp_path, bus=server.url) as bench:
        transport = BusTransport(server.url, bench.clock)
        await transport.open()
        await transport.announce(announcement(key("a"), seq=1, at=NOW), 30)
        await asyncio.sleep(0.3)
        assert len(bench.registry.entries) == 0
        assert (await bench.admin().post("/api/v1/allow", json={"rule": AGENT_ID})).is_success
        await transport.announce(announcement(key("a"), seq=2, at=NOW), 30)
        await eventually(lambda: len(bench.registry.entries) == 1)
        await transport.close()
