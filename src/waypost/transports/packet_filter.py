"""Flood protection in the kernel: a classic BPF program on the socket drops packets before they wake this process (Linux).

The readers of the sockets still decide which packets to admit, and report here what they drop. From a source that sends far
more than the limits, the program passes a random sample, a few times as much as is admitted. If too many sources send, e.g.
with spoofed addresses, it samples all of them, except those that were known before. A second after a flood the source is back
to normal. On other systems there is no filter, and the readers drop packets themselves.

Why in the kernel: THREATS L3 allows an HTTP p99 of twice the normal value under 20,000 packets/s. In eight runs of
`bench.announce --only flood` on two cores, the filter missed that once in 16 measurements (factor 0.6 to 1.8, once 2.3), at 6 to
8 % of a core. Without it, mDNS missed it in 7 of 8 (1.2 to 4.5) and UDP in 2 of 8 (1.2 to 4.2), at 20 to 35 % of a core.
"""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import logging
import math
import socket
import struct
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from functools import lru_cache, partial
from operator import eq
from typing import Any, NamedTuple

from waypost import limits
from waypost.rate_limit import RateLimiter, TokenBucket

# Token buckets that admit packets, and a queue that handles them in time slices: a thousand packets at once may be welcome or a
# flood. In both cases requests that arrive meanwhile must be served in between.


class SourceStanding(Enum):
    NORMAL = 1
    UNKNOWN = 2  # one of too many sources: their addresses must be spoofed
    FLOODING = 3


class PacketAdmission:
    """Which packets are admitted before they are parsed: limits for each source and for all of them.

    Sources that use up their own limit share half of the total; the other half is for sources that send little. While there
    are too many unknown sources, they share a small limit, and the rest is for sources that were known before.

    The time is that of the event loop, since this limits load; a test's clock does not apply.
    """

    def __init__(self) -> None:
        sources = limits.ANSWER_SOURCES
        self._per_source: RateLimiter[Hashable] = RateLimiter(
            limits.SOURCE_PACKETS_PER_SECOND, limits.SOURCE_PACKETS_BURST, max_keys=sources
        )
        noisy = limits.NOISY_SOURCE_PACKETS_PER_SECOND
        self._per_flooding_source: RateLimiter[Hashable] = RateLimiter(noisy, noisy, max_keys=sources)
        unknown = limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND
        self._unknown_total = TokenBucket(unknown, unknown)
        self._busy_total = TokenBucket(limits.PACKETS_PER_SECOND / 2, limits.PACKETS_BURST / 2)
        self._total = TokenBucket(limits.PACKETS_PER_SECOND, limits.PACKETS_BURST)

    def admits(self, source: Hashable, now: float, standing: SourceStanding = SourceStanding.NORMAL) -> bool:
        is_flooding = standing is SourceStanding.FLOODING
        limiter = self._per_flooding_source if is_flooding else self._per_source
        if not limiter.take(source, now):
            return False
        if standing is SourceStanding.UNKNOWN:
            return self._unknown_total.take(now)
        is_busy = is_flooding or limiter.available(source, now) < limits.SOURCE_PACKETS_BURST / 10
        return (not is_busy or self._busy_total.take(now)) and self._total.take(now)


