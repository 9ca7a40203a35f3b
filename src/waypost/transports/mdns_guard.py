"""What stands between the multicast sockets and zeroconf: packets of neighbours alone, and not more than can be read.

A packet that crossed a router is none of mDNS (THREATS L2): the kernel drops what does not arrive with the TTL that it must have
been sent with, and the source must be on a link that was chosen. While a packet is read, `source` says whose it is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from zeroconf import Zeroconf

from waypost.transports.interfaces import Interface
from waypost.transports.pace import Door
from waypost.transports.port import Clock

_HOPS = 255  # RFC 6762 §11
# Linux; elsewhere the check of sources stands alone.
_IP_MINTTL, _IP_MULTICAST_ALL = 21, 49
_IPV6_MINHOPCOUNT, _IPV6_MULTICAST_ALL = 73, 29


class Guard:
    def __init__(self, interfaces: Sequence[Interface], clock: Clock) -> None:
        self.source = ""
        self._interfaces = interfaces
        self._clock = clock
        self._door = Door()

    def stand_before(self, zeroconf: Zeroconf) -> None:
        """Once its sockets are open."""
        for reader, protocol in zip(zeroconf.engine.readers, zeroconf.engine.protocols, strict=True):
            narrow(reader.transport.get_extra_info("socket"))
            reader.transport.set_protocol(_Guarded(self, protocol))

    def lets_in(self, address: str) -> bool:
        if not any(interface.is_on_link(address) for interface in self._interfaces):
            return False
        return self._door.lets_in(address, self._clock.now())


class _Guarded(asyncio.DatagramProtocol):
    """In front of one of zeroconf's listeners."""

    def __init__(self, guard: Guard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if not self._guard.lets_in(addr[0]):
            return
        self._guard.source = addr[0]
        try:
            self._inner.datagram_received(data, addr)
        finally:
            self._guard.source = ""

    def error_received(self, exc: Exception) -> None:
        self._inner.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


def narrow(each: Any) -> None:
    """Only what was sent with a TTL of 255, to groups that this socket joined; and so do we send."""
    is_v6 = each.family == socket.AF_INET6
    options = [(socket.IPPROTO_IP, socket.IP_TTL), (socket.IPPROTO_IP, _IP_MINTTL)]
    ours_alone = [(socket.IPPROTO_IP, _IP_MULTICAST_ALL)]
    if is_v6:
        options += [(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS), (socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT)]
        ours_alone.append((socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL))
    for level, option in options:
        _set(each, level, option, _HOPS)
    for level, option in ours_alone:
        _set(each, level, option, 0)


def _set(each: Any, level: int, option: int, value: int) -> None:
    try:
        each.setsockopt(level, option, value)
    except OSError:  # not on this system
        return
