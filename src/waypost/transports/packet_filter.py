"""Filters that the kernel runs on a socket (Linux, classic BPF): what they drop wakes nobody and costs the listener nothing.

It knows how such a program is written and put in place, not who should be dropped. On other systems there is none, and
whoever reads the socket drops by itself.
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
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import eq
from typing import Any, NamedTuple

from waypost import limits
from waypost.transports.flow_control import SourceStanding

log = logging.getLogger("waypost.transports")

_SO_ATTACH_FILTER, _SO_MEMINFO = 26, 55

_DROPS_AT = 8  # of what SO_MEMINFO tells: packets that the socket's filter or its full buffer kept out

_ALL, _NONE = 0xFFFFFFFF, 0

_NETWORK_HEADER, _RANDOM = 0xFFF00000, 0xFFFFF000 + 56

_SOURCE_PORT = 0  # a filter of a UDP socket sees the packet from its UDP header on

_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_KEPT, _KEEP = 0x20, 0x28, 0x30, 0x60, 0x02

_AND, _JUMP, _IF_EQUAL, _IF_GREATER, _RETURN = 0x54, 0x05, 0x15, 0x25, 0x06

_V4 = 0x40  # the first half byte of a packet

_HOPS_AT = {4: 8, 6: 7}

_SOURCE_END_AT = {4: 12, 6: 20}  # the last four bytes of the source

BpfInstruction = tuple[int, int, int, int]  # what to do, how far to jump if so and if not, with what


class PacketSource(NamedTuple):
    """Whose packets: of a host, or of one socket of it."""

    host: str
    port: int | None = None


@lru_cache(limits.ANSWER_SOURCES)  # it is asked for each packet
def source_of(address: tuple[Any, ...]) -> PacketSource:
    """Of what a socket tells: a machine is one source; of this one, every socket."""
    host = str(address[0]).removeprefix("::ffff:")  # how a socket of both kinds tells of IPv4
    return PacketSource(host, int(address[1])) if host.startswith("127.") else PacketSource(host)


def build_filter(
    *, hops: int | None = None, shares: Sequence[tuple[PacketSource, float]] = (), share: float = 1.0
) -> list[BpfInstruction]:
    """A program that lets in what arrives with so many `hops` left: of each source in `shares` that part, of all others
    `share`, by chance. Sources are told apart by the last four bytes of their address."""
    four, six = _head(4, hops), _head(6, hops)
    lines = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER), (_AND, 0, 0, 0xF0), (_IF_EQUAL, 0, len(four) + 1, _V4)]
    lines += [*four, (_JUMP, 0, 0, len(six)), *six, (_KEEP, 0, 0, 0)]
    for source, part in shares:
        lines += _of_source(source, part)
    return [*lines, *_by_chance(share)]


def _head(version: int, hops: int | None) -> list[BpfInstruction]:
    """Drop what came too far; else leave the end of the source's address."""
    checked: list[BpfInstruction] = []
    if hops is not None:
        checked = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER + _HOPS_AT[version])]
        checked += [(_IF_EQUAL, 1, 0, hops), (_RETURN, 0, 0, _NONE)]
    return [*checked, (_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_END_AT[version])]


def _of_source(source: PacketSource, part: float) -> Iterator[BpfInstruction]:
    let_in = _by_chance(part)
    port: list[BpfInstruction] = []
    if source.port is not None:
        port = [(_LOAD_HALF, 0, 0, _SOURCE_PORT), (_IF_EQUAL, 0, len(let_in), source.port)]
    end = int.from_bytes(ipaddress.ip_address(source.host.partition("%")[0]).packed[-4:])
    yield (_LOAD_KEPT, 0, 0, 0)
    yield (_IF_EQUAL, 0, len(port) + len(let_in), end)
    yield from port
    yield from let_in


def _by_chance(part: float) -> list[BpfInstruction]:
    if part >= 1:
        return [(_RETURN, 0, 0, _ALL)]
    if part <= 0:
        return [(_RETURN, 0, 0, _NONE)]
    drawn = (_LOAD_WORD, 0, 0, _RANDOM)
    return [drawn, (_IF_GREATER, 0, 1, int(part * _ALL)), (_RETURN, 0, 0, _NONE), (_RETURN, 0, 0, _ALL)]


