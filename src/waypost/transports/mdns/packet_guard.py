"""Packet admission between the multicast sockets and zeroconf: packets from the link only, and no more than can be handled.

mDNS packets never cross a router (THREATS L2): the kernel filter drops those without the required hop limit (Linux), and the
source must be on one of the links. While zeroconf handles a packet, `source` and `sender` identify its sender.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from zeroconf import Zeroconf

from waypost import limits
from waypost.transports.interfaces import Interface
from waypost.transports.packet_filter import (
    PacketAdmission,
    PacketFilter,
    PacketSource,
    SourcePredicate,
    SourceStanding,
    WorkQueue,
    source_of,
)
from waypost.transports.port import UNKNOWN_SENDER, MessageSender

log = logging.getLogger("waypost.transports")

_HOP_LIMIT = 255  # RFC 6762 §11
_FLAGS_OFFSET = 2  # in a DNS header; the first bit is set in responses
_BUFFER_BYTES = 4 << 20  # for a thousand agents that answer one query; the system may grant less
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29  # Linux: 0 ignores groups that only other sockets joined


class PacketGuard:
    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.source = ""
        self.sender: MessageSender = UNKNOWN_SENDER
        self._dropped = 0
        self._interfaces = interfaces
        self._is_on_link = lru_cache(limits.ANSWER_SOURCES)(self._find_link)
        self._query_admission, self._response_admission = PacketAdmission(), PacketAdmission()
        self._queue = WorkQueue()
        self._filter: PacketFilter | None = None
        self._descriptor = -1  # of any socket, to read the state of links

    def is_link_down(self) -> bool:
        return self._descriptor >= 0 and not any(each.is_up(self._descriptor) for each in self._interfaces)

    def attach_to(self, zeroconf: Zeroconf) -> None:
        """Call once the sockets are open."""
        sockets: list[Any] = []
        for reader, protocol in zip(zeroconf.engine.readers, zeroconf.engine.protocols, strict=True):
            sockets.append(reader.transport.get_extra_info("socket"))
            restrict_socket(sockets[-1])
            self._descriptor = sockets[-1].fileno()
            reader.transport.set_protocol(_GuardedProtocol(self, protocol))
        self._filter = PacketFilter(sockets, self._discard, hop_limit=_HOP_LIMIT)

    def slow_down(self) -> None:
        self._queue.slow_down()

    def detach(self) -> None:
        """Call before the sockets are closed."""
        self._descriptor = -1
        self._queue.close()
        if self._filter is not None:
            self._filter.close()

    def dropped(self) -> int:
        """Packets that were dropped here or by the kernel."""
        return self._dropped + (self._filter.count() if self._filter is not None else 0)

    def admits(self, source: PacketSource, data: bytes) -> bool:
        is_response = len(data) > _FLAGS_OFFSET and data[_FLAGS_OFFSET] >> 7
        admission = (
            self._response_admission if is_response else self._query_admission
        )  # neither may crowd out the other
        standing = self._filter.standing(source) if self._filter is not None else SourceStanding.NORMAL
        if (
            self._queue.has_room()
            and self._is_on_link(source.host)
            and admission.admits(source, asyncio.get_running_loop().time(), standing)
        ):
            return True
        self._dropped += 1
        if self._filter is not None:
            self._filter.drop(source)
        return False

    def queue(self, reader: _GuardedProtocol, source: PacketSource, data: bytes, address: tuple[Any, ...]) -> None:
        self._queue.add(source, self._read, reader, source, data, address)

    def _discard(self, matches: SourcePredicate) -> None:
        self._dropped += self._queue.discard(matches)

    def _read(self, reader: _GuardedProtocol, source: PacketSource, data: bytes, address: tuple[Any, ...]) -> None:
        self.source = source.host
        if self._filter is not None:
            self.sender = self._filter.sender(source)
        try:
            reader.read(data, address)
        finally:
            self.source, self.sender = "", UNKNOWN_SENDER

    def _find_link(self, address: str) -> bool:
        return any(interface.is_on_link(address) for interface in self._interfaces)


class _GuardedProtocol(asyncio.DatagramProtocol):
    """In front of a listener of zeroconf."""

    def __init__(self, guard: PacketGuard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        source = source_of(addr)
        if self._guard.admits(source, data):
            self._guard.queue(self, source, data, addr)

    def read(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if self._inner.transport is not None:  # it may have been closed in the meantime
            self._inner.datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        self._inner.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


def restrict_socket(sock: Any) -> None:
    """Receive only groups that this socket joined, and send with the required hop limit."""
    _set(sock, socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    _set(sock, socket.IPPROTO_IP, socket.IP_TTL, _HOP_LIMIT)
    if sock.family == socket.AF_INET6:
        _set(sock, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _HOP_LIMIT)
    if sys.platform != "linux":
        return
    _set(sock, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    if sock.family == socket.AF_INET6:
        _set(sock, socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)


def _set(sock: Any, level: int, option: int, value: int | bytes) -> None:
    try:
        sock.setsockopt(level, option, value)
    except OSError as error:  # an older system: the source check alone applies
        log.debug("mdns: cannot set socket option %s: %s", option, error)
