"""The sockets of UDP broadcast: on each interface one that listens on the common port, and one that speaks.

Several processes of a machine share the listening port, and a broadcast reaches all of them; what is sent to one alone comes to
the port that it speaks from. Whatever comes from beyond the link is dropped here (THREATS L2).
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
from waypost.transports.directory import AgentDirectory
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.flow_control import PacketAdmission, SourceRateLimiter, SourceStanding, WorkQueue
from waypost.transports.interfaces import Interface, find_interfaces
from waypost.transports.packet_filter import ForgetSources, PacketFilter, PacketSource, source_of
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
from waypost.transports.subscriptions import Subscriber

Address = tuple[Any, ...]  # host and port; of IPv6 also its scope

ALL_NODES = "ff02::1"  # what is a broadcast in IPv6 (P-24)

DatagramCallback = Callable[[bytes, Address, "UdpSockets"], bool]  # whether it was let in

_READ_BYTES = 4096  # no datagram of the protocol is as long; a longer one is cut, and is no message then

_BUFFER_BYTES = 1 << 20  # a thousand agents that answer one question


class UdpSockets:
    """The two sockets of one interface, of IPv4 or of IPv6."""

    def __init__(
        self,
        interface: Interface,
        port: int,
        to: str,
        received: DatagramCallback,
        forget: ForgetSources,
        *,
        ipv6: bool = False,
    ) -> None:
        self.interface = interface
        self._to: Address = (to or interface.broadcast, port)
        if ipv6:
            self._to = (ALL_NODES, port, 0, interface.index)
        self._received = received
        self._is_neighbour = lru_cache(limits.ANSWER_SOURCES)(interface.is_on_link)
        self._refused = 0
        self._rests: dict[int, float] = {}  # by socket: how long it rests after a full turn
        self._listener = _bound6(interface, port) if ipv6 else _open_listener(interface, port)
        try:
            self._speaker = _bound6(interface, 0) if ipv6 else _open_sender(interface)
        except OSError:
            self._listener.close()
            raise
        self.address: Address = self._speaker.getsockname()
        self._sieve = PacketFilter((self._listener, self._speaker), forget)
        loop = asyncio.get_running_loop()
        for each in (self._listener, self._speaker):
            loop.add_reader(each.fileno(), self._read, each)

    def standing(self, source: PacketSource) -> SourceStanding:
        return self._sieve.standing(source)

    def sender(self, address: Address) -> MessageSender:
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
        let_in, before, ends = 0, self._refused, time.perf_counter() + limits.PACKET_READ_SLICE_SECONDS
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
        least, most = limits.PACKET_READ_PAUSE_SECONDS
        rest = min(most, 2 * self._rests.get(each.fileno(), least)) if is_flood else least
        self._rests[each.fileno()] = rest
        loop = asyncio.get_running_loop()
        loop.remove_reader(each.fileno())
        loop.call_later(rest, self._go_on, each)

    def _go_on(self, each: socket.socket) -> None:
        if each.fileno() >= 0:  # it may have been closed meanwhile
            asyncio.get_running_loop().add_reader(each.fileno(), self._read, each)


def open_sockets(
    interface: Interface, port: int, to: str, received: DatagramCallback, forget: ForgetSources, *, ipv6: bool = False
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


def _open_listener(interface: Interface, port: int) -> socket.socket:
    return _bound(interface, "", port)


def _open_sender(interface: Interface) -> socket.socket:
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


# ---- Announcements by UDP broadcast (announce.md §6.3). A shell: bytes are in `protocols/announce/packets.py`, rules
# in `station.py`.
#
# Questions are answered to who asked alone, after a moment of chance, and only by whoever has an answer. A source that has
# not proved itself is sent no more than it sent (THREATS L5): our questions are padded to a datagram, so that one answer fits;
# for more, the source is sent a cookie first, with which it repeats its question.

log = logging.getLogger("waypost.transports")

PORT = limits.UDP_PORT

MDNS_PORT = 5353

_EVERYBODY = AgentQuery()

_LOOK_AROUND_SECONDS = 3.0

_ANSWERS_OF_QUESTION = 50  # at ten a second the last ones come when the question is about to end


class UdpTransport:
    name = "udp"

    def __init__(
        self,
        interfaces: Sequence[str],
        clock: TransportClock,
        *,
        port: int = PORT,
        to: str = "",
        ipv6: bool = False,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
    ) -> None:
        """`interfaces`: names or addresses. `to`: 255.255.255.255, or another address than each network's own broadcast.
        `ipv6`: also to all nodes of IPv6, on interfaces that have a link-local address."""
        if port == MDNS_PORT:
            raise ConfigurationError(
                "Port 5353 belongs to mDNS.", path="udp", hint=f"Choose another one, such as {PORT}."
            )
        self._interfaces = interfaces
        self._port = port
        self._to = to
        self._ipv6 = ipv6
        self._clock = clock
        self._random = random or randomness.SystemRandom()
        self._secret = self._random.randbytes(32)
        self._station = Dispatcher(self.name, clock, self._random, _directory() if directory is None else directory)
        self._reassembly = FragmentReassembly()
        self._door = PacketAdmission()
        self._turns = WorkQueue()
        self._pace = SourceRateLimiter(limits.ANSWERS_PER_SECOND, limits.ANSWERS_PER_SECOND)
        self._sockets: list[UdpSockets] = []
        self._working: set[asyncio.Task[Any]] = set()
        self._asking: dict[str, tuple[bytes, set[Address]]] = {}  # by query id: its bytes, and who was shown a cookie

    # --- The port --------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            for interface in find_interfaces(self._interfaces):
                self._sockets.append(self._opened(interface, self._to, ipv6=False))
                if self._ipv6 and any(address.is_link_local for address in interface.v6):
                    self._sockets.append(self._opened(interface, "", ipv6=True))
        except WaypostError:
            await self.close()
            raise

    def _opened(self, interface: Interface, to: str, *, ipv6: bool) -> UdpSockets:
        return open_sockets(interface, self._port, to, self._received, self._turns.forget, ipv6=ipv6)

    async def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()
        self._turns.close()
        self._station.listening.close()
        for task in tuple(self._working):
            task.cancel()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        try:
            parts = split_datagrams(dump_json({**message, "ttl": ttl}))
            until = self._station.own.put(message, ttl, self._clock.now())
        except WaypostError as error:
            return Ack(False, reason=error.message)
        failures = [reason for part in parts if (reason := self._broadcast(part))]
        return Ack(False, reason=failures[0]) if failures else Ack(True, until)

    async def withdraw(self, agent_id: str) -> None:
        self._station.own.drop(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        asked = self._station.ask(query)
        data = dump_json(build_query(asked))
        query_id = str(asked.query_id)
        self._asking[query_id] = (data, set())
        self._broadcast(pad_query(data))
        try:
            return await self._station.collect(asked, timeout)
        finally:
            self._asking.pop(query_id, None)

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._station.listening.subscribe(callback, query)
        self._begin(self.query(query or _EVERYBODY, _LOOK_AROUND_SECONDS))
        return subscriber

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        self._station.serve(answer, heard)
        if heard is not None:
            self._turns.give_way()

    def echoed_at(self) -> float | None:
        return self._station.echoed_at

    def tally(self) -> DropCounts:
        return DropCounts(dropped=sum(each.refused() for each in self._sockets))

    # --- What comes in ---------------------------------------------------------------------------

    def _received(self, data: bytes, address: Address, via: UdpSockets) -> bool:
        source = source_of(address)
        now = asyncio.get_running_loop().time()
        if not self._turns.have_room() or not self._door.lets_in(source, now, via.standing(source)):
            return False
        self._turns.add(source, self._read, data, address, via)
        return True

    def _read(self, data: bytes, source: Address, via: UdpSockets) -> None:
        try:
            self._take(data, source, via, self._clock.now())
        except WaypostError as error:
            log.debug("udp: a datagram of %s came to nothing: %s", source[0], error)

    def _take(self, data: bytes, source: Address, via: UdpSockets, now: float) -> None:
        read = parse_datagram(data)
        if isinstance(read, CookieChallenge):
            self._prove(read, source, via)
            return
        if isinstance(read, Fragment):
            whole = self._reassembly.take(_text(source), read, now)
            if whole is not None:
                self._take_message(parse_message(whole), 0, source, via)
            return
        is_known = is_valid_cookie(self._secret, _text(source), read.cookie, now)
        room = limits.ANNOUNCE_BYTES * _ANSWERS_OF_QUESTION if is_known else len(data)
        self._take_message(parse_message(read.data), room, source, via)

    def _take_message(self, message: JsonObject, room: int, source: Address, via: UdpSockets) -> None:
        """`room`: how many bytes may be sent back."""
        is_query = kind_of_message(message) == "query"
        if is_query and len(self._working) >= limits.PENDING_ANSWERS:
            return
        self._begin(self._reply(message, room, source, via, delayed=is_query))

    def _prove(self, shown: CookieChallenge, source: Address, via: UdpSockets) -> None:
        """Repeat what is asked at the moment, once for each that wants to know who asks."""
        for data, told in self._asking.values():
            if source not in told and len(told) < limits.ANSWERS_PER_QUERY:
                told.add(source)
                self._send(write_with_cookie(shown.cookie, data), source, via)

    # --- What goes back --------------------------------------------------------------------------

    async def _reply(self, message: JsonObject, room: int, source: Address, via: UdpSockets, *, delayed: bool) -> None:
        if delayed:
            await asyncio.sleep(self._random.uniform(*limits.ANSWER_DELAY_SECONDS))
        sender = via.sender(source)
        replies = [dump_json(reply) for reply in await self._station.receive(message, _text(source), sender)]
        wanted = sum(len(part) for reply in replies for part in _parts(reply))
        if wanted > room >= CHALLENGE_BYTES and delayed:
            room -= CHALLENGE_BYTES
            self._send(write_challenge(make_cookie(self._secret, _text(source), self._clock.now())), source, via)
        for reply in replies[:_ANSWERS_OF_QUESTION]:
            parts = _parts(reply)
            size = sum(len(part) for part in parts)
            if size <= room and await self._may_answer(source):
                room -= size
                for part in parts:
                    self._send(part, source, via)

    async def _may_answer(self, source: Address) -> bool:
        """Ten a second for each source. Whoever has more to say waits for its turn, some seconds at most."""
        for _ in range(int(QUERY_SECONDS * limits.ANSWERS_PER_SECOND)):
            if self._pace.take(source_of(source), asyncio.get_running_loop().time()):
                return True
            await asyncio.sleep(1 / limits.ANSWERS_PER_SECOND)
        return False

    def _send(self, data: bytes, to: Address, via: UdpSockets) -> None:
        try:
            via.send(data, to)
        except OSError as error:
            log.debug("udp: %s cannot be reached: %s", to[0], error)

    def _broadcast(self, data: bytes) -> str:
        """On every interface; why it failed on all of them, or nothing."""
        reasons: list[str] = []
        for each in self._sockets:
            try:
                each.broadcast(data)
            except OSError as error:
                reasons.append(f"{each.interface.name}: {error.strerror}")
        if len(reasons) == len(self._sockets):
            return "; ".join(reasons) or "The transport is closed."
        return ""

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)


def _directory() -> AgentDirectory:
    return AgentDirectory(UdpTransport.name, most_of_source=limits.DIRECTORY_AGENTS_PER_SOURCE)


def _parts(reply: bytes) -> list[bytes]:
    try:
        return split_datagrams(reply)
    except WaypostError:  # too large for this carrier: whoever asks finds it elsewhere
        return []


def _text(source: Address) -> str:
    return f"[{source[0]}]:{source[1]}" if ":" in source[0] else f"{source[0]}:{source[1]}"
