"""The bus transport with a real NATS server: restarts, hostile messages, groups."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest

from support.bus import NatsServer, nats_server, settle
from support.transports import A, B, C, Watched, eventually, query_until_found, signed, signed_members, wait_for_nothing
from waypost import limits
from waypost.errors import NotAllowed, StoreUnavailable, Unavailable
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.transports.bus import BusTransport
from waypost.transports.port import MessageContext

SUBJECT = "topic.discovery"
METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))
ASKED = {"protocol_version": "v1.0", "query": {"capability": "metrics"}, "query_id": "q1"}


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())


@asynccontextmanager
async def ends(server: NatsServer, clock: ManualClock, *groups: str) -> AsyncIterator[list[BusTransport]]:
    made = [BusTransport(server.url, clock, group=group, random=random.Random(n)) for n, group in enumerate(groups)]
    for each in made:
        await each.open()
    try:
        yield made
    finally:
        for each in made:
            await each.close()


class Inbox:
    """A client that knows nothing of Waypost."""

    def __init__(self, client: nats.NATS) -> None:
        self.client = client
        self.got: list[bytes] = []

    async def listen(self, subject: str) -> None:
        async def take(message: nats.aio.msg.Msg) -> None:
            self.got.append(message.data)

        await self.client.subscribe(subject, cb=take)
        await settle(self.client)

    async def send(self, data: bytes, reply: str = "") -> None:
        await self.client.publish(SUBJECT, data, reply=reply)
        await settle(self.client)


@asynccontextmanager
async def plain(server: NatsServer) -> AsyncIterator[Inbox]:
    client = await nats.connect(server.url)
    try:
        yield Inbox(client)
    finally:
        await client.close()


async def test_a_restart_of_the_bus_loses_no_agent(server: NatsServer, clock: ManualClock) -> None:
    async with ends(server, clock, "", "") as (alice, bob):
        watched = Watched()
        await bob.subscribe(watched)
        await alice.announce(signed(clock), 60)
        await eventually(lambda: watched.kinds() == ["added"])
        server.stop()
        await eventually(lambda: not alice._connection.is_up and not bob._connection.is_up)
        unheard = signed(clock, B)
        refused = await alice.announce(unheard, 60)
        assert not refused.accepted
        assert "bus" in refused.reason
        with pytest.raises(Unavailable):
            await bob.query(METRICS, timeout=0.2)
        server.start()
        await eventually(lambda: watched.kinds(B) == ["added"])
        assert (await alice.announce(signed(clock, C), 60)).accepted
        await eventually(lambda: watched.kinds(C) == ["added"])
        assert {found["agent"]["agent_id"] for found in await query_until_found(bob, METRICS, {A, B, C})} == {A, B, C}


async def test_an_end_reconnects_after_the_bus_disconnected_it(tmp_path: Path, clock: ManualClock) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("max_connections: 10\n")
    with nats_server(config) as server:
        async with ends(server, clock, "", "") as (alice, bob):
            watched = Watched()
            await bob.subscribe(watched)
            config.write_text("max_connections: 1\n")
            server.reload()
            await eventually(lambda: not (alice._connection.is_up and bob._connection.is_up))
            config.write_text("max_connections: 10\n")
            server.reload()
            await eventually(lambda: alice._connection.is_up and bob._connection.is_up)
            assert (await alice.announce(signed(clock), 60)).accepted
            await eventually(lambda: watched.kinds() == ["added"])


async def test_an_unreachable_bus_is_reported_with_its_setting(clock: ManualClock) -> None:
    with pytest.raises(Unavailable) as refused:
        await BusTransport(NatsServer().url, clock).open()
    assert refused.value.path == "bus"
    assert "Connection refused" in refused.value.message


async def test_an_end_that_is_closed_sends_nothing_and_may_be_closed_again(
    server: NatsServer, clock: ManualClock
) -> None:
    async with ends(server, clock, "") as (alice,):
        await alice.close()
        await alice.close()
        assert not (await alice.announce(signed(clock), 60)).accepted


@pytest.mark.parametrize(
    "reply_to", ["orders.create", "orders.>", "*", "_INBOX.*", "$SYS.REQ.USER.INFO", "_INBOX.a\r\nPUB orders 2"]
)
async def test_no_reply_subject_makes_a_registry_publish_elsewhere(
    server: NatsServer, clock: ManualClock, reply_to: str
) -> None:
    """B1."""
    async with ends(server, clock, "") as (alice,), plain(server) as inbox:
        await alice.announce(signed(clock), 60)
        await inbox.listen("orders.>")
        await inbox.listen("_INBOX.witness")
        if not set(reply_to) & set("*>\r "):
            await inbox.send(dump_json(ASKED), reply_to)
        await inbox.send(dump_json({**ASKED, "reply_to": reply_to}))
        await inbox.send(dump_json({**ASKED, "query_id": "witness"}), "_INBOX.witness")
        await eventually(lambda: inbox.got)
        await wait_for_nothing(0.2)
        assert [parse_object(data)["query_id"] for data in inbox.got] == ["witness"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"{}",
        b'{"query":7}',
        b'{"agent":7}',
        b'{"agent":{"agent_id":"../x"}}',
        b'{"agent":{},"agent":{}}',
        b"[" * 9000,
        b'{"agent":"' + b"a" * limits.ANNOUNCE_BYTES + b'"}',
    ],
    ids=lambda data: repr(data[:20]),
)
async def test_an_invalid_message_does_not_end_the_subscription(
    server: NatsServer, clock: ManualClock, data: bytes
) -> None:
    """B2, B3."""
    async with ends(server, clock, "", "") as (alice, bob), plain(server) as inbox:
        watched = Watched()
        await bob.subscribe(watched)
        await inbox.send(data)
        await inbox.send(data, "_INBOX.x")
        await alice.announce(signed(clock), 60)
        await eventually(lambda: watched.kinds() == ["added"])
        assert bob.parked == ()


async def test_a_poison_message_is_parked_after_three_tries_while_others_are_delivered(
    server: NatsServer, clock: ManualClock
) -> None:
    """B3."""
    tried: list[str] = []

    async def hear(message: JsonObject, how: MessageContext) -> None:
        agent_id = message["agent"]["agent_id"]
        tried.append(agent_id)
        if agent_id == A:
            raise StoreUnavailable("It cannot be written.", hint="Look at the disk.")
        if agent_id == B:
            raise RuntimeError("a fault")

    async with ends(server, clock, "", "") as (alice, registry):
        registry.serve(None, hear)
        messages = [signed(clock, agent_id) for agent_id in (A, B, C)]
        for message in (
            messages * 3
        ):  # agents repeat themselves: a bus may lose a message, and the same bytes count once
            await alice.announce(message, 60)
        await eventually(lambda: {A, B, C} <= set(tried))
        await eventually(lambda: len(registry.parked) == 2)
        assert (tried.count(A), tried.count(B), tried.count(C)) == (3, 3, 1)
        assert {parked.reason for parked in registry.parked} == {"It cannot be written.", "RuntimeError"}


async def test_a_duplicate_message_is_delivered_once(server: NatsServer, clock: ManualClock) -> None:
    """B5."""
    heard: list[JsonObject] = []

    async def hear(message: JsonObject, how: MessageContext) -> None:
        heard.append(message)

    async with ends(server, clock, "") as (registry,), plain(server) as inbox:
        registry.serve(None, hear)
        data, last = dump_json(signed(clock)), dump_json(signed(clock, B))
        for _ in range(5):
            await inbox.send(data)
        await inbox.send(last)
        await eventually(lambda: len(heard) >= 2)
        assert [message["agent"]["agent_id"] for message in heard] == [A, B]


async def test_a_rejected_message_is_judged_anew_when_it_comes_again(server: NatsServer, clock: ManualClock) -> None:
    """P-29: an allow rule that was added meanwhile counts at once, also for the same bytes."""
    heard: list[JsonObject] = []

    async def hear(message: JsonObject, how: MessageContext) -> None:
        heard.append(message)
        if len(heard) == 1:
            raise NotAllowed("No rule admits it.", hint="Add one.")

    async with ends(server, clock, "") as (registry,), plain(server) as inbox:
        registry.serve(None, hear)
        data = dump_json(signed(clock))
        for count in (1, 2):
            await inbox.send(data)
            await eventually(lambda count=count: len(heard) == count)
        await inbox.send(data)  # accepted: now it is a duplicate
        await inbox.send(dump_json(signed(clock, B)))
        await eventually(lambda: len(heard) == 3)
        assert [message["agent"]["agent_id"] for message in heard] == [A, A, B]


async def test_duplicates_and_disorder_lead_to_the_same_state(server: NatsServer, clock: ManualClock) -> None:
    """B5."""
    messages = [signed(clock, capabilities={"metrics": f"{number}.0"}) for number in range(1, 8)]
    for seed in range(3):
        drawn = [dump_json(message) for message in messages * 3]
        random.Random(seed).shuffle(drawn)
        async with ends(server, clock, "") as (bob,), plain(server) as inbox:
            watched = Watched()
            await bob.subscribe(watched)
            for data in drawn:
                await inbox.send(data)
            await inbox.send(dump_json(signed(clock, B)))
            await eventually(lambda watched=watched: watched.kinds(B) == ["added"])
            last = [each for each in watched.sightings if each.agent_id == A][-1]
            assert signed_members(last.message) == messages[-1]


async def test_of_a_group_one_answers_and_all_hear(server: NatsServer, clock: ManualClock) -> None:
    answered: list[int] = []
    heard: list[tuple[int, str]] = []
    known = signed(clock, B)

    def serve(number: int, registry: BusTransport) -> None:
        async def answer(query: AgentQuery) -> list[JsonObject]:
            answered.append(number)
            return [known]

        async def hear(message: JsonObject, how: MessageContext) -> None:
            heard.append((number, message["agent"]["agent_id"]))

        registry.serve(answer, hear)

    async with ends(server, clock, "eu", "eu", "eu", "us", "") as made:
        *registries, alice = made
        for number, registry in enumerate(registries):
            serve(number, registry)
        await alice.announce(signed(clock, metadata={"query": "a word that questions have, too"}), 60)
        await eventually(lambda: sorted(heard) == [(number, A) for number in range(4)])
        for _ in range(3):
            found: set[str] = set()
            while found != {A, B}:  # a busy machine answers late, and the test ends some time
                answered.clear()
                found = {message["agent"]["agent_id"] for message in await alice.query(METRICS, timeout=1.0)}
                await eventually(lambda: len(answered) >= 2)
                assert len(answered) == 2
                assert 3 in answered


async def test_an_announcement_beyond_the_limit_is_not_sent(server: NatsServer, clock: ManualClock) -> None:
    async with ends(server, clock, "") as (alice,):
        ack = await alice.announce({**signed(clock), "x": "a" * limits.ANNOUNCE_BYTES}, 60)
        assert not ack.accepted
        assert str(limits.ANNOUNCE_BYTES) in ack.reason


async def test_a_flood_leaves_a_bounded_memory_and_the_transport_alive(server: NatsServer, clock: ManualClock) -> None:
    async with ends(server, clock, "") as (bob,), plain(server) as inbox:
        watched = Watched()
        await bob.subscribe(watched)
        data = dump_json(ASKED)
        for _ in range(20_000):
            await inbox.client.publish(SUBJECT, data, reply="_INBOX.flood")
        await settle(inbox.client)
        assert len(bob._tasks) <= limits.PENDING_ANSWERS + 1

        async def heard() -> None:
            while not watched.kinds():
                await inbox.send(dump_json(signed(clock)))
                await asyncio.sleep(0.2)

        await asyncio.wait_for(heard(), 60)
