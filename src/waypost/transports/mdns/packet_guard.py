"""What stands between the multicast sockets and zeroconf: packets of neighbours alone, and not more than can be read.

A packet that crossed a router is none of mDNS (THREATS L2): the kernel drops what does not arrive with the TTL that it must have
been sent with (on Linux, by a filter on the socket), and the source must be on a link that was chosen. While a packet is
read, `source` and `sender` say whose it is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from zeroconf import Zeroconf

from waypost import limits
from waypost.transports.flow_control import PacketAdmission, SourceStanding, WorkQueue
from waypost.transports.interfaces import Interface
from waypost.transports.packet_filter import PacketFilter, PacketSource, source_of
from waypost.transports.port import UNKNOWN_SENDER, MessageSender

log = logging.getLogger("waypost.transports")

_HOPS = 255  # RFC 6762 §11
_FLAGS_AT = 2  # of the header of a DNS message; their first bit says that it is an answer
_BUFFER_BYTES = 4 << 20  # a thousand agents that answer one question; the system may grant less
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29  # Linux: not what other sockets of the machine joined


class PacketGuard:
    """Between the sockets and the reader: what is let in waits for its turn."""

    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.source = ""
        self.sender: MessageSender = UNKNOWN_SENDER
        self._refused = 0
        self._interfaces = interfaces
        self._is_neighbour = lru_cache(limits.ANSWER_SOURCES)(self._find_neighbour)
        self._doors = (
            PacketAdmission(),
            PacketAdmission(),
        )  # of questions, which are cheap, and of answers: neither keeps the other out
        self._turns = WorkQueue()
        self._sieve: PacketFilter | None = None
        self._asked = -1  # a socket, by which the state of links is asked for

    def is_cut(self) -> bool:
        """Whether no link carries: nothing that is sent would reach anybody."""
        return self._asked >= 0 and not any(interface.carries(self._asked) for interface in self._interfaces)

    def attach_to(self, zeroconf: Zeroconf) -> None:
        """Once its sockets are open."""
        sockets: list[Any] = []
        for reader, protocol in zip(zeroconf.engine.readers, zeroconf.engine.protocols, strict=True):
            sockets.append(reader.transport.get_extra_info("socket"))
            restrict_socket(sockets[-1])
            self._asked = sockets[-1].fileno()
            reader.transport.set_protocol(_GuardedProtocol(self, protocol))
        self._sieve = PacketFilter(sockets, self._forget, hops=_HOPS)

    def give_way(self) -> None:
        """To requests: somebody else waits for the event loop."""
        self._turns.give_way()

    def detach(self) -> None:
        """Before its sockets are closed."""
        self._asked = -1
        self._turns.close()
        if self._sieve is not None:
            self._sieve.close()

    def refused(self) -> int:
        """Packets that were dropped unread, here or by the kernel."""
        return self._refused + (self._sieve.count() if self._sieve is not None else 0)

    def lets_in(self, source: PacketSource, data: bytes) -> bool:
        door = self._doors[len(data) > _FLAGS_AT and data[_FLAGS_AT] >> 7]
        standing = self._sieve.standing(source) if self._sieve is not None else SourceStanding.USUAL
        if (
            self._turns.have_room()
            and self._is_neighbour(source.host)
            and door.lets_in(source, asyncio.get_running_loop().time(), standing)
        ):
            return True
        self._refused += 1
        if self._sieve is not None:
            self._sieve.drop(source)
        return False

    def queue(self, reader: _GuardedProtocol, source: PacketSource, data: bytes, address: tuple[Any, ...]) -> None:
        """To be read in its turn."""
        self._turns.add(source, self._read, reader, source, data, address)

    def _forget(self, is_meant: Callable[[PacketSource], bool]) -> None:
        self._refused += self._turns.forget(is_meant)

    def _read(self, reader: _GuardedProtocol, source: PacketSource, data: bytes, address: tuple[Any, ...]) -> None:
        self.source = source.host
        if self._sieve is not None:
            self.sender = self._sieve.sender(source)
        try:
            reader.read(data, address)
        finally:
            self.source, self.sender = "", UNKNOWN_SENDER

    def _find_neighbour(self, address: str) -> bool:
        return any(interface.is_on_link(address) for interface in self._interfaces)


class _GuardedProtocol(asyncio.DatagramProtocol):
    """In front of one of zeroconf's listeners."""

    def __init__(self, guard: PacketGuard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        source = source_of(addr)
        if self._guard.lets_in(source, data):
            self._guard.queue(self, source, data, addr)

    def read(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if self._inner.transport is not None:  # it may have been closed meanwhile
            self._inner.datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        self._inner.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


def restrict_socket(each: Any) -> None:
    """Only what was sent to groups that this socket joined; and we send with a TTL of 255."""
    _set(each, socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    _set(each, socket.IPPROTO_IP, socket.IP_TTL, _HOPS)
    if each.family == socket.AF_INET6:
        _set(each, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _HOPS)
    if sys.platform != "linux":
        return
    _set(each, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    if each.family == socket.AF_INET6:
        _set(each, socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)


def _set(each: Any, level: int, option: int, value: int | bytes) -> None:
    try:
        each.setsockopt(level, option, value)
    except OSError as error:  # an older system; the check of sources stands alone
        log.debug("mdns: option %s of a socket cannot be set: %s", option, error)
