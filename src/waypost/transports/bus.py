"""Announcements over a bus, NATS (announce.md §6.6). A shell: names are in `wire/announce_bus.py`, rules in `station.py`.

Everybody listens to one topic, for announcements and questions alike; answers go to the inbox of who asks. Whoever can
publish there can say anything: a signature is all that counts, here as elsewhere (THREATS B2, B4). Registries that share their
agents form a group, of which one answers a question; every one of them hears every announcement.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from waypost import limits
from waypost.errors import TooLarge, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.transports.attempts import Attempts, Parked
from waypost.transports.bus_connection import BusConnection
from waypost.transports.bus_login import BusLogin
from waypost.transports.directory import Directory, agent_id_of
from waypost.transports.listening import Subscriber
from waypost.transports.pace import Pace
from waypost.transports.port import QUERY_SECONDS, Ack, Answer, Clock, Hear, OnSighting, Tally
from waypost.transports.station import Station
from waypost.wire.announce import AgentQuery, kind_of_message, parse_message, query_message
from waypost.wire.announce_bus import TOPIC, check_group, digest_of, reply_subject, subject_of

log = logging.getLogger("waypost.transports")

_EVERYBODY = AgentQuery()
_LOOK_AROUND_SECONDS = 3.0
_ID_HEADER = "Nats-Msg-Id"  # by which a stream that keeps the topic leaves out what comes twice
_KEY_HEADER = "Agent-Id"


class BusTransport:
    name = "bus"

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        topic: str = TOPIC,
        group: str = "",
        login: BusLogin | None = None,
        random: randomness.Random | None = None,
        directory: Directory | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`group`: of those that serve, one answers each question."""
        random = random or randomness.SystemRandom()
        self._subject = subject_of(topic)
        self._group = check_group(group) if group else ""
        self._clock = clock
        self._connection = BusConnection(url, self._came_back, login)
        self._station = Station(self.name, clock, random, directory)
        self._grouped = Station(self.name, clock, random)  # answers questions that came to the group
        self._attempts = Attempts(self.name, clock, pause)
        self._pace = Pace(limits.HEARD_ALL_PER_SECOND, limits.HEARD_ALL_BURST, sources=1)
        self._room = asyncio.Semaphore(limits.ANSWERS_AT_ONCE)
        self._working: set[asyncio.Task[Any]] = set()
        self._dropped = 0

    @property
    def parked(self) -> tuple[Parked, ...]:
        """Messages that could not be handled, the last of them."""
        return self._attempts.parked

    # --- The port --------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._connection.open()
        try:
            await self._connection.subscribe(self._connection.inbox, partial(self._received, self._station))
            await self._connection.subscribe(self._subject, partial(self._received, self._station))
            if self._group:
                await self._connection.subscribe(self._subject, self._received_by_group, self._group)
            await self._connection.settle()
        except WaypostError:
            await self.close()
            raise

    async def close(self) -> None:
        await self._connection.close()
        self._station.listening.close()
        for task in tuple(self._working):
            task.cancel()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        """What cannot be sent now is sent when the bus is back, if it still holds then."""
        try:
            told = _checked({**message, "ttl": ttl})
            until = self._station.own.put(message, ttl, self._clock.now())
            await self._tell(agent_id_of(message), told)
            await self._connection.settle()
        except WaypostError as error:
            return Ack(False, reason=error.message)
        return Ack(True, until)

    async def withdraw(self, agent_id: str) -> None:
        self._station.own.drop(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        asked = self._station.ask(query)
        try:
            await self._ask(asked)
        except WaypostError:
            await self._station.collect(asked, 0)
            raise
        return await self._station.collect(asked, timeout)

    async def subscribe(self, callback: OnSighting, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._station.listening.subscribe(callback, query)
        self._begin(self._look_around(query or _EVERYBODY))
        return subscriber

    def serve(self, answer: Answer | None, heard: Hear | None) -> None:
        self._station.serve(None if self._group else answer, heard)
        self._grouped.serve(answer, None)

    def echoed_at(self) -> float | None:
        return self._station.echoed_at

    def tally(self) -> Tally:
        return Tally(dropped=self._dropped, parked=len(self._attempts.parked))

    # --- What goes out ---------------------------------------------------------------------------

    async def _tell(self, agent_id: str, data: bytes) -> None:
        headers = {_ID_HEADER: digest_of(data), _KEY_HEADER: agent_id}
        await self._connection.send(self._subject, data, reply=self._connection.inbox, headers=headers)

    async def _ask(self, query: AgentQuery) -> None:
        inbox = self._connection.inbox
        await self._connection.send(self._subject, dump_json(query_message(query, reply_to=inbox)), reply=inbox)

    async def _look_around(self, query: AgentQuery) -> None:
        try:
            await self.query(query, _LOOK_AROUND_SECONDS)
        except WaypostError as error:
            log.debug("bus: nobody was asked: %s", error)

    async def _came_back(self) -> None:
        """Others may have missed what was said meanwhile, and so may we."""
        for message in self._station.own.matching(_EVERYBODY, self._clock.now()):
            await self._tell(agent_id_of(message), dump_json(message))
        if self._station.listening.is_on:
            self._begin(self._look_around(_EVERYBODY))

    # --- What comes in ---------------------------------------------------------------------------

    async def _received(self, station: Station, data: bytes, inbox: str) -> None:
        """Waits while too much is in hand: then the bus holds back what comes, and at last drops it."""
        if not self._pace.take("", asyncio.get_running_loop().time()):
            self._dropped += 1
            return
        try:
            message = parse_message(data)
            reply = reply_subject(self._subject, inbox, message)
        except WaypostError as error:
            log.debug("bus: a message came to nothing: %s", error)
            return
        kind = kind_of_message(message)
        digest = digest_of(data)
        if (station is self._grouped and kind != "query") or (kind == "announce" and not self._attempts.begin(digest)):
            return
        await self._room.acquire()
        work = partial(self._take, station, message, reply)
        self._begin(self._attempts.run(digest, data, work)).add_done_callback(lambda _: self._room.release())

    async def _received_by_group(self, data: bytes, inbox: str) -> None:
        """Questions alone: what is announced comes to every member anyway, and need not be read twice."""
        if b'"query"' in data:
            await self._received(self._grouped, data, inbox)

    async def _take(self, station: Station, message: JsonObject, reply: str) -> None:
        is_query = kind_of_message(message) == "query"
        for told in (await station.take(message, self._subject))[: limits.ANSWERS_OF_QUERY]:
            # A word of others is no answer for everybody: two that reply to each other would never end.
            if is_query or reply != self._subject or station.own.holds(told):
                await self._connection.send(reply, _checked(told))

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task


def _checked(message: JsonObject) -> bytes:
    data = dump_json(message)
    if len(data) > limits.ANNOUNCE_BYTES:
        raise TooLarge(
            f"The message has {len(data)} bytes; {limits.ANNOUNCE_BYTES} are allowed.",
            path="$",
            hint="Make metadata shorter.",
        )
    return data
