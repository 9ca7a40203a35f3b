"""Announcements by UDP broadcast (announce.md §6.3).

Each interface has two sockets: one listens on the shared port, one sends and receives unicast. Several processes of a machine
share the listening port, and a broadcast reaches all of them. Packets from off the link are dropped (THREATS L2).

Queries are answered by unicast, after a random delay, by endpoints that have a match. Unless a source has proved its address,
it is sent no more bytes than it sent (THREATS L5): queries are padded to a full datagram, so that one response fits; for more,
the source gets a cookie first and repeats the query with it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random as randomness
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any

from waypost import limits
from waypost.errors import ConfigurationError, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.messages import AgentQuery, build_query, kind_of_message, parse_message
from waypost.protocols.announce.packets import (
    CHALLENGE_BYTES,
    CookieChallenge,
    Fragment,
    FragmentReassembly,
    is_valid_cookie,
    make_cookie,
    pad_query,
    parse_datagram,
    split_datagrams,
    write_challenge,
    write_with_cookie,
)
from waypost.rate_limit import RateLimiter
from waypost.transports.directory import AgentDirectory, Subscriber
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.interfaces import Interface, find_interfaces
from waypost.transports.packet_filter import (
    PacketAdmission,
    PacketFilter,
    PacketSource,
    SourcePredicate,
    SourceStanding,
    WorkQueue,
    source_of,
)
from waypost.transports.port import (
    QUERY_SECONDS,
    Ack,
    DropCounts,
    MessageHandler,
    MessageSender,
    QueryHandler,
    SightingCallback,
    TransportClock,
)

log = logging.getLogger("waypost.transports")

Address = tuple[Any, ...]  # host and port; for IPv6 also flow and scope

PORT = limits.UDP_PORT

MDNS_PORT = 5353

ALL_NODES = "ff02::1"  # the IPv6 equivalent of broadcast (P-24)

DatagramCallback = Callable[[bytes, Address, "UdpSockets"], bool]  # returns whether the datagram was admitted

_READ_BYTES = 4096  # longer than any datagram of the protocol; a longer one is truncated, and is invalid then

_BUFFER_BYTES = 1 << 20  # for a thousand agents that answer one query

_ANY_AGENT = AgentQuery()

_DISCOVERY_SECONDS = 3.0

_RESPONSES_PER_QUERY = 50  # at ten a second, the last ones arrive when the query is about to end


class UdpSockets:
    """The two sockets of one interface, for IPv4 or IPv6."""

    def __init__(
        self,
        interface: Interface,
        port: int,
        broadcast_address: str,
        on_datagram: DatagramCallback,
        discard: Callable[[SourcePredicate], object],
        *,
        ipv6: bool = False,
    ) -> None:
        self.interface = interface
        self._broadcast_to: Address = (broadcast_address or interface.broadcast, port)
        if ipv6:
            self._broadcast_to = (ALL_NODES, port, 0, interface.index)
        self._on_datagram = on_datagram
        self._is_on_link = lru_cache(limits.ANSWER_SOURCES)(interface.is_on_link)
        self._dropped = 0
        self._pauses: dict[int, float] = {}  # by descriptor: seconds
        self._listener = _open_ipv6(interface, port) if ipv6 else _open_ipv4(interface, "", port)
        try:
            self._sender = _open_ipv6(interface, 0) if ipv6 else _open_ipv4(interface, str(interface.address), 0)
        except OSError:
            self._listener.close()
            raise
        self.address: Address = self._sender.getsockname()
        self._filter = PacketFilter((self._listener, self._sender), discard)
        loop = asyncio.get_running_loop()
        for sock in (self._listener, self._sender):
            loop.add_reader(sock.fileno(), self._read, sock)

    def standing(self, source: PacketSource) -> SourceStanding:
        return self._filter.standing(source)

    def sender(self, address: Address) -> MessageSender:
        return self._filter.sender(source_of(address))

    def dropped(self) -> int:
        """Datagrams that were dropped here or by the kernel."""
        return self._dropped + self._filter.count()

    def broadcast(self, data: bytes) -> None:
        """Raises OSError if the link is down or there is no route."""
        if not self.interface.is_up(self._sender.fileno()):
            # The system would discard the packet silently.
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        self._sender.sendto(data, self._broadcast_to)

    def send(self, data: bytes, to: Address) -> None:
        self._sender.sendto(data, to)

    def close(self) -> None:
        self._filter.close()
        loop = asyncio.get_running_loop()
        for sock in (self._listener, self._sender):
            loop.remove_reader(sock.fileno())
            sock.close()

    def _read(self, sock: socket.socket) -> None:
        admitted, before, ends_at = 0, self._dropped, time.perf_counter() + limits.PACKET_READ_SLICE_SECONDS
        while time.perf_counter() < ends_at:
            try:
                data, source = sock.recvfrom(_READ_BYTES)
            except (BlockingIOError, InterruptedError):
                self._pauses.pop(sock.fileno(), None)
                return
            except OSError:  # an ICMP error for an earlier packet
                continue
            if self._is_on_link(source[0]) and self._on_datagram(data, source, self):
                admitted += 1
            else:
                self._dropped += 1
                self._filter.drop(source_of(source))
        self._pause(sock, is_flood=not admitted and self._dropped > before)

    def _pause(self, sock: socket.socket, *, is_flood: bool) -> None:
        """Stop reading for a moment. Meanwhile packets stay in the socket's buffer, and the system drops them once it is full.
        After a slice without an admitted packet the pause doubles."""
        minimum, maximum = limits.PACKET_READ_PAUSE_SECONDS
        seconds = min(maximum, 2 * self._pauses.get(sock.fileno(), minimum)) if is_flood else minimum
        self._pauses[sock.fileno()] = seconds
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock.fileno())
        loop.call_later(seconds, self._resume, sock)

    def _resume(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:  # it may have been closed in the meantime
            asyncio.get_running_loop().add_reader(sock.fileno(), self._read, sock)


def _open_ipv4(interface: Interface, host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        _bind(sock, interface, host, port)
    except OSError:
        sock.close()
        raise
    return sock


def _open_ipv6(interface: Interface, port: int) -> socket.socket:
    """Every host receives the all-nodes group without joining it."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        _bind(sock, interface, "::", port)
    except OSError:
        sock.close()
        raise
    return sock


