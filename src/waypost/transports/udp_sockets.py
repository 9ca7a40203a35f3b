"""The sockets of UDP broadcast: on each interface one that listens on the common port, and one that speaks.

Several processes of a machine share the listening port, and a broadcast reaches all of them; what is sent to one alone comes to
the port that it speaks from. Whatever comes from beyond the link is dropped here (THREATS L2).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.transports.interfaces import Interface
from waypost.transports.pace import Standing
from waypost.transports.port import Sender
from waypost.transports.sieve import Forget, Sieve
from waypost.transports.socket_filter import Source, source_of

Address = tuple[Any, ...]  # host and port; of IPv6 also its scope
ALL_NODES = "ff02::1"  # what is a broadcast in IPv6 (P-24)
Received = Callable[[bytes, Address, "UdpSockets"], bool]  # whether it was let in
_READ_BYTES = 4096  # no datagram of the protocol is as long; a longer one is cut, and is no message then
_BUFFER_BYTES = 1 << 20  # a thousand agents that answer one question


class UdpSockets:
    """The two sockets of one interface, of IPv4 or of IPv6."""

    def __init__(
        self, interface: Interface, port: int, to: str, received: Received, forget: Forget, *, ipv6: bool = False
    ) -> None:
        self.interface = interface
        self._to: Address = (to or interface.broadcast, port)
        if ipv6:
            self._to = (ALL_NODES, port, 0, interface.index)
        self._received = received
        self._is_neighbour = lru_cache(limits.ANSWER_SOURCES)(interface.is_on_link)
        self._refused = 0
        self._rests: dict[int, float] = {}  # by socket: how long it rests after a full turn
        self._listener = _bound6(interface, port) if ipv6 else _listening(interface, port)
        try:
            self._speaker = _bound6(interface, 0) if ipv6 else _speaking(interface)
        except OSError:
            self._listener.close()
            raise
        self.address: Address = self._speaker.getsockname()
        self._sieve = Sieve((self._listener, self._speaker), forget)
        loop = asyncio.get_running_loop()
        for each in (self._listener, self._speaker):
            loop.add_reader(each.fileno(), self._read, each)

    def standing(self, source: Source) -> Standing:
        return self._sieve.standing(source)

    def sender(self, address: Address) -> Sender:
        return self._sieve.sender(source_of(address))

    def refused(self) -> int:
        """Datagrams that were dropped unread, here or by the kernel."""
        return self._refused + self._sieve.count()

    def broadcast(self, data: bytes) -> None:
        """Raises OSError: the link is down, or there is no way."""
        if not self.interface.carries(self._speaker.fileno()):
            # The system would throw it away, and say nothing.
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        self._speaker.sendto(data, self._to)

    def send(self, data: bytes, to: Address) -> None:
        self._speaker.sendto(data, to)

    def close(self) -> None:
        self._sieve.close()
        loop = asyncio.get_running_loop()
        for each in (self._listener, self._speaker):
            loop.remove_reader(each.fileno())
            each.close()

    def _read(self, each: socket.socket) -> None:
        let_in, before, ends = 0, self._refused, time.perf_counter() + limits.HEARD_READ_SECONDS
        while time.perf_counter() < ends:
            try:
                data, source = each.recvfrom(_READ_BYTES)
            except (BlockingIOError, InterruptedError):
                self._rests.pop(each.fileno(), None)
                return
            except OSError:  # an ICMP refusal of something that was sent: nothing to do about it
                continue
            if self._is_neighbour(source[0]) and self._received(data, source, self):
                let_in += 1
            else:
                self._refused += 1
                self._sieve.drop(source_of(source))
        self._rest(each, is_flood=not let_in and self._refused > before)

    def _rest(self, each: socket.socket, *, is_flood: bool) -> None:
        """What comes meanwhile waits in the socket's own buffer, and is dropped by the system when that is full. A turn in
        which nothing was worth reading makes the next rest longer."""
        least, most = limits.HEARD_READ_REST_SECONDS
        rest = min(most, 2 * self._rests.get(each.fileno(), least)) if is_flood else least
        self._rests[each.fileno()] = rest
        loop = asyncio.get_running_loop()
        loop.remove_reader(each.fileno())
        loop.call_later(rest, self._go_on, each)

    def _go_on(self, each: socket.socket) -> None:
        if each.fileno() >= 0:  # it may have been closed meanwhile
            asyncio.get_running_loop().add_reader(each.fileno(), self._read, each)


def open_sockets(
    interface: Interface, port: int, to: str, received: Received, forget: Forget, *, ipv6: bool = False
) -> UdpSockets:
    """`received` is given what comes, `forget` is told which sources flood."""
    try:
        return UdpSockets(interface, port, to, received, forget, ipv6=ipv6)
    except OSError as error:
        raise ConfigurationError(
            f"UDP port {port} cannot be used on {interface.name or interface.address}: {error.strerror}.",
            path="udp",
            hint="Choose another port, or stop what holds this one alone.",
        ) from None


def _listening(interface: Interface, port: int) -> socket.socket:
    return _bound(interface, "", port)


def _speaking(interface: Interface) -> socket.socket:
    return _bound(interface, str(interface.address), 0)


def _bound(interface: Interface, host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        if port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind_to_device(made, interface)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def _bound6(interface: Interface, port: int) -> socket.socket:
    """Every host hears the group of all nodes without joining it."""
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        if port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind_to_device(made, interface)
        made.bind(("::", port))
    except OSError:
        made.close()
        raise
    return made


def _bind_to_device(made: socket.socket, interface: Interface) -> None:
    """Where the system allows it. Elsewhere the address that is spoken from and the check of sources choose."""
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None or not interface.name:
        return
    try:
        made.setsockopt(socket.SOL_SOCKET, option, interface.name.encode())
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOPROTOOPT):
            raise
