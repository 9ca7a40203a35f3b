"""The mDNS transport from outside: records as other tools see them, and forged packets."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from zeroconf import (
    DNSOutgoing,  # type: ignore[attr-defined]
    DNSQuestion,  # type: ignore[attr-defined]
    DNSText,  # type: ignore[attr-defined]
    RecordUpdate,
    ServiceInfo,
)
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from support.announce import key
from support.netns import own_loopback
from support.transports import A, B, Watched, eventually, query_until_found, signed, signed_members, wait_for_nothing
from waypost import limits
from waypost.errors import FetchFailed
from waypost.model.json import JsonObject, dump_json
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery, build_response, parse_message
from waypost.protocols.announce.packets import (
    TxtMessage,
    TxtPointer,
    instance_label,
    parse_txt,
    write_txt_message,
    write_txt_pointer,
)
from waypost.transports.mdns.transport import MdnsTransport

_RESPONSE, _PTR, _TXT, _IN = 0x8400, 12, 16, 1


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    """A private service type, without packets of other tests."""
    with own_loopback():
        yield


@pytest.fixture
def service() -> str:
    return f"_wp-{secrets.token_hex(4)}._tcp.local."


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())


@pytest.fixture
async def make(service: str, clock: ManualClock) -> AsyncIterator[Callable[..., Any]]:
    opened: list[MdnsTransport] = []

    async def open_one(**options: Any) -> MdnsTransport:
        transport = MdnsTransport(["lo"], clock, service=service, **options)
        await transport.open()
        opened.append(transport)
        return transport

    yield open_one
    for transport in opened:
        await transport.close()


@pytest.fixture
async def other() -> AsyncIterator[AsyncZeroconf]:
    """Another tool on the same link."""
    made = AsyncZeroconf(interfaces=["127.0.0.1"])
    yield made
    await made.async_close()


def shout(name: str, text: bytes, ttl: int, *, hops: int = 255) -> None:
    """An unsigned packet."""
    out = DNSOutgoing(_RESPONSE)
    out.add_answer_at_time(DNSText(name, _TXT, _IN | 0x8000, ttl, text), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
        for packet in out.packets():
            sender.sendto(packet, ("224.0.0.251", 5353))


def shout_raw(data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        sender.sendto(data, ("224.0.0.251", 5353))


def text_of(message: JsonObject) -> bytes:
    return write_txt_message(dump_json(message), message["agent"]["agent_id"])


async def test_other_tools_see_an_agent_with_its_records(
    make: Callable[..., Any], other: AsyncZeroconf, service: str, clock: ManualClock
) -> None:
    """P-21, P-22."""
    names: list[str] = []
    browser = AsyncServiceBrowser(other.zeroconf, service, handlers=[lambda **what: names.append(what["name"])])
    alice = await make(random=random.Random(1))
    message = signed(clock)
    await alice.announce(message, limits.MDNS_TTL_SECONDS)
    await eventually(lambda: names)
    assert names[0] == f"{instance_label(A, 'data-processor', random.Random(1).getrandbits(16))}.{service}"
    info = AsyncServiceInfo(service, names[0])
    assert await info.async_request(other.zeroconf, 60_000)
    assert (info.port, info.server, info.parsed_addresses()) == (9000, f"{A}.local.", ["127.0.0.1"])
    assert parse_txt(info.text or b"") == TxtMessage(dump_json(message), A)
    kept = other.zeroconf.cache.async_entries_with_name(names[0])
    assert {record.ttl for record in kept if isinstance(record, DNSText)} == {limits.MDNS_TTL_SECONDS}
    await browser.async_cancel()


@pytest.mark.parametrize("how", ["withdrawn", "signed goodbye", "signed goodbye, then closed"])
async def test_other_tools_drop_an_agent_that_leaves(
    make: Callable[..., Any], other: AsyncZeroconf, service: str, clock: ManualClock, how: str
) -> None:
    """By records with TTL 0: nothing else ends a record of ten minutes."""
    seen: list[tuple[str, str]] = []
    browser = AsyncServiceBrowser(
        other.zeroconf, service, handlers=[lambda **what: seen.append((what["state_change"].name, what["name"]))]
    )
    alice = await make()
    await alice.announce(signed(clock), 600)
    await eventually(lambda: seen)
    if how == "withdrawn":
        await alice.withdraw(A)
    else:
        clock.advance(1)
        await alice.announce(signed(clock, metadata={"__state": "shutdown"}), 600)
    if how.endswith("closed"):
        await alice.close()
    await eventually(lambda: seen[-1][0] == "Removed")
    await browser.async_cancel()


async def test_an_agent_that_another_tool_publishes_is_seen(
    make: Callable[..., Any], other: AsyncZeroconf, service: str, clock: ManualClock
) -> None:
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    message = signed(clock)
    info = ServiceInfo(service, f"other.{service}", port=1, server="other.local.", properties=text_of(message))
    await (await other.async_register_service(info, ttl=10))
    await eventually(lambda: watched.kinds() == ["added"])
    assert watched.sightings[0].message == message
    assert watched.sightings[0].ttl == 10


async def test_an_unsigned_goodbye_only_makes_an_agent_suspect(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """L4."""
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    message = signed(clock)
    shout(f"one.{service}", text_of(message), 10)
    await eventually(lambda: watched.kinds() == ["added"])
    shout(f"one.{service}", text_of(message), 0)
    await eventually(lambda: watched.kinds() == ["added", "suspect"])
    clock.advance(9)
    await wait_for_nothing()
    assert watched.kinds() == ["added", "suspect"]
    clock.advance(2)
    await eventually(lambda: watched.kinds() == ["added", "suspect", "expired"])


async def test_a_record_that_zeroconf_forgets_is_not_taken_for_news(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """zeroconf reports dropped records like received ones: a killed agent would reappear once."""
    bob = await make()
    watched, heard = Watched(), list[JsonObject]()

    async def hear(message: JsonObject, how: Any) -> None:
        heard.append(message)

    bob.serve(None, hear)
    await bob.subscribe(watched)
    now = time.time() * 1000
    old, fresh = (
        DNSText(f"{name}.{service}", _TXT, _IN, 10, text_of(signed(clock)), created)
        for name, created in (("old", now - 20_000), ("fresh", now))
    )
    bob.async_update_records(None, now, [RecordUpdate(old, old)])
    await wait_for_nothing()
    assert (watched.kinds(), heard) == ([], [])
    bob.async_update_records(None, now, [RecordUpdate(fresh, None)])
    await eventually(lambda: watched.kinds() == ["added"] and len(heard) == 1)


async def test_a_record_that_wants_to_live_for_ever_lives_an_hour(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """P-7."""
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    shout(f"long.{service}", text_of(signed(clock)), 2**31 - 1)
    await eventually(lambda: watched.kinds() == ["added"])
    assert watched.sightings[0].ttl == 3600


async def test_a_packet_that_crossed_a_router_is_dropped(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """L2."""
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    shout(f"far.{service}", text_of(signed(clock)), 10, hops=254)
    shout(f"near.{service}", text_of(signed(clock, B)), 10)
    await eventually(lambda: watched.kinds(B) == ["added"])
    assert watched.kinds(A) == []


async def test_a_question_that_crossed_a_router_is_not_answered(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """L2. A question that does not come from port 5353 is answered to its sender (RFC 6762 §6.7)."""
    alice = await make()
    assert (await alice.announce(signed(clock), 10)).accepted
    out = DNSOutgoing(0)
    out.add_question(DNSQuestion(service, _PTR, _IN))
    answered: dict[int, bytes] = {}
    for hops in (255, 254):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
            asking.setblocking(False)
            with suppress(TimeoutError):
                async with asyncio.timeout(60 if hops == 255 else 1):
                    asking.sendto(out.packets()[0], ("224.0.0.251", 5353))
                    answered[hops] = await asyncio.get_running_loop().sock_recv(asking, 9000)
    assert list(answered) == [255]
    assert service.partition(".")[0].encode() in answered[255]


async def test_rubbish_stops_nothing(make: Callable[..., Any], service: str, clock: ManualClock) -> None:
    """L3: lengths that lie, names that run in circles, packets that are cut off, records that do not add up."""
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    good = text_of(signed(clock))
    for text in (b"", b"\xff", good[:-1], b"\x05pv=v9", b"\x01{", bytes(1300)):
        shout(f"bad.{service}", text, 10)
    circle = b"\x00\x00\x84\x00\x00\x00\x00\x01\x00\x00\x00\x00\xc0\x0c\x00\x10\x00\x01\x00\x00\x00\x0a\xff\xff"
    for data in (b"", b"\x00" * 12, circle, circle[:15], b"\xff" * 8000, b"\xff" * 9500):
        shout_raw(data)
    shout(f"good.{service}", good, 10)
    await eventually(lambda: watched.kinds() == ["added"])


async def test_an_announcement_too_large_for_mdns_is_announced_by_url_and_fetched(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """L6, P-23."""
    message = signed(clock, metadata={"description": "d" * 2000})
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return dump_json(build_response(message))

    alice, bob = await make(pointer="https://registry.example/agents/{}".format), await make(fetch=fetch)
    watched = Watched()
    await bob.subscribe(watched)
    assert (await alice.announce(message, 10)).accepted
    await eventually(lambda: watched.kinds() == ["added"])
    assert signed_members(watched.sightings[0].message) == message
    assert asked == [f"https://registry.example/agents/{A}"]


async def test_a_pointer_to_another_key_or_agent_leads_nowhere(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    pointer = TxtPointer(A, "https://registry.example/x", key(A).public.key_id)
    answers = [dump_json(signed(clock, A, signer="mallory")), dump_json(signed(clock, B)), b"{", None]
    asked = asyncio.Event()

    async def fetch(url: str) -> bytes:
        answer = answers.pop(0)
        if not answers:
            asked.set()
        if answer is None:
            raise FetchFailed("nothing there", hint="Try again.")
        return answer

    bob = await make(fetch=fetch)
    watched = Watched()
    await bob.subscribe(watched)
    for number in range(4):
        shout(f"p{number}.{service}", write_txt_pointer(pointer), 10)
        await eventually(lambda left=3 - number: len(answers) == left)
        await wait_for_nothing(0.05)
    await asyncio.wait_for(asked.wait(), 60)
    await wait_for_nothing(0.2)
    assert watched.sightings == []


async def test_without_anything_to_point_at_a_large_announcement_is_refused(
    make: Callable[..., Any], clock: ManualClock
) -> None:
    alice = await make()
    ack = await alice.announce(signed(clock, metadata={"description": "d" * 2000}), 10)
    assert not ack.accepted
    assert "1300" in ack.reason


async def test_a_taken_name_stays_with_its_holder(
    make: Callable[..., Any], other: AsyncZeroconf, service: str, clock: ManualClock
) -> None:
    taken = f"{instance_label(A, 'data-processor', random.Random(1).getrandbits(16))}.{service}"
    info = ServiceInfo(service, taken, port=1, server="other.local.", properties=b"\x03x=y")
    await (await other.async_register_service(info, ttl=120))
    alice, bob = await make(random=random.Random(1)), await make()
    watched = Watched()
    await bob.subscribe(watched)
    assert (await alice.announce(signed(clock), 10)).accepted
    await eventually(lambda: watched.kinds() == ["added"])

    def names() -> set[str]:
        return {getattr(record, "alias", "") for record in other.zeroconf.cache.async_entries_with_name(service)}

    await eventually(lambda: len(names()) == 2)
    assert taken in names()


async def test_a_record_that_is_not_repeated_is_queried_before_it_expires(
    make: Callable[..., Any], other: AsyncZeroconf, service: str, clock: ManualClock
) -> None:
    """RFC 6762 §5.2: other tools answer, they do not repeat."""
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    info = ServiceInfo(service, f"quiet.{service}", port=1, server="q.local.", properties=text_of(signed(clock)))
    await (await other.async_register_service(info, ttl=10))
    await eventually(lambda: watched.kinds() == ["added"])
    for _ in range(3):
        await wait_for_nothing(1.1)  # it repeats itself no sooner
        clock.advance(8.5)
        await eventually(lambda: all(known.expires_at > clock.now() + 5 for known in bob._records.values()))
    assert watched.kinds() == ["added"]


async def test_records_expire_without_renewal(make: Callable[..., Any], clock: ManualClock) -> None:
    alice, bob = await make(), await make()
    await alice.announce(signed(clock), 10)
    assert len(await query_until_found(bob, AgentQuery(agent_id=A), {A}, 5.0)) == 1
    await wait_for_nothing(1.6)  # the first announcement and the answer to the question are on their way
    for _ in range(20):  # or still are, where the machine is busy
        clock.advance(11)
        await wait_for_nothing(0.8)
        if await bob.query(AgentQuery(agent_id=A), timeout=0.5) == []:
            return
    pytest.fail("it is there, and nobody renews it")


async def test_our_own_announcement_is_echoed(make: Callable[..., Any], clock: ManualClock) -> None:
    """P-30."""
    alice = await make()
    assert alice.echoed_at() is None
    await alice.announce(signed(clock), 10)
    await eventually(lambda: alice.echoed_at() == clock.now())


async def test_another_major_version_is_ignored_and_gets_ours_once_a_minute(
    make: Callable[..., Any], service: str, clock: ManualClock
) -> None:
    """ANN-50, P-32."""
    alice = await make()
    heard: list[JsonObject] = []

    async def hear(message: JsonObject, how: Any) -> None:
        heard.append(message)

    alice.serve(None, hear)
    shout(f"next.{service}", text_of({**signed(clock), "protocol_version": "v2.0"}), 10)
    shout(f"this.{service}", text_of({**signed(clock, B), "protocol_version": "v1.1"}), 10)
    await eventually(lambda: heard)
    assert [message["agent"]["agent_id"] for message in heard] == [B]


async def test_a_bare_document_in_a_record_is_read(make: Callable[..., Any], service: str, clock: ManualClock) -> None:
    """P-22."""
    bob = await make()
    watched = Watched()
    await bob.subscribe(watched)
    data = dump_json(signed(clock))
    parts = [data[at : at + 255] for at in range(0, len(data), 255)]
    shout(f"bare.{service}", b"".join(bytes((len(part),)) + part for part in parts), 10)
    await eventually(lambda: watched.kinds() == ["added"])
    assert watched.sightings[0].message == parse_message(data)