def _bind(sock: socket.socket, interface: Interface, host: str, port: int) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    if port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _bind_to_device(sock, interface)
    sock.bind((host, port))


def _bind_to_device(sock: socket.socket, interface: Interface) -> None:
    """If the system allows it. Otherwise the sender's address and the source check select the interface."""
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None or not interface.name:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, option, interface.name.encode())
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOPROTOOPT):
            raise


class UdpTransport:
    name = "udp"

    def __init__(
        self,
        interfaces: Sequence[str],
        clock: TransportClock,
        *,
        port: int = PORT,
        broadcast_address: str = "",
        ipv6: bool = False,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
    ) -> None:
        """`interfaces`: names or addresses. `broadcast_address`: instead of the one of each network. `ipv6`: also send to all
        IPv6 nodes, on interfaces with a link-local address."""
        if port == MDNS_PORT:
            raise ConfigurationError(
                "Port 5353 is reserved for mDNS.", path="udp", hint=f"Choose another port, such as {PORT}."
            )
        self._interfaces = interfaces
        self._port = port
        self._broadcast_address = broadcast_address
        self._ipv6 = ipv6
        self._clock = clock
        self._random = random or randomness.SystemRandom()
        self._secret = self._random.randbytes(32)
        if directory is None:
            directory = AgentDirectory(self.name, capacity_per_source=limits.DIRECTORY_AGENTS_PER_SOURCE)
        self._dispatcher = Dispatcher(self.name, clock, self._random, directory)
        self._reassembly = FragmentReassembly()
        self._admission = PacketAdmission()
        self._queue = WorkQueue()
        self._rate_limiter: RateLimiter[PacketSource] = RateLimiter(
            limits.ANSWERS_PER_SECOND, limits.ANSWERS_PER_SECOND, max_keys=limits.ANSWER_SOURCES
        )
        self._sockets: list[UdpSockets] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pending: dict[
            str, tuple[bytes, set[Address]]
        ] = {}  # by query id: its bytes, and the sources it was repeated to

    async def open(self) -> None:
        try:
            for interface in find_interfaces(self._interfaces):
                self._sockets.append(self._open_sockets(interface, self._broadcast_address, ipv6=False))
                if self._ipv6 and any(address.is_link_local for address in interface.v6):
                    self._sockets.append(self._open_sockets(interface, "", ipv6=True))
        except WaypostError:
            await self.close()
            raise

    def _open_sockets(self, interface: Interface, broadcast_address: str, *, ipv6: bool) -> UdpSockets:
        try:
            return UdpSockets(
                interface, self._port, broadcast_address, self._on_datagram, self._queue.discard, ipv6=ipv6
            )
        except OSError as error:
            raise ConfigurationError(
                f"Cannot use UDP port {self._port} on {interface.name or interface.address}: {error.strerror}.",
                path="udp",
                hint="Choose another port, or stop the program that uses this one exclusively.",
            ) from None

    async def close(self) -> None:
        for sockets in self._sockets:
            sockets.close()
        self._sockets.clear()
        self._queue.close()
        self._dispatcher.subscriptions.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        try:
            parts = split_datagrams(dump_json({**message, "ttl": ttl}))
            expires_at = self._dispatcher.local_agents.put(message, ttl, self._clock.now())
        except WaypostError as error:
            return Ack(False, reason=error.message)
        failures = [reason for part in parts if (reason := self._broadcast(part))]
        return Ack(False, reason=failures[0]) if failures else Ack(True, expires_at)

    async def withdraw(self, agent_id: str) -> None:
        self._dispatcher.local_agents.remove(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        sent = self._dispatcher.begin_query(query)
        data = dump_json(build_query(sent))
        query_id = str(sent.query_id)
        self._pending[query_id] = (data, set())
        self._broadcast(pad_query(data))
        try:
            return await self._dispatcher.collect(sent, timeout)
        finally:
            self._pending.pop(query_id, None)

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._dispatcher.subscriptions.subscribe(callback, query)
        self._start(self.query(query or _ANY_AGENT, _DISCOVERY_SECONDS))
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        self._dispatcher.serve(on_query, on_message)
        if on_message is not None:
            self._queue.slow_down()

    def echoed_at(self) -> float | None:
        return self._dispatcher.echoed_at

    def drop_counts(self) -> DropCounts:
        return DropCounts(dropped=sum(sockets.dropped() for sockets in self._sockets))

    def _on_datagram(self, data: bytes, address: Address, via: UdpSockets) -> bool:
        source = source_of(address)
        now = asyncio.get_running_loop().time()
        if not self._queue.has_room() or not self._admission.admits(source, now, via.standing(source)):
            return False
        self._queue.add(source, self._handle_datagram, data, address, via)
        return True

    def _handle_datagram(self, data: bytes, source: Address, via: UdpSockets) -> None:
        try:
            self._parse_datagram(data, source, via, self._clock.now())
        except WaypostError as error:
            log.debug("udp: datagram of %s rejected: %s", source[0], error)

    def _parse_datagram(self, data: bytes, source: Address, via: UdpSockets, now: float) -> None:
        datagram = parse_datagram(data)
        if isinstance(datagram, CookieChallenge):
            self._repeat_queries(datagram, source, via)
            return
        if isinstance(datagram, Fragment):
            reassembled = self._reassembly.add(_text(source), datagram, now)
            if reassembled is not None:
                self._handle_message(parse_message(reassembled), 0, source, via)
            return
        is_proved = is_valid_cookie(self._secret, _text(source), datagram.cookie, now)
        budget = limits.ANNOUNCE_BYTES * _RESPONSES_PER_QUERY if is_proved else len(data)
        self._handle_message(parse_message(datagram.data), budget, source, via)

    def _handle_message(self, message: JsonObject, budget: int, source: Address, via: UdpSockets) -> None:
        """`budget`: how many bytes may be sent back."""
        is_query = kind_of_message(message) == "query"
        if is_query and len(self._tasks) >= limits.PENDING_ANSWERS:
            return
        self._start(self._reply(message, budget, source, via, delayed=is_query))

    def _repeat_queries(self, challenge: CookieChallenge, source: Address, via: UdpSockets) -> None:
        """Send the pending queries again, with the cookie, once for each source that asks for proof."""
        for data, repeated_to in self._pending.values():
            if source not in repeated_to and len(repeated_to) < limits.ANSWERS_PER_QUERY:
                repeated_to.add(source)
                self._send(write_with_cookie(challenge.cookie, data), source, via)

    async def _reply(
        self, message: JsonObject, budget: int, source: Address, via: UdpSockets, *, delayed: bool
    ) -> None:
        if delayed:
            await asyncio.sleep(self._random.uniform(*limits.ANSWER_DELAY_SECONDS))
        sender = via.sender(source)
        replies = [dump_json(reply) for reply in await self._dispatcher.receive(message, _text(source), sender)]
        needed = sum(len(part) for reply in replies for part in _split(reply))
        if needed > budget >= CHALLENGE_BYTES and delayed:
            budget -= CHALLENGE_BYTES
            self._send(write_challenge(make_cookie(self._secret, _text(source), self._clock.now())), source, via)
        for reply in replies[:_RESPONSES_PER_QUERY]:
            parts = _split(reply)
            size = sum(len(part) for part in parts)
            if size <= budget and await self._may_answer(source):
                budget -= size
                for part in parts:
                    self._send(part, source, via)

    async def _may_answer(self, source: Address) -> bool:
        """Wait for the rate limit of the source (ten responses a second), some seconds at most."""
        for _ in range(int(QUERY_SECONDS * limits.ANSWERS_PER_SECOND)):
            if self._rate_limiter.take(source_of(source), asyncio.get_running_loop().time()):
                return True
            await asyncio.sleep(1 / limits.ANSWERS_PER_SECOND)
        return False

    def _send(self, data: bytes, to: Address, via: UdpSockets) -> None:
        try:
            via.send(data, to)
        except OSError as error:
            log.debug("udp: cannot send to %s: %s", to[0], error)

    def _broadcast(self, data: bytes) -> str:
        """Send on every interface. Returns why it failed on all of them, or an empty text."""
        reasons: list[str] = []
        for sockets in self._sockets:
            try:
                sockets.broadcast(data)
            except OSError as error:
                reasons.append(f"{sockets.interface.name}: {error.strerror}")
        if len(reasons) == len(self._sockets):
            return "; ".join(reasons) or "The transport is closed."
        return ""

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _split(reply: bytes) -> list[bytes]:
    try:
        return split_datagrams(reply)
    except WaypostError:  # too large for this transport
        return []


def _text(source: Address) -> str:
    return f"[{source[0]}]:{source[1]}" if ":" in source[0] else f"{source[0]}:{source[1]}"