class WorkQueue:
    """Runs queued work in short slices, with pauses in which the event loop serves requests."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures a slice; the time of an event loop may stand still meanwhile."""
        self._clock = clock
        self._queue: deque[tuple[Hashable, Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled: asyncio.Handle | None = None
        self._pause_seconds = limits.PACKET_WORK_PAUSE_SECONDS

    def __len__(self) -> int:
        return len(self._queue)

    def slow_down(self) -> None:
        """Pause longer from now on: a registry stores fewer announcements than can be parsed, and serves requests."""
        self._pause_seconds = limits.LAN_READ_PAUSE_SECONDS

    def has_room(self) -> bool:
        return len(self._queue) < limits.PACKET_QUEUE

    def add(self, source: Hashable, work: Callable[..., None], *arguments: Any) -> None:
        """Call `work` later. The event loop reports its exceptions."""
        self._queue.append((source, work, arguments))
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._run_slice)

    def discard(self, matches: Callable[[Any], bool]) -> int:
        """Remove the queued work of matching sources; returns how many items that were."""
        before = len(self._queue)
        self._queue = deque(item for item in self._queue if not matches(item[0]))
        return before - len(self._queue)

    def close(self) -> None:
        self._queue.clear()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _run_slice(self) -> None:
        # Scheduled first: an exception of one item must not stop the others.
        self._scheduled = asyncio.get_running_loop().call_later(self._pause_seconds, self._continue)
        ends_at = self._clock() + limits.PACKET_WORK_SLICE_SECONDS
        while self._queue:
            _, work, arguments = self._queue.popleft()
            work(*arguments)
            if self._clock() >= ends_at:
                return

    def _continue(self) -> None:
        self._scheduled = None
        if self._queue:
            self._run_slice()


log = logging.getLogger("waypost.transports")

_SO_ATTACH_FILTER, _SO_MEMINFO = 26, 55

_MEMINFO_DROPS = 8  # index in SO_MEMINFO: packets that the filter or a full buffer dropped

_PASS, _DROP = 0xFFFFFFFF, 0

_NETWORK_HEADER, _RANDOM = 0xFFF00000, 0xFFFFF000 + 56

_SOURCE_PORT = 0  # the filter of a UDP socket sees the packet from the UDP header on

_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_MEMORY, _STORE = 0x20, 0x28, 0x30, 0x60, 0x02

_AND, _JUMP, _IF_EQUAL, _IF_GREATER, _RETURN = 0x54, 0x05, 0x15, 0x25, 0x06

_IPV4 = 0x40  # the version field of an IP header

_HOP_LIMIT_OFFSET = {4: 8, 6: 7}

_SOURCE_OFFSET = {4: 12, 6: 20}  # of the last four bytes of the source address

_WINDOW_SECONDS = 0.25

_FLOOD_PACKETS = 200  # packets of a source that were dropped in a window

_FLOOD_SOURCES = 32  # each is a comparison for every packet; if there are more, all sources are sampled

_SAMPLE_MARGIN = (
    4.0  # packets that pass for each that is admitted: some ten in a window, so that chance leaves none without
)

_RATE_TOLERANCE = 1.5  # a rate that changes by less stays: each change is a new program for the kernel

_MINIMUM_RATE = 1e-4

_RECOVERY = 4.0  # factor of the rate of a silent source, in each window

BpfInstruction = tuple[int, int, int, int]  # opcode, jump if true, jump if false, operand

SourcePredicate = Callable[["PacketSource"], bool]


class PacketSource(NamedTuple):
    """A host, or one socket of it."""

    host: str
    port: int | None = None


@lru_cache(limits.ANSWER_SOURCES)  # called for each packet
def source_of(address: tuple[Any, ...]) -> PacketSource:
    """The source of a socket address: a machine; on this machine, each socket."""
    host = str(address[0]).removeprefix("::ffff:")  # the form of IPv4 addresses on dual-stack sockets
    return PacketSource(host, int(address[1])) if host.startswith("127.") else PacketSource(host)


def build_filter(
    *, hop_limit: int | None = None, rates: Sequence[tuple[PacketSource, float]] = (), default_rate: float = 1.0
) -> list[BpfInstruction]:
    """A program that passes packets with this hop limit, sampled by the rate of their source. Sources are compared by the last
    four bytes of their address."""
    ipv4, ipv6 = _load_source(4, hop_limit), _load_source(6, hop_limit)
    program = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER), (_AND, 0, 0, 0xF0), (_IF_EQUAL, 0, len(ipv4) + 1, _IPV4)]
    program += [*ipv4, (_JUMP, 0, 0, len(ipv6)), *ipv6, (_STORE, 0, 0, 0)]
    for source, rate in rates:
        program += _sample_source(source, rate)
    return [*program, *_sample(default_rate)]


def _load_source(version: int, hop_limit: int | None) -> list[BpfInstruction]:
    """Drop packets with another hop limit; else load the end of the source address."""
    check: list[BpfInstruction] = []
    if hop_limit is not None:
        check = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER + _HOP_LIMIT_OFFSET[version])]
        check += [(_IF_EQUAL, 1, 0, hop_limit), (_RETURN, 0, 0, _DROP)]
    return [*check, (_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_OFFSET[version])]


def _sample_source(source: PacketSource, rate: float) -> Iterator[BpfInstruction]:
    sample = _sample(rate)
    port: list[BpfInstruction] = []
    if source.port is not None:
        port = [(_LOAD_HALF, 0, 0, _SOURCE_PORT), (_IF_EQUAL, 0, len(sample), source.port)]
    address_end = int.from_bytes(ipaddress.ip_address(source.host.partition("%")[0]).packed[-4:])
    yield (_LOAD_MEMORY, 0, 0, 0)
    yield (_IF_EQUAL, 0, len(port) + len(sample), address_end)
    yield from port
    yield from sample


