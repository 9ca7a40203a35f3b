"""What stands between the multicast sockets and zeroconf: packets of neighbours alone, and not more than can be read.

A packet that crossed a router is none of mDNS (THREATS L2): the kernel drops what does not arrive with the TTL that it must have
been sent with (on Linux, by a filter on the socket), and the source must be on a link that was chosen. While a packet is
read, `source` says whose it is.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from zeroconf import Zeroconf

from waypost import limits
from waypost.transports.interfaces import Interface
from waypost.transports.pace import Door

log = logging.getLogger("waypost.transports")

_HOPS = 255  # RFC 6762 §11
_FLAGS_AT = 2  # of the header of a DNS message; their first bit says that it is an answer
_BUFFER_BYTES = 4 << 20  # a thousand agents that answer one question; the system may grant less
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29  # Linux: not what other sockets of the machine joined
_SO_ATTACH_FILTER = 26

# A filter of the kernel, read as: of IPv4 the byte 8 of the header, else the byte 7, is 255, or the packet is dropped.
_NETWORK_HEADER = 0xFFF00000
_LOAD_BYTE, _AND, _JUMP_IF_EQUAL, _JUMP, _RETURN = 0x30, 0x54, 0x15, 0x05, 0x06
_FILTER = (
    (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
    (_AND, 0, 0, 0xF0),
    (_JUMP_IF_EQUAL, 0, 2, 0x40),
    (_LOAD_BYTE, 0, 0, _NETWORK_HEADER + 8),
    (_JUMP, 0, 0, 1),
    (_LOAD_BYTE, 0, 0, _NETWORK_HEADER + 7),
    (_JUMP_IF_EQUAL, 0, 1, _HOPS),
    (_RETURN, 0, 0, 0xFFFFFFFF),
    (_RETURN, 0, 0, 0),
)


class Guard:
    """Between the sockets and the reader: what is let in waits for its turn, a few packets in each turn of the event loop."""

    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.source = ""
        self.refused = 0  # packets that were dropped unread
        self._interfaces = interfaces
        self._is_neighbour = lru_cache(limits.ANSWER_SOURCES)(self._find_neighbour)
        self._doors = (Door(), Door())  # of questions, which are cheap, and of answers: neither keeps the other out
        self._waiting: deque[tuple[_Guarded, str, bytes, tuple[Any, ...]]] = deque()
        self._asked = -1  # a socket, by which the state of links is asked for

    def is_cut(self) -> bool:
        """Whether no link carries: nothing that is sent would reach anybody."""
        return self._asked >= 0 and not any(interface.carries(self._asked) for interface in self._interfaces)

    def stand_before(self, zeroconf: Zeroconf) -> None:
        """Once its sockets are open."""
        for reader, protocol in zip(zeroconf.engine.readers, zeroconf.engine.protocols, strict=True):
            narrow(reader.transport.get_extra_info("socket"))
            self._asked = reader.transport.get_extra_info("socket").fileno()
            reader.transport.set_protocol(_Guarded(self, protocol))

    def lets_in(self, address: str, data: bytes) -> bool:
        door = self._doors[len(data) > _FLAGS_AT and data[_FLAGS_AT] >> 7]
        if (
            len(self._waiting) < limits.HEARD_WAITING
            and self._is_neighbour(address)
            and door.lets_in(address, asyncio.get_running_loop().time())
        ):
            return True
        self.refused += 1
        return False

    def queue(self, reader: _Guarded, source: str, data: bytes, address: tuple[Any, ...]) -> None:
        """To be read in its turn."""
        self._waiting.append((reader, source, data, address))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._read_some)

    def _read_some(self) -> None:
        for _ in range(min(limits.HEARD_AT_ONCE, len(self._waiting))):
            reader, self.source, data, address = self._waiting[0]
            try:
                reader.read(data, address)
            finally:
                self.source = ""
                self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._read_some)

    def _find_neighbour(self, address: str) -> bool:
        return any(interface.is_on_link(address) for interface in self._interfaces)


class _Guarded(asyncio.DatagramProtocol):
    """In front of one of zeroconf's listeners."""

    def __init__(self, guard: Guard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        source = addr[0].removeprefix("::ffff:")  # how a socket of both kinds tells of IPv4
        if self._guard.lets_in(source, data):
            self._guard.queue(self, source, data, addr)

    def read(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if self._inner.transport is not None:  # it may have been closed meanwhile
            self._inner.datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        self._inner.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


def narrow(each: Any) -> None:
    """Only what was sent with a TTL of 255, to groups that this socket joined; and so do we send."""
    _set(each, socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    _set(each, socket.IPPROTO_IP, socket.IP_TTL, _HOPS)
    if each.family == socket.AF_INET6:
        _set(each, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _HOPS)
    if sys.platform != "linux":
        return
    _set(each, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    if each.family == socket.AF_INET6:
        _set(each, socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in _FILTER))
    _set(each, socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_FILTER), ctypes.addressof(program)))


def _set(each: Any, level: int, option: int, value: int | bytes) -> None:
    try:
        each.setsockopt(level, option, value)
    except OSError as error:  # an older system; the check of sources stands alone
        log.debug("mdns: option %s of a socket cannot be set: %s", option, error)
