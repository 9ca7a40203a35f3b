"""Announcements on a LAN: mDNS, UDP broadcast, fallbacks by size, expiry, versions (announce.md §6.1–6.3, §7, §8)."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import AsyncIterator

import pytest

from support.announce import AGENT_ID, agent, announcement, key
from support.ports import free_port
from support.signing import key_of
from support.transports import (
    BEDS,
    A,
    B,
    Bed,
    Watched,
    eventually,
    query_until_found,
    signed,
    signed_members,
    wait_for_nothing,
)
from waypost import limits
from waypost.model.json import JsonObject, dump_json
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery, build_response, parse_capability_requirement
from waypost.protocols.announce.packets import (
    SERVICE,
    Fragment,
    FragmentReassembly,
    TxtMessage,
    TxtPointer,
    fit_announcement,
    parse_datagram,
    parse_txt,
    split_datagrams,
    write_txt_message,
    write_txt_pointer,
)
from waypost.transports.port import Transport
from waypost.transports.responses import ResponseCache
from waypost.transports.udp import PORT, UdpTransport
from waypost.trust.announce.signed_announcement import parse_signed_announcement, sign_announcement

NOW = 1_780_000_000.0
METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))


@pytest.fixture(params=["mdns", "udp"])
async def bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed]:
    async with BEDS[request.param]() as made:
        yield made


async def watching(end: Transport) -> Watched:
    watched = Watched()
    await end.subscribe(watched)
    return watched


@pytest.mark.req("ANN-30", "ANN-32")
def test_the_names_and_numbers_of_the_protocol() -> None:
    assert SERVICE == "_agentsc._tcp.local."
    assert limits.MDNS_TTL_SECONDS == 10
    assert PORT == 49353


@pytest.mark.req("ANN-30", "ANN-32", "ANN-7")
async def test_two_agents_announce_and_a_third_finds_the_matching_one(bed: Bed) -> None:
    alice, bob, carol = await bed.open("alice"), await bed.open("bob"), await bed.open("carol")
    first, second = bed.message(), bed.message(B, capabilities={"logs": "1.0"})
    await alice.announce(first, 10)
    await bob.announce(second, 10)
    assert [signed_members(found) for found in await query_until_found(carol, METRICS, {A}, 1.5)] == [first]
    assert await carol.query(AgentQuery(requirements=(parse_capability_requirement("unheard-of"),)), timeout=0.5) == []


@pytest.mark.req("ANN-10", "ANN-30", "ANN-32")
@pytest.mark.parametrize("part", ["agent_id", "public_key", "signature", "extra"])
async def test_a_message_that_was_changed_on_the_way_is_dropped(bed: Bed, part: str) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = await watching(bob)
    message = bed.message()
    if part == "agent_id":
        message["agent"]["agent_id"] = B
    elif part == "public_key":
        message["agent"]["public_key"] = key("other").public.pem()
    elif part == "signature":
        message["signature"] = "A" * 86 + "=="
    else:
        message["agent"]["extra"] = 1
    await alice.announce(message, 10)
    witness = "d2b7c9a4-92a4-4b8e-8a53-1c6f0f6a7e22"
    await alice.announce(bed.message(witness), 10)
    await eventually(lambda: watched.kinds(witness) == ["added"])
    assert {sighting.agent_id for sighting in watched.sightings} == {witness}


@pytest.mark.req("ANN-8")
async def test_unsigned_members_beside_the_agent_change_nothing(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = await watching(bob)
    message = {**bed.message(), "timestamp": 1, "schema_version": 2, "message_type": "announce", "action": "shutdown"}
    await alice.announce(message, 10)
    await eventually(lambda: watched.kinds() == ["added"])
    assert signed_members(watched.sightings[0].message) == signed_members(message)


@pytest.mark.req("ANN-31")
@pytest.mark.parametrize("kind", ["ed25519", "p-256"])
def test_a_compact_announcement_by_a_small_key_fits_512_bytes(kind: str) -> None:
    bulky = agent(metadata={"description": "d" * 300, "__os": "linux"})
    fitted = fit_announcement(bulky, lambda told: sign_announcement(told, key_of(kind), now=NOW), "udp")
    assert fitted.packaging == "compact"
    assert len(dump_json(fitted.message)) <= 512
    read = parse_signed_announcement(fitted.message)
    assert read.key is not None
    assert read.signature is not None
    assert read.find_canonical_form(read.key, read.signature) is not None


@pytest.mark.req("ANN-31")
def test_an_announcement_by_rsa_takes_the_ladder() -> None:
    message = fit_announcement(agent(), lambda told: sign_announcement(told, key_of("rsa"), now=NOW), "udp").message
    data = dump_json(message)
    parts = split_datagrams(data)
    assert len(parts) > 1
    assert max(map(len, parts)) <= 512
    reassembly, whole = FragmentReassembly(), None
    for part in reversed(parts):
        read = parse_datagram(part)
        assert isinstance(read, Fragment)
        whole = reassembly.add("10.0.0.1:1", read, 0.0)
    assert whole == data
    assert parse_txt(write_txt_message(data, AGENT_ID)) == TxtMessage(data, AGENT_ID)
    pointer = TxtPointer(AGENT_ID, f"https://registry.example/agents/{AGENT_ID}", key_of("rsa").public.key_id)
    assert parse_txt(write_txt_pointer(pointer)) == pointer


@pytest.mark.req("ANN-31")
async def test_more_than_512_bytes_arrive_whole(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = await watching(bob)
    message = sign_announcement(agent(A), key_of("rsa"), now=bed.clock.now())
    assert len(dump_json(message)) > 512
    await alice.announce(message, 10)
    await eventually(lambda: watched.kinds() == ["added"])
    assert signed_members(watched.sightings[0].message) == message


@pytest.mark.req("ANN-41")
async def test_an_agent_is_there_before_its_ttl_ends_and_gone_after_it(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = await watching(bob)
    await alice.announce(bed.message(), 10)
    await eventually(lambda: watched.kinds() == ["added"])
    await alice.close()
    bed.clock.advance(9)
    await wait_for_nothing(0.5)
    assert watched.kinds() == ["added"]
    bed.clock.advance(2)
    await eventually(lambda: watched.kinds() == ["added", "expired"])


@pytest.mark.req("ANN-40")
def test_answers_are_kept_no_longer_than_five_minutes_or_their_ttl() -> None:
    answer = build_response(announcement(key("one"), seq=1, at=NOW))
    memory = ResponseCache()
    memory.put(METRICS, [(answer, 10.0)], NOW)
    assert memory.find(METRICS, NOW + 9) == [answer]
    assert memory.find(METRICS, NOW + 10) is None
    memory.put(METRICS, [(answer, 86_400.0)], NOW)
    assert memory.find(METRICS, NOW + 299) == [answer]
    assert memory.find(METRICS, NOW + 300) is None
    memory.put(METRICS, [], NOW)
    assert memory.find(METRICS, NOW + 4) == []
    assert memory.find(METRICS, NOW + 5) is None
    memory.put(METRICS, [(answer, 60.0)], NOW)
    memory.remove_agent(AGENT_ID)
    assert memory.find(METRICS, NOW) == []


@pytest.mark.req("ANN-51")
async def test_another_minor_is_processed_and_warned_of_once(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = await watching(bob)
    heard: list[JsonObject] = []

    async def hear(message: JsonObject, how: object) -> None:
        heard.append(message)

    bob.serve(None, hear)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await alice.announce({**bed.message(), "protocol_version": "v1.1"}, 10)
        await eventually(lambda: watched.kinds() == ["added"] and heard)
        await wait_for_nothing(0.5)
    told = {record.getMessage() for record in caplog.records if "v1.1" in record.getMessage()}
    assert len(told) == 1


@pytest.mark.req("ANN-50")
async def test_a_higher_major_on_udp_is_ignored_and_sent_the_own_major_once_a_minute() -> None:
    clock, port = ManualClock(time.time()), free_port()
    ours = UdpTransport(["lo"], clock, port=port)
    await ours.open()
    watched = await watching(ours)
    await ours.announce(signed(clock, metadata={"note": "ours"}), 3600)
    stranger = {
        **signed(clock, B, metadata={"note": "a longer one, so that an answer fits"}),
        "protocol_version": "v2.0",
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.bind(("127.0.0.1", 0))
        sender.setblocking(False)
        for _ in range(3):
            sender.sendto(dump_json({**stranger, "padding": "x" * 40}), ("127.255.255.255", port))
        replies = await _replies(sender)
        clock.advance(60)
        sender.sendto(dump_json({**stranger, "padding": "x" * 40}), ("127.255.255.255", port))
        later = await _replies(sender)
    await ours.close()
    assert [(reply["protocol_version"], reply["agent"]["agent_id"]) for reply in replies] == [("v1.0", A)]
    assert len(later) == 1
    assert watched.kinds(B) == []


async def _replies(each: socket.socket) -> list[JsonObject]:
    """The first message, and those within half a second after it."""
    found: list[JsonObject] = []
    await eventually(lambda: found.extend(_read_all(each)) or found)
    await wait_for_nothing(0.5)
    return [*found, *_read_all(each)]


def _read_all(each: socket.socket) -> list[JsonObject]:
    """The messages, reassembled from fragments."""
    reassembly, found = FragmentReassembly(), []
    while True:
        try:
            data = each.recv(65_535)
        except BlockingIOError:
            return found
        part = parse_datagram(data)
        whole = reassembly.add("", part, 0.0) if isinstance(part, Fragment) else data
        if whole is not None:
            found.append(json.loads(whole))