def _sample(rate: float) -> list[BpfInstruction]:
    if rate >= 1:
        return [(_RETURN, 0, 0, _PASS)]
    if rate <= 0:
        return [(_RETURN, 0, 0, _DROP)]
    random = (_LOAD_WORD, 0, 0, _RANDOM)
    return [random, (_IF_GREATER, 0, 1, int(rate * _PASS)), (_RETURN, 0, 0, _DROP), (_RETURN, 0, 0, _PASS)]


def attach_filter(sock: Any, program: Sequence[BpfInstruction]) -> bool:
    """Replace the filter of a socket. Returns whether the system supports it."""
    if sys.platform != "linux":
        return False
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    argument = struct.pack("HP", len(program), ctypes.addressof(code))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, argument)
    except OSError as error:  # the reader of the socket checks packets itself
        log.debug("cannot attach a packet filter: %s", error)
        return False
    return True


def count_dropped(sock: Any) -> int:
    """Packets that the kernel dropped, if it reports them."""
    if sys.platform != "linux":
        return 0
    try:
        meminfo = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_MEMINFO_DROPS + 1))
    except OSError:
        return 0
    return int(struct.unpack_from("I", meminfo, 4 * _MEMINFO_DROPS)[0]) if len(meminfo) > 4 * _MEMINFO_DROPS else 0


class KnownSources:
    """Sources of accepted messages, and since when: a flood from spoofed addresses must not drown them out.

    A source that is accepted for the first time during a flood may be part of it, so only older ones count.
    """

    def __init__(self, capacity: int = limits.ANSWER_SOURCES) -> None:
        self._capacity = capacity
        self._since: OrderedDict[PacketSource, float] = OrderedDict()  # least recently seen first

    def __len__(self) -> int:
        return len(self._since)

    def add(self, source: PacketSource, now: float) -> None:
        self._since.setdefault(source, now)
        self._since.move_to_end(source)
        if len(self._since) > self._capacity:
            self._since.popitem(last=False)

    def before(self, now: float) -> frozenset[PacketSource]:
        """The most recent sources that were known long enough before, up to the number that the filter can compare."""
        latest = now - limits.KNOWN_SOURCE_AFTER_SECONDS
        found = [source for source, since in reversed(self._since.items()) if since <= latest]
        return frozenset(found[: limits.KNOWN_SOURCES])


