"""The UDP transport from outside: raw datagrams on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from support.announce import key
from support.ports import free_port
from support.transports import PATIENCE_SECONDS, A, B, eventually, query_until_found, signed, wait_for_nothing
from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.json import JsonObject, dump_json
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.protocols.announce.packets import (
    CookieChallenge,
    Fragment,
    FragmentReassembly,
    pad_query,
    parse_datagram,
    write_with_cookie,
)
from waypost.transports.interfaces import Interface
from waypost.transports.udp import UdpTransport
from waypost.trust.announce.signed_announcement import sign_announcement

QUERY = dump_json({"protocol_version": "v1.0", "query": {"capability": "*"}, "query_id": "q"})


class Stranger:
    """A plain socket: it sends to the port of everybody, and reads what comes back."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._port = port
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._socket.bind((address, 0))
        self._socket.setblocking(False)
        self.last: tuple[str, int] = ("", 0)

    def say(self, data: bytes) -> None:
        self._socket.sendto(data, ("127.255.255.255", self._port))

    def say_to(self, data: bytes, to: tuple[str, int]) -> None:
        self._socket.sendto(data, to)

    async def hear_until(self, is_enough: Callable[[list[bytes]], Any]) -> list[bytes]:
        """What comes until it is enough, however long that takes on a busy machine, and what comes right after it."""
        heard: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_enough(heard):
            assert time.monotonic() < deadline, heard
            heard += await self.hear(0.1)
        return heard + await self.hear(0.3)

    async def hear(self, seconds: float = 0.6) -> list[bytes]:
        """Everything that comes within the time."""
        heard: list[bytes] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                data, self.last = self._socket.recvfrom(65_535)
                heard.append(data)
            except BlockingIOError:
                await asyncio.sleep(0.01)
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())


@pytest.fixture
def stranger(port: int) -> Iterator[Stranger]:
    made = Stranger(port)
    yield made
    made.close()


@pytest.fixture
async def agent(port: int, clock: ManualClock) -> AsyncIterator[UdpTransport]:
    transport = UdpTransport(["127.0.0.1"], clock, port=port)
    await transport.open()
    yield transport
    await transport.close()


def small(clock: ManualClock, agent_id: str = A) -> JsonObject:
    """One whose answer fits a datagram."""
    said = {"agent_id": agent_id, "capabilities": {}, "transport": {"type": "tcp", "endpoint": "a.b:1"}}
    return sign_announcement(said, key(agent_id), now=clock.now())


async def test_a_response_is_sent_to_the_requester_after_a_delay_and_only_if_agents_match(
    agent: UdpTransport, stranger: Stranger, clock: ManualClock
) -> None:
    """P-24."""
    await agent.announce(small(clock), 30)
    await stranger.hear(0.1)
    stranger.say(pad_query(QUERY))
    heard = await stranger.hear_until(bool)
    answer = json.loads(heard[0])
    assert (answer["matched"], answer["query_id"], answer["agent"]["agent_id"]) == (True, "q", A)
    stranger.say(pad_query(dump_json({"protocol_version": "v1.0", "query": {"capability": "no-such-thing"}})))
    assert await stranger.hear() == []