def attach_filter(each: Any, lines: Sequence[BpfInstruction]) -> bool:
    """Put it in the place of the one before. Whether the system takes it."""
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    told = struct.pack("HP", len(lines), ctypes.addressof(program))
    try:
        each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, told)
    except OSError as error:  # whoever reads the socket checks again
        log.debug("no filter on a socket: %s", error)
        return False
    return True


def count_dropped(each: Any) -> int:
    """Packets that the kernel kept from the socket, as far as it tells."""
    if sys.platform != "linux":
        return 0
    try:
        told = each.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_DROPS_AT + 1))
    except OSError:
        return 0
    return int(struct.unpack_from("I", told, 4 * _DROPS_AT)[0]) if len(told) > 4 * _DROPS_AT else 0


# ---- Sources whose messages were believed, and since when: whom a flood of made-up addresses must not drown out.
#
# Whoever is believed for the first time in such a flood may be a part of it, so only those count that were believed some time
# before. Pure: the time is an argument.


class KnownSources:
    def __init__(self, most: int = limits.ANSWER_SOURCES) -> None:
        self._most = most
        self._since: OrderedDict[PacketSource, float] = OrderedDict()  # the last one that was believed at the end

    def __len__(self) -> int:
        return len(self._since)

    def add(self, source: PacketSource, now: float) -> None:
        self._since.setdefault(source, now)
        self._since.move_to_end(source)
        if len(self._since) > self._most:
            self._since.popitem(last=False)

    def before(self, now: float) -> frozenset[PacketSource]:
        """Those that were believed long enough before, as many as can be told apart for each packet."""
        latest = now - limits.KNOWN_SOURCE_AFTER_SECONDS
        found = [source for source, since in reversed(self._since.items()) if since <= latest]
        return frozenset(found[: limits.KNOWN_SOURCES])


# ---- A flood is thinned out by the kernel, source by source, so that reading it costs next to nothing.
#
# Whoever reads the sockets still decides what is let in, and says here what it had to drop. Of a source that sends far more than
# anybody has to say a part comes through, by chance: a few times as much as is let in of it, and what is dropped of
# the rest wakes nobody. A second after the end of a flood it is forgotten.
#
# Where the sources are too many to be true, all are thinned out alike, but for those that were believed before.

_WINDOW_SECONDS = 0.25

_LOUD = 200  # packets of a source that were dropped in a window

_LOUD_SOURCES = 32  # each is a comparison for every packet; of more at once all are thinned alike

_MARGIN = 4.0  # packets that come for each that is let in: some ten in a window, so that none is without one by chance

_STEADY = 1.5  # a share that changes by less is left: each change is a new program for the kernel

_LEAST_SHARE = 1e-4

_EASING = 4.0  # how fast a source that fell silent is listened to again, in each window

ForgetSources = Callable[[Callable[[PacketSource], bool]], object]  # what waits of sources that are meant