class PacketFilter:
    def __init__(
        self,
        sockets: Sequence[Any],
        discard: Callable[[SourcePredicate], object],
        *,
        hop_limit: int | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`discard` removes queued packets of flooding sources. `hop_limit`: required value of each packet, if any. `now`: the
        time of the event loop by default."""
        self._now = now or asyncio.get_running_loop().time
        self._sockets = sockets
        self._discard = discard
        self._hop_limit = hop_limit
        self._dropped: Counter[PacketSource] = Counter()
        self._dropped_total = 0
        self._rates: dict[PacketSource, float] = {}  # of flooding sources
        self._flooding_since: dict[PacketSource, float] = {}
        self._default_rate = 1.0
        self._known = KnownSources()
        self._exempt: frozenset[PacketSource] = frozenset()  # known sources that the default rate does not apply to
        self._sampling_since = -math.inf  # when the default rate fell below 1
        self._window_start = 0.0
        self._window: asyncio.TimerHandle | None = None
        self._dropped_before_close = 0
        self._is_attached = self._attach()

    def standing(self, source: PacketSource) -> SourceStanding:
        if source in self._rates:
            return SourceStanding.FLOODING
        return SourceStanding.UNKNOWN if self._is_unknown(source) else SourceStanding.NORMAL

    def sender(self, source: PacketSource) -> PacketSender:
        """The sender of a packet that was admitted just now."""
        return PacketSender(self, source, self._now())

    def is_flooding(self, source: PacketSource, admitted_at: float) -> bool:
        """Whether the source was found to flood after the packet was admitted."""
        unknown_since = self._sampling_since if self._is_unknown(source) else -math.inf
        return admitted_at <= self._flooding_since.get(source, unknown_since)

    def mark_known(self, source: PacketSource) -> None:
        if self._default_rate == 1:  # in a flood from spoofed addresses, some sources are accepted by chance
            self._known.add(source, self._now())

    def drop(self, source: PacketSource) -> None:
        """Count a packet that the reader dropped."""
        if not self._is_attached:
            return
        if self._window is None:
            self._start_window()
        self._dropped_total += 1
        if source in self._dropped or len(self._dropped) < limits.ANSWER_SOURCES:
            self._dropped[source] += 1
        if self._dropped[source] == _FLOOD_PACKETS and source not in self._rates:
            self._end_window()

    def count(self) -> int:
        """Packets that the kernel dropped."""
        return self._dropped_before_close + sum(map(count_dropped, self._sockets))

    def close(self) -> None:
        """Call before the sockets are closed: their descriptors may be reused afterwards."""
        self._cancel_window()
        self._dropped_before_close, self._sockets, self._is_attached = self.count(), (), False

    def _start_window(self) -> None:
        self._dropped, self._dropped_total, self._window_start = Counter(), 0, self._now()
        self._window = asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._end_window)

    def _cancel_window(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None

    def _end_window(self) -> None:
        self._cancel_window()
        seconds = max(0.001, self._now() - self._window_start)
        before = (dict(self._rates), self._default_rate)
        self._update_rates(seconds)
        if before != (self._rates, self._default_rate):
            self._is_attached = self._attach()
        if self._rates or self._default_rate < 1:
            self._start_window()

    def _update_rates(self, seconds: float) -> None:
        others = self._dropped_total
        new = [source for source, n in self._dropped.items() if n >= _FLOOD_PACKETS and source not in self._rates]
        for source in tuple(self._rates):
            others -= self._dropped[source]
            self._set_rate(source, next_rate(self._rates[source], self._dropped[source] / seconds))
        for source in new[: _FLOOD_SOURCES - len(self._rates)]:
            others -= self._dropped[source]
            self._set_rate(source, next_rate(1.0, self._dropped[source] / seconds))
            self._flooding_since[source] = self._now()
            self._discard(partial(eq, source))
        if self._default_rate < 1 or others >= _FLOOD_PACKETS:
            self._update_default_rate(others / seconds)

    def _update_default_rate(self, dropped_per_second: float) -> None:
        before, admitted, normal = (
            self._default_rate,
            limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND,
            limits.PACKETS_PER_SECOND,
        )
        self._default_rate = stabilize_rate(before, next_rate(before, dropped_per_second, admitted, normal))
        if before == 1 and self._default_rate < 1:
            self._sampling_since = self._now()
            self._exempt = self._known.before(self._sampling_since)
            self._discard(self._is_unknown)

    def _is_unknown(self, source: PacketSource) -> bool:
        return self._default_rate < 1 and source not in self._exempt

    def _set_rate(self, source: PacketSource, rate: float) -> None:
        if rate < 1:
            self._rates[source] = stabilize_rate(self._rates.get(source, 1.0), rate)
        else:
            self._rates.pop(source, None)
            self._flooding_since.pop(source, None)

    def _attach(self) -> bool:
        rates = list(self._rates.items())
        if self._default_rate < 1:
            rates += [(source, 1.0) for source in self._exempt]
        program = build_filter(hop_limit=self._hop_limit, rates=rates, default_rate=self._default_rate)
        return all(attach_filter(sock, program) for sock in self._sockets)


class PacketSender:
    """`MessageSender` of an admitted packet."""

    __slots__ = ("_admitted_at", "_filter", "_source")

    def __init__(self, packet_filter: PacketFilter, source: PacketSource, admitted_at: float) -> None:
        self._filter, self._source, self._admitted_at = packet_filter, source, admitted_at

    def is_flooding(self) -> bool:
        return self._filter.is_flooding(self._source, self._admitted_at)

    def mark_known(self) -> None:
        self._filter.mark_known(self._source)


def stabilize_rate(before: float, rate: float) -> float:
    """The rate before, if the new one is about the same."""
    is_similar = rate < 1 and before < 1 and before / _RATE_TOLERANCE < rate < before * _RATE_TOLERANCE
    return before if is_similar else rate


def next_rate(
    rate: float,
    dropped_per_second: float,
    admitted_per_second: float = limits.NOISY_SOURCE_PACKETS_PER_SECOND,
    normal_per_second: float = limits.SOURCE_PACKETS_PER_SECOND,
) -> float:
    """The next sampling rate of a source whose packets passed at `rate`: so many of them were admitted, and so many dropped.
    1 if it sends no more than is normal."""
    if not dropped_per_second:
        return min(1.0, rate * _RECOVERY)
    sent_per_second = (dropped_per_second + admitted_per_second) / rate
    if sent_per_second <= normal_per_second:
        return 1.0
    return min(1.0, max(_MINIMUM_RATE, _SAMPLE_MARGIN * admitted_per_second / sent_per_second))