async def test_a_question_from_beyond_the_link_is_not_answered(
    port: int, stranger: Stranger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: not even with a cookie."""
    monkeypatch.setattr(Interface, "is_on_link", lambda _, address: address != "127.0.0.9")
    agent, far = UdpTransport(["127.0.0.1"], clock, port=port), Stranger(port, "127.0.0.9")
    await agent.open()
    await agent.announce(small(clock), 30)
    far.say(pad_query(QUERY))
    stranger.say(pad_query(QUERY))
    assert _agents(await stranger.hear_until(_agents)) == [A]
    assert await far.hear() == []
    far.close()
    await agent.close()


async def test_an_answer_is_never_larger_than_the_question_unless_the_source_is_proved(
    agent: UdpTransport, stranger: Stranger, clock: ManualClock
) -> None:
    """L5."""
    await agent.announce(signed(clock), 30)
    await agent.announce(signed(clock, B, metadata={"description": "d" * 900}), 30)
    stranger.say(QUERY)
    heard = await stranger.hear_until(bool)
    assert sum(map(len, heard)) <= len(QUERY)
    shown = parse_datagram(heard[0])
    assert isinstance(shown, CookieChallenge)
    stranger.say_to(write_with_cookie(shown.cookie, QUERY), stranger.last)
    answers = await stranger.hear_until(lambda heard: set(_agents(heard)) == {A, B})
    assert sum(map(len, answers)) > len(QUERY)
    assert all(len(data) <= limits.DATAGRAM_BYTES for data in answers)
    assert set(_agents(answers)) == {A, B}


async def test_a_cookie_of_another_source_proves_nothing(
    agent: UdpTransport, stranger: Stranger, clock: ManualClock, port: int
) -> None:
    """L5."""
    await agent.announce(signed(clock), 30)
    stranger.say(QUERY)
    shown = parse_datagram((await stranger.hear_until(bool))[0])
    assert isinstance(shown, CookieChallenge)
    other = Stranger(port)
    other.say_to(write_with_cookie(shown.cookie, QUERY), stranger.last)
    heard = await other.hear()
    other.close()
    assert sum(map(len, heard)) <= len(QUERY) + 18
    assert _agents(heard) == []


async def test_a_source_gets_at_most_ten_answers_a_second(
    agent: UdpTransport, stranger: Stranger, clock: ManualClock
) -> None:
    """P-24, L5."""
    await agent.announce(small(clock), 30)
    await stranger.hear(0.1)
    for number in range(40):
        stranger.say(pad_query(dump_json({**json.loads(QUERY), "query_id": str(number)})))
    began, answers = time.monotonic(), 0
    while answers < limits.ANSWERS_PER_SECOND:
        assert time.monotonic() < began + 60
        answers += len(_agents(await stranger.hear(1.0)))
    assert answers <= limits.ANSWERS_PER_SECOND * (2 + time.monotonic() - began)


async def test_rubbish_stops_nothing(agent: UdpTransport, stranger: Stranger, clock: ManualClock) -> None:
    """L3, L7."""
    heard: list[Any] = []

    async def hear(message: JsonObject, how: Any) -> None:
        heard.append(message)

    agent.serve(None, hear)
    for data in (b"", b"\xad", b"\xad\x01" + bytes(10), b"{", b"[1]", b"\xff" * 1000, b'{"agent":[]}', b"{}" * 20_000):
        stranger.say(data)
    message = signed(clock)
    stranger.say(dump_json(message))
    await eventually(lambda: heard)
    assert heard == [message]


async def test_a_flooding_process_is_cut_off_and_others_are_processed(
    agent: UdpTransport, stranger: Stranger, clock: ManualClock, port: int
) -> None:
    """L3."""
    heard: list[str] = []

    async def hear(message: JsonObject, how: Any) -> None:
        heard.append(message["agent"]["agent_id"])

    agent.serve(None, hear)
    flood = dump_json(signed(clock))
    began = time.monotonic()
    for _ in range(50):
        for _ in range(100):
            stranger.say(flood)
        await wait_for_nothing(0.01)
    other = Stranger(port)

    def is_heard() -> bool:  # said again, as agents do: the system may have no room left for a datagram
        if time.monotonic() > began + 0.2 * (said.count(B) + 1):
            said.append(B)
            other.say(dump_json(signed(clock, B)))
        return B in heard

    said: list[str] = []
    await eventually(is_heard)
    other.close()
    assert heard.count(A) <= limits.SOURCE_PACKETS_BURST + limits.SOURCE_PACKETS_PER_SECOND * (time.monotonic() - began)


async def test_a_large_announcement_goes_out_in_fragments(agent: UdpTransport, clock: ManualClock, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.settimeout(PATIENCE_SECONDS)
        message = signed(clock, metadata={"description": "d" * 700})
        assert (await agent.announce(message, 30)).accepted
        reassembly, whole = FragmentReassembly(), None
        while whole is None:
            data = listener.recv(65_535)
            part = parse_datagram(data)
            assert isinstance(part, Fragment)
            assert len(data) <= limits.DATAGRAM_BYTES
            whole = reassembly.add("", part, 0.0)
    assert json.loads(whole) == {**message, "ttl": 30}


async def test_an_announcement_too_large_for_udp_is_not_sent_and_says_why(
    agent: UdpTransport, clock: ManualClock
) -> None:
    ack = await agent.announce(signed(clock, metadata={"description": "d" * 9000}), 30)
    assert not ack.accepted
    assert "bytes" in ack.reason


async def test_a_closed_transport_accepts_nothing(agent: UdpTransport, clock: ManualClock) -> None:
    await agent.close()
    ack = await agent.announce(signed(clock), 30)
    assert (ack.accepted, ack.reason) == (False, "The transport is closed.")


async def test_our_own_announcement_is_echoed(agent: UdpTransport, clock: ManualClock) -> None:
    """P-30."""
    assert agent.echoed_at() is None
    await agent.announce(signed(clock), 30)
    await eventually(lambda: agent.echoed_at() == clock.now())


async def test_many_agents_behind_one_source_are_found_by_proving_oneself(port: int, clock: ManualClock) -> None:
    registry, client = (UdpTransport(["lo"], clock, port=port) for _ in range(2))
    await registry.open()
    await client.open()
    known = [signed(clock, f"{number:08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d") for number in range(8)]

    async def answer(query: AgentQuery) -> list[JsonObject]:
        return known

    registry.serve(answer, None)
    found = await query_until_found(client, AgentQuery(), {message["agent"]["agent_id"] for message in known}, 2.0)
    assert len(found) == 8
    await registry.close()
    await client.close()


@pytest.mark.parametrize("interfaces", [[], ["no-such0"], ["192.0.2.7"]])
async def test_an_interface_must_be_named_and_be_there(interfaces: list[str], clock: ManualClock) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await UdpTransport(interfaces, clock).open()
    assert "lo" in str(refused.value.hint)


def test_the_port_of_mdns_is_not_used(clock: ManualClock) -> None:
    with pytest.raises(ConfigurationError):
        UdpTransport(["lo"], clock, port=5353)


def _agents(datagrams: list[bytes]) -> list[str]:
    reassembly = FragmentReassembly()
    found: list[str] = []
    for data in datagrams:
        part = parse_datagram(data)
        whole: bytes | None = data if data[:1] == b"{" else None
        if isinstance(part, Fragment):
            whole = reassembly.add("", part, 0.0)
        if whole is not None:
            found.append(json.loads(whole)["agent"]["agent_id"])
    return found