class PacketFilter:
    def __init__(
        self,
        sockets: Sequence[Any],
        forget: ForgetSources,
        *,
        hops: int | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`forget` is told whose packets are a flood. `hops`: what a packet must have left of them, where that is a rule.
        `now`: the time of the event loop, if not another."""
        self._now = now or asyncio.get_running_loop().time
        self._sockets = sockets
        self._forget = forget
        self._hops = hops
        self._dropped: Counter[PacketSource] = Counter()
        self._dropped_in_all = 0
        self._shares: dict[PacketSource, float] = {}
        self._since: dict[PacketSource, float] = {}  # when each of them was found to flood
        self._share = 1.0  # of everybody else
        self._believed = KnownSources()
        self._kept: frozenset[PacketSource] = frozenset()  # of those, whoever is not thinned out with everybody else
        self._thinned_since = -math.inf  # when everybody else was found to be too many
        self._began = 0.0
        self._window: asyncio.TimerHandle | None = None
        self._counted = 0  # by sockets that are closed
        self._is_in_place = self._put_in_place()

    def standing(self, source: PacketSource) -> SourceStanding:
        if source in self._shares:
            return SourceStanding.LOUD
        return SourceStanding.STRANGER if self._is_stranger(source) else SourceStanding.USUAL

    def sender(self, source: PacketSource) -> PacketSender:
        """Of a packet of this source that was let in just now."""
        return PacketSender(self, source, self._now())

    def is_flood(self, source: PacketSource, let_in_at: float) -> bool:
        """Whether the source was found to flood after it had been let in at that time."""
        found_at = self._since.get(source, self._thinned_since if self._is_stranger(source) else -math.inf)
        return let_in_at <= found_at

    def believe(self, source: PacketSource) -> None:
        if self._share == 1:  # in a flood of made-up sources some are believed for once
            self._believed.add(source, self._now())

    def drop(self, source: PacketSource) -> None:
        """A packet of this source was more than can be read."""
        if not self._is_in_place:
            return
        if self._window is None:
            self._begin_window()
        self._dropped_in_all += 1
        if source in self._dropped or len(self._dropped) < limits.ANSWER_SOURCES:
            self._dropped[source] += 1
        if self._dropped[source] == _LOUD and source not in self._shares:
            self._turn()

    def count(self) -> int:
        """Packets that the kernel dropped."""
        return self._counted + sum(count_dropped(each) for each in self._sockets)

    def close(self) -> None:
        """Before the sockets are: their numbers may be those of others afterwards."""
        self._end_window()
        self._counted, self._sockets, self._is_in_place = self.count(), (), False

    def _begin_window(self) -> None:
        self._dropped, self._dropped_in_all, self._began = Counter(), 0, self._now()
        self._window = asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._turn)

    def _end_window(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None

    def _turn(self) -> None:
        self._end_window()
        seconds = max(0.001, self._now() - self._began)
        before = (dict(self._shares), self._share)
        self._weigh(seconds)
        if before != (self._shares, self._share):
            self._is_in_place = self._put_in_place()
        if self._shares or self._share < 1:
            self._begin_window()

    def _weigh(self, seconds: float) -> None:
        others = self._dropped_in_all
        found = [source for source, count in self._dropped.items() if count >= _LOUD and source not in self._shares]
        for source in tuple(self._shares):
            others -= self._dropped[source]
            self._set(source, next_share(self._shares[source], self._dropped[source] / seconds))
        for source in found[: _LOUD_SOURCES - len(self._shares)]:
            others -= self._dropped[source]
            self._set(source, next_share(1.0, self._dropped[source] / seconds))
            self._since[source] = self._now()
            self._forget(partial(eq, source))
        if self._share < 1 or others >= _LOUD:
            self._thin_all(others / seconds)

    def _thin_all(self, dropped_per_second: float) -> None:
        before, let_in, enough = self._share, limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND, limits.PACKETS_PER_SECOND
        self._share = damp_share(before, next_share(before, dropped_per_second, let_in, enough))
        if before == 1 and self._share < 1:
            self._thinned_since = self._now()
            self._kept = self._believed.before(self._thinned_since)
            self._forget(self._is_stranger)

    def _is_stranger(self, source: PacketSource) -> bool:
        return self._share < 1 and source not in self._kept

    def _set(self, source: PacketSource, share: float) -> None:
        if share < 1:
            self._shares[source] = damp_share(self._shares.get(source, 1.0), share)
        else:
            self._shares.pop(source, None)
            self._since.pop(source, None)

    def _put_in_place(self) -> bool:
        shares = list(self._shares.items())
        if self._share < 1:
            shares += [(source, 1.0) for source in self._kept]
        lines = build_filter(hops=self._hops, shares=shares, share=self._share)
        return all(attach_filter(each, lines) for each in self._sockets)


class PacketSender:
    """Who sent a packet, from when it was let in."""

    __slots__ = ("_at", "_sieve", "_source")

    def __init__(self, sieve: PacketFilter, source: PacketSource, at: float) -> None:
        self._sieve, self._source, self._at = sieve, source, at

    def is_flood(self) -> bool:
        return self._sieve.is_flood(self._source, self._at)

    def believe(self) -> None:
        self._sieve.believe(self._source)


def damp_share(before: float, now: float) -> float:
    """The share that was in place, where the new one is about the same."""
    return before if now < 1 and before < 1 and before / _STEADY < now < before * _STEADY else now


def next_share(
    share: float,
    dropped_per_second: float,
    let_in: float = limits.NOISY_SOURCE_PACKETS_PER_SECOND,
    enough: float = limits.SOURCE_PACKETS_PER_SECOND,
) -> float:
    """What part of a source comes through from now on, when that part came through, `let_in` of it were read in a second,
    and so many were dropped all the same. 1: it sends no more than is `enough`."""
    if not dropped_per_second:
        return min(1.0, share * _EASING)
    sent_per_second = (dropped_per_second + let_in) / share
    if sent_per_second <= enough:
        return 1.0
    return min(1.0, max(_LEAST_SHARE, _MARGIN * let_in / sent_per_second))
