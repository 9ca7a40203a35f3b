"""Announcements by UDP broadcast (announce.md §6.3). A shell: bytes are in `wire/announce_udp.py`, rules in `station.py`.

Questions are answered to who asked alone, after a moment of chance, and only by whoever has an answer. A source that has
not proved itself is sent no more than it sent (THREATS L5): our questions are padded to a datagram, so that one answer fits;
for more, the source is sent a cookie first, with which it repeats its question.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Coroutine, Sequence
from typing import Any

from waypost import limits
from waypost.errors import ConfigurationError, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.transports.directory import Directory
from waypost.transports.interfaces import Interface, find_interfaces
from waypost.transports.listening import Subscriber
from waypost.transports.pace import Door, Pace
from waypost.transports.port import QUERY_SECONDS, Ack, Answer, Clock, Hear, OnSighting, Tally
from waypost.transports.socket_filter import source_of
from waypost.transports.station import Station
from waypost.transports.turns import Turns
from waypost.transports.udp_sockets import Address, UdpSockets, open_sockets
from waypost.wire.announce import AgentQuery, kind_of_message, parse_message, query_message
from waypost.wire.announce_udp import (
    CHALLENGE_BYTES,
    Challenge,
    Fragment,
    Reassembly,
    challenge,
    cookie,
    datagrams,
    is_proved,
    padded,
    parse_datagram,
    proved,
)

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
        clock: Clock,
        *,
        port: int = PORT,
        to: str = "",
        ipv6: bool = False,
        random: randomness.Random | None = None,
        directory: Directory | None = None,
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
        self._station = Station(self.name, clock, self._random, _directory() if directory is None else directory)
        self._reassembly = Reassembly()
        self._door = Door()
        self._turns = Turns()
        self._pace = Pace(limits.ANSWERS_PER_SECOND, limits.ANSWERS_PER_SECOND)
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
            parts = datagrams(dump_json({**message, "ttl": ttl}))
            until = self._station.own.put(message, ttl, self._clock.now())
        except WaypostError as error:
            return Ack(False, reason=error.message)
        failures = [reason for part in parts if (reason := self._broadcast(part))]
        return Ack(False, reason=failures[0]) if failures else Ack(True, until)

    async def withdraw(self, agent_id: str) -> None:
        self._station.own.drop(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        asked = self._station.ask(query)
        data = dump_json(query_message(asked))
        query_id = str(asked.query_id)
        self._asking[query_id] = (data, set())
        self._broadcast(padded(data))
        try:
            return await self._station.collect(asked, timeout)
        finally:
            self._asking.pop(query_id, None)

    async def subscribe(self, callback: OnSighting, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._station.listening.subscribe(callback, query)
        self._begin(self.query(query or _EVERYBODY, _LOOK_AROUND_SECONDS))
        return subscriber

    def serve(self, answer: Answer | None, heard: Hear | None) -> None:
        self._station.serve(answer, heard)
        if heard is not None:
            self._turns.give_way()

    def echoed_at(self) -> float | None:
        return self._station.echoed_at

    def tally(self) -> Tally:
        return Tally(dropped=sum(each.refused() for each in self._sockets))

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
        if isinstance(read, Challenge):
            self._prove(read, source, via)
            return
        if isinstance(read, Fragment):
            whole = self._reassembly.take(_text(source), read, now)
            if whole is not None:
                self._take_message(parse_message(whole), 0, source, via)
            return
        is_known = is_proved(self._secret, _text(source), read.cookie, now)
        room = limits.ANNOUNCE_BYTES * _ANSWERS_OF_QUESTION if is_known else len(data)
        self._take_message(parse_message(read.data), room, source, via)

    def _take_message(self, message: JsonObject, room: int, source: Address, via: UdpSockets) -> None:
        """`room`: how many bytes may be sent back."""
        is_query = kind_of_message(message) == "query"
        if is_query and len(self._working) >= limits.ANSWERS_AT_ONCE:
            return
        self._begin(self._reply(message, room, source, via, delayed=is_query))

    def _prove(self, shown: Challenge, source: Address, via: UdpSockets) -> None:
        """Repeat what is asked at the moment, once for each that wants to know who asks."""
        for data, told in self._asking.values():
            if source not in told and len(told) < limits.ANSWERS_OF_QUERY:
                told.add(source)
                self._send(proved(shown.cookie, data), source, via)

    # --- What goes back --------------------------------------------------------------------------

    async def _reply(self, message: JsonObject, room: int, source: Address, via: UdpSockets, *, delayed: bool) -> None:
        if delayed:
            await asyncio.sleep(self._random.uniform(*limits.ANSWER_DELAY_SECONDS))
        sender = via.sender(source)
        replies = [dump_json(reply) for reply in await self._station.receive(message, _text(source), sender)]
        wanted = sum(len(part) for reply in replies for part in _parts(reply))
        if wanted > room >= CHALLENGE_BYTES and delayed:
            room -= CHALLENGE_BYTES
            self._send(challenge(cookie(self._secret, _text(source), self._clock.now())), source, via)
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


def _directory() -> Directory:
    return Directory(UdpTransport.name, most_of_source=limits.DIRECTORY_AGENTS_OF_SOURCE)


def _parts(reply: bytes) -> list[bytes]:
    try:
        return datagrams(reply)
    except WaypostError:  # too large for this carrier: whoever asks finds it elsewhere
        return []


def _text(source: Address) -> str:
    return f"[{source[0]}]:{source[1]}" if ":" in source[0] else f"{source[0]}:{source[1]}"
