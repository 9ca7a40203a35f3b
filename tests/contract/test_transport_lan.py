"""Transports between hosts: network namespaces joined by a bridge, one end in each."""

from __future__ import annotations

import random
import secrets
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from support.netns import INTERFACE, Lan, lan, left_over
from support.transports import (
    PATIENCE_SECONDS,
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
from waypost.model.json import dump_json
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.mdns.transport import MdnsTransport
from waypost.transports.port import Transport
from waypost.transports.udp import PORT, UdpTransport

Make = Callable[[str], Transport]


@pytest.fixture
def net() -> Iterator[Lan]:
    with lan(3) as made:
        yield made


def _makers(clock: ManualClock) -> dict[str, Make]:
    service = f"_wp-{secrets.token_hex(4)}._tcp.local."
    return {
        "udp": lambda name: UdpTransport([INTERFACE], clock, random=random.Random(name)),
        "udp-v6": lambda name: UdpTransport(
            [INTERFACE], clock, broadcast_address="10.77.0.250", ipv6=True, random=random.Random(name)
        ),  # no host has that address: only IPv6 works
        "udp-limited": lambda name: UdpTransport(
            [INTERFACE], clock, broadcast_address="255.255.255.255", random=random.Random(name)
        ),
        "mdns": lambda name: MdnsTransport([INTERFACE], clock, service=service, random=random.Random(name)),
        "mdns-v4": lambda name: MdnsTransport([INTERFACE], clock, service=service, ipv6=False),
    }


class Hosts(Bed):
    """Each name is an end on the next host."""

    def __init__(self, net: Lan, clock: ManualClock, make: Make) -> None:
        super().__init__(clock, make)
        self._net = net
        self._next = 0

    async def open(self, name: str) -> Transport:
        with self._net.entered(self._next):
            self._next += 1
            return await super().open(name)


@pytest.fixture(params=["mdns", "mdns-v4", "udp", "udp-limited", "udp-v6"])
async def hosts(request: pytest.FixtureRequest, net: Lan) -> AsyncIterator[Hosts]:
    clock = ManualClock(time.time())
    bed = Hosts(net, clock, _makers(clock)[request.param])
    try:
        yield bed
    finally:
        await bed.close()


async def test_an_agent_is_seen_on_another_host_and_found_there(hosts: Hosts) -> None:
    alice, bob = await hosts.open("alice"), await hosts.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    message = hosts.message()
    assert (await alice.announce(message, 30)).accepted
    await eventually(lambda: watched.kinds() == ["added"])
    assert signed_members(watched.sightings[0].message) == message
    assert watched.sightings[0].source.startswith(("10.77.0.1", "fe80::1", "[fe80::1]"))
    assert [signed_members(found) for found in await query_until_found(bob, AgentQuery(agent_id=A), {A}, 5.0)] == [
        message
    ]


async def test_a_message_larger_than_a_datagram_crosses_the_link_whole(hosts: Hosts) -> None:
    alice, bob = await hosts.open("alice"), await hosts.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    message = hosts.message(metadata={"description": "d" * 550})
    await alice.announce(message, 30)
    await eventually(lambda: watched.kinds() == ["added"])
    assert signed_members(watched.sightings[0].message) == message


async def test_an_agent_whose_cable_is_cut_is_gone_after_its_ttl(hosts: Hosts, net: Lan) -> None:
    alice, bob = await hosts.open("alice"), await hosts.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(hosts.message(), 10)
    await eventually(lambda: watched.kinds() == ["added"])
    net.cut(0)
    await eventually_refused(alice, hosts)
    hosts.clock.advance(9)
    await wait_for_nothing(0.4)
    assert watched.kinds() == ["added"]
    hosts.clock.advance(2)
    await eventually(lambda: watched.kinds() == ["added", "expired"])
    net.heal(0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (await alice.announce(hosts.message(), 10)).accepted:
        assert time.monotonic() < deadline, "the link is back"
    await eventually(lambda: watched.kinds()[:3] == ["added", "expired", "added"])


async def eventually_refused(end: Transport, hosts: Hosts) -> None:
    """A cut connection is reported to the announcer, once the system has noticed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (await end.announce(hosts.message(), 10)).accepted:
        assert time.monotonic() < deadline, "the link is down"
        await wait_for_nothing(0.05)


async def test_a_spoofer_on_the_link_replaces_no_agent(hosts: Hosts) -> None:
    """L1."""
    alice, bob, mallory = await hosts.open("alice"), await hosts.open("bob"), await hosts.open("mallory")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(hosts.message(), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    await mallory.announce(signed(hosts.clock, signer="mallory"), 30)
    await mallory.announce(hosts.message(B), 30)
    await eventually(lambda: watched.kinds(B) == ["added"])
    assert watched.kinds() == ["added"]


async def test_a_packet_from_outside_the_link_is_ignored(net: Lan) -> None:
    """L2."""
    clock = ManualClock(time.time())
    bob = _makers(clock)["udp"]("bob")
    watched = Watched()
    with net.entered(0):
        await bob.open()
        await bob.subscribe(watched)
    with net.entered(1), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        subprocess.run(net.command(1, "ip", "address", "add", "10.99.0.9/32", "dev", INTERFACE), check=True)
        sender.bind(("10.99.0.9", 0))
        sender.sendto(dump_json(signed(clock)), ("10.77.0.255", PORT))
    with net.entered(1), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.sendto(dump_json(signed(clock, B)), ("10.77.0.255", PORT))
    await eventually(lambda: watched.kinds(B) == ["added"])
    assert watched.kinds(A) == []
    await bob.close()


async def test_a_dual_stack_host_receives_from_an_ipv4_only_host(net: Lan) -> None:
    clock = ManualClock(time.time())
    makers = _makers(clock)
    old, new = makers["mdns-v4"]("old"), makers["mdns"]("new")
    for host, end in enumerate((old, new)):
        with net.entered(host):
            await end.open()
    watched = Watched()
    await new.subscribe(watched)
    await old.announce(signed(clock), 10)
    await eventually(lambda: watched.kinds() == ["added"])
    assert watched.sightings[0].source == "10.77.0.1"
    await old.close()
    await new.close()


def test_the_namespaces_are_removed() -> None:
    with lan(1) as made:
        names = (*made.hosts, made.hub)
        assert left_over(names) == list(names)
    assert left_over(names) == []
