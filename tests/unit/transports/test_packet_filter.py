"""The kernel packet filter, with real sockets on the loopback interface."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from support.transports import PATIENCE_SECONDS, eventually
from waypost import limits
from waypost.transports.packet_filter import (
    BpfInstruction,
    PacketFilter,
    PacketSource,
    SourceStanding,
    attach_filter,
    build_filter,
    count_dropped,
    next_rate,
    source_of,
    stabilize_rate,
)

Made = Callable[..., socket.socket]
LOUD = 200

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux filters sockets")


@pytest.fixture
def made() -> Iterator[Made]:
    opened: list[socket.socket] = []

    def make(host: str = "127.0.0.1") -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        opened.append(socket.socket(family, socket.SOCK_DGRAM))
        opened[-1].bind((host, 0))
        opened[-1].setblocking(False)
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def come(listener: socket.socket, *senders: socket.socket, each: int = 20) -> dict[str, int]:
    """The number of datagrams that arrive from each sender, after a wait for a busy system; the kernel has counted the rest."""
    come_in = {str(sender.getsockname()[:2]): 0 for sender in senders}
    before, deadline = count_dropped(listener), time.monotonic() + PATIENCE_SECONDS
    for sender in senders:
        for _ in range(each):
            sender.sendto(b"x", listener.getsockname())
    while sum(come_in.values()) + count_dropped(listener) - before < each * len(senders):
        assert time.monotonic() < deadline, come_in
        if select.select([listener], [], [], 0.01)[0]:
            come_in[str(listener.recvfrom(10)[1][:2])] += 1
    return come_in


def counts(listener: socket.socket, lines: list[BpfInstruction], *senders: socket.socket) -> list[int]:
    assert attach_filter(listener, lines)
    return list(come(listener, *senders).values())


def test_one_host_or_one_socket_is_kept_out_and_the_others_are_not(made: Made) -> None:
    listener, one, two, other = made(), made(), made(), made("127.0.0.9")
    assert counts(listener, build_filter(), one, two, other) == [20, 20, 20]
    socket_alone = [(PacketSource("127.0.0.1", one.getsockname()[1]), 0.0)]
    assert counts(listener, build_filter(rates=socket_alone), one, two, other) == [0, 20, 20]
    assert counts(listener, build_filter(rates=[(PacketSource("127.0.0.1"), 0.0)]), one, two, other) == [0, 0, 20]
    assert counts(listener, build_filter(rates=[(PacketSource("127.0.0.9"), 1.0)], default_rate=0.0), one, other) == [
        0,
        20,
    ]


def test_an_ipv6_host_is_filtered_too(made: Made) -> None:
    try:
        listener, one = made("::1"), made("::1")
    except OSError:
        pytest.skip("no IPv6 here")
    assert counts(listener, build_filter(), one) == [20]
    assert counts(listener, build_filter(rates=[(PacketSource("::1"), 0.0)]), one) == [0]


def test_packets_with_a_lower_hop_limit_are_dropped(made: Made) -> None:
    """L2."""
    listener, near, far = made(), made(), made()
    near.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
    far.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 254)
    assert counts(listener, build_filter(hop_limit=255), near, far) == [20, 0]


def test_a_part_comes_through_by_chance_and_the_kernel_counts_the_rest(made: Made) -> None:
    listener, sender = made(), made()
    before = count_dropped(listener)
    assert attach_filter(listener, build_filter(default_rate=0.25))
    arrived = sum(sum(come(listener, sender, each=100).values()) for _ in range(40))
    assert 700 < arrived < 1300  # of 4,000: ten standard deviations around a quarter
    assert count_dropped(listener) - before == 4000 - arrived


def test_a_source_is_a_machine_and_on_this_one_a_socket() -> None:
    assert source_of(("192.0.2.7", 5353)) == PacketSource("192.0.2.7")
    assert source_of(("::ffff:192.0.2.7", 5353, 0, 0)) == PacketSource("192.0.2.7")
    assert source_of(("127.0.0.1", 49353)) == PacketSource("127.0.0.1", 49353)
    assert source_of(("fe80::1%eth0", 5353, 0, 2)) == PacketSource("fe80::1%eth0")


async def test_a_flood_is_detected_and_expires_without_blocking_other_sources(made: Made) -> None:
    """L3."""
    listener, flooding, honest = made(), made(), made()
    source, told = source_of(flooding.getsockname()), list[Callable[[PacketSource], bool]]()
    sieve = PacketFilter([listener], told.append)
    for _ in range(LOUD):
        assert sieve.standing(source) is SourceStanding.NORMAL
        sieve.drop(source)
    assert sieve.standing(source) is SourceStanding.FLOODING
    assert [(is_meant(source), is_meant(source_of(honest.getsockname()))) for is_meant in told] == [(True, False)]
    assert list(come(listener, flooding, honest, each=100).values())[1] == 100
    assert sieve.count() > 0
    await eventually(lambda: sieve.standing(source) is SourceStanding.NORMAL)
    assert list(come(listener, flooding, each=20).values()) == [20]
    sieve.close()


async def test_many_sources_at_once_are_thinned_out_together(made: Made) -> None:
    """L3. As when one machine makes up the addresses of others."""
    listener, sender = made(), made()
    sieve = PacketFilter([listener], lambda source: None)
    for number in range(LOUD):
        sieve.drop(PacketSource(f"10.0.{number // 250}.{number % 250}"))

    def is_thinned() -> bool:
        return sum(come(listener, sender, each=50).values()) < 50

    await eventually(is_thinned)
    sieve.close()


async def test_known_sources_are_not_dropped_with_spoofed_ones(made: Made) -> None:
    """L3. A source that became known only during the flood is dropped: it may belong to it."""
    listener, honest, late = made(), made(), made()
    time_now = 100.0
    sieve = PacketFilter([listener], lambda source: None, now=lambda: time_now)
    early_sender = sieve.sender(source_of(honest.getsockname()))
    early_sender.mark_known()
    time_now += limits.KNOWN_SOURCE_AFTER_SECONDS
    late_sender = sieve.sender(source_of(late.getsockname()))
    late_sender.mark_known()
    time_now += 0.01
    for number in range(LOUD * 100):
        sieve.drop(PacketSource(f"10.{number // 62_500}.{number // 250 % 250}.{number % 250}"))
    assert sieve.standing(source_of(late.getsockname())) is SourceStanding.NORMAL
    await eventually(lambda: sieve.standing(source_of(late.getsockname())) is SourceStanding.UNKNOWN)
    assert sieve.standing(source_of(honest.getsockname())) is SourceStanding.NORMAL
    assert (early_sender.is_flooding(), late_sender.is_flooding()) == (False, True)
    assert list(come(listener, honest, each=100).values()) == [100]
    assert sum(come(listener, late, each=100).values()) < 100
    sieve.close()


async def test_packets_admitted_before_their_source_flooded_are_recognised(made: Made) -> None:
    """L3."""
    time_now, source = 100.0, PacketSource("10.0.0.1")
    sieve = PacketFilter([made()], lambda source: None, now=lambda: time_now)
    before, other = sieve.sender(source), sieve.sender(PacketSource("10.0.0.2"))
    assert not before.is_flooding()
    for _ in range(LOUD):
        sieve.drop(source)
    time_now += 1
    assert (before.is_flooding(), other.is_flooding(), sieve.sender(source).is_flooding()) == (True, False, False)
    sieve.close()


async def test_a_closed_sieve_touches_no_socket(made: Made) -> None:
    listener = made()
    sieve = PacketFilter([listener], lambda source: None)
    sieve.drop(PacketSource("10.0.0.1"))
    counted = sieve.count()
    sieve.close()
    listener.close()
    sieve.drop(PacketSource("10.0.0.1"))
    await asyncio.sleep(0)
    assert sieve.count() == counted


@pytest.mark.parametrize(
    ("share", "dropped_per_second", "expected"),
    [
        (
            1.0,
            19_990.0,
            4 * limits.NOISY_SOURCE_PACKETS_PER_SECOND / 20_000,
        ),  # a flood: a few times the admitted rate
        (0.002, 30.0, 0.002),  # it goes on: nothing changes
        (0.005, 0.0, 0.02),  # it is over: more is listened to, step by step
        (0.5, 0.0, 1.0),
        (0.25, 50.0, 1.0),  # at most the rate of one machine
        (1.0, 1e9, 1e-4),
    ],
)
def test_the_rate_of_a_source_follows_its_dropped_packets(
    share: float, dropped_per_second: float, expected: float
) -> None:
    assert next_rate(share, dropped_per_second) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(0.010, 0.012, 0.010), (0.010, 0.020, 0.020), (0.010, 0.001, 0.001), (0.9, 1.0, 1.0), (1.0, 0.9, 0.9)],
)
def test_a_share_that_is_about_the_same_is_left_and_the_end_of_a_flood_is_not(
    before: float, now: float, expected: float
) -> None:
    assert stabilize_rate(before, now) == expected
