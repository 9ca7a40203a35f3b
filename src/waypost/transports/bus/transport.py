"""Messages that are handled more than once: those that come twice are taken once, those that fail are tried again, and parked.

A refusal is final, and nobody's fault here. Whatever else goes wrong is tried again after a moment; a message that fails each
time is set aside with its reason, and the others go on (THREATS B3, B5).
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InternalError, TooLarge, Unavailable, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.messages import (
    TOPIC,
    AgentQuery,
    build_query,
    check_group,
    digest_of,
    kind_of_message,
    parse_message,
    reply_subject,
    subject_of,
)
from waypost.transports.bus.connection import BusConnection, BusCredentials
from waypost.transports.directory import AgentDirectory, agent_id_of
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.flow_control import SourceRateLimiter
from waypost.transports.port import (
    QUERY_SECONDS,
    Ack,
    DropCounts,
    MessageHandler,
    QueryHandler,
    SightingCallback,
    TransportClock,
)
from waypost.transports.subscriptions import Subscriber

log = logging.getLogger("waypost.transports")


class ParkedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came to nothing, and why."""

    digest: str
    data: bytes
    reason: str
    at: float


class Redelivery:
    def __init__(
        self, name: str, clock: TransportClock, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._name = name
        self._clock = clock
        self._pause = pause
        self._taken: OrderedDict[str, float] = OrderedDict()  # digests, and when
        self._parked: OrderedDict[str, ParkedMessage] = OrderedDict()

    @property
    def parked(self) -> tuple[ParkedMessage, ...]:
        return tuple(self._parked.values())

    def begin(self, digest: str) -> bool:
        """Whether a message is worth handling: not one that was taken a moment ago, nor one that is parked."""
        now = self._clock.now()
        parked = self._parked.get(digest)
        if parked is not None and now - parked.at < limits.DEAD_LETTER_SECONDS:
            return False
        taken = self._taken.get(digest)
        if taken is not None and 0 <= now - taken < limits.DUPLICATE_WINDOW_SECONDS:
            return False
        self._taken[digest] = now
        self._taken.move_to_end(digest)
        if len(self._taken) > limits.DUPLICATE_WINDOW_MESSAGES:
            self._taken.popitem(last=False)
        return True

    async def run(self, digest: str, data: bytes, work: Callable[[], Awaitable[None]]) -> None:
        """Until it is done, refused or parked."""
        for seconds in (*limits.REDELIVERY_DELAYS_SECONDS, None):
            failure = await _outcome(work)
            if failure is None:
                self._parked.pop(digest, None)
                return
            if not _is_transient(failure):
                log.debug("%s: a message came to nothing: %s", self._name, failure)
                return
            if seconds is None:
                self._park(digest, data, failure)
            else:
                await self._pause(seconds)

    def _park(self, digest: str, data: bytes, failure: BaseException) -> None:
        reason = failure.message if isinstance(failure, WaypostError) else type(failure).__name__
        self._parked[digest] = ParkedMessage(digest=digest, data=data, reason=reason, at=self._clock.now())
        self._parked.move_to_end(digest)
        if len(self._parked) > limits.DEAD_LETTERS:
            self._parked.popitem(last=False)
        fault = None if isinstance(failure, WaypostError) else failure
        log.warning("%s: message %s is set aside: %s", self._name, digest[:16], reason, exc_info=fault)


def _is_transient(failure: BaseException) -> bool:
    """What may go well the next time. A fault of ours is no answer to a message either."""
    return not isinstance(failure, WaypostError) or isinstance(failure, Unavailable | InternalError)


async def _outcome(work: Callable[[], Awaitable[None]]) -> BaseException | None:
    """What it failed with. A task of its own keeps every fault to itself."""
    task = asyncio.ensure_future(work())
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    return task.exception()


# ---- Announcements over a bus, NATS (announce.md §6.6). A shell: names are in `protocols/announce/messages.py`, rules
# in `station.py`.
#
# Everybody listens to one topic, for announcements and questions alike; answers go to the inbox of who asks. Whoever can
# publish there can say anything: a signature is all that counts, here as elsewhere (THREATS B2, B4). Registries that share their
# agents form a group, of which one answers a question; every one of them hears every announcement.

_EVERYBODY = AgentQuery()

_LOOK_AROUND_SECONDS = 3.0

_ID_HEADER = "Nats-Msg-Id"  # by which a stream that keeps the topic leaves out what comes twice

_KEY_HEADER = "Agent-Id"


class BusTransport:
    name = "bus"

    def __init__(
        self,
        url: str,
        clock: TransportClock,
        *,
        topic: str = TOPIC,
        group: str = "",
        login: BusCredentials | None = None,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`group`: of those that serve, one answers each question."""
        random = random or randomness.SystemRandom()
        self._subject = subject_of(topic)
        self._group = check_group(group) if group else ""
        self._clock = clock
        self._connection = BusConnection(url, self._came_back, login)
        self._station = Dispatcher(self.name, clock, random, directory)
        self._grouped = Dispatcher(self.name, clock, random)  # answers questions that came to the group
        self._attempts = Redelivery(self.name, clock, pause)
        self._pace = SourceRateLimiter(limits.PACKETS_PER_SECOND, limits.PACKETS_BURST, sources=1)
        self._room = asyncio.Semaphore(limits.PENDING_ANSWERS)
        self._working: set[asyncio.Task[Any]] = set()
        self._dropped = 0

    @property
    def parked(self) -> tuple[ParkedMessage, ...]:
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

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._station.listening.subscribe(callback, query)
        self._begin(self._look_around(query or _EVERYBODY))
        return subscriber

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        self._station.serve(None if self._group else answer, heard)
        self._grouped.serve(answer, None)

    def echoed_at(self) -> float | None:
        return self._station.echoed_at

    def tally(self) -> DropCounts:
        return DropCounts(dropped=self._dropped, parked=len(self._attempts.parked))

    # --- What goes out ---------------------------------------------------------------------------

    async def _tell(self, agent_id: str, data: bytes) -> None:
        headers = {_ID_HEADER: digest_of(data), _KEY_HEADER: agent_id}
        await self._connection.send(self._subject, data, reply=self._connection.inbox, headers=headers)

    async def _ask(self, query: AgentQuery) -> None:
        inbox = self._connection.inbox
        await self._connection.send(self._subject, dump_json(build_query(query, reply_to=inbox)), reply=inbox)

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

    async def _received(self, station: Dispatcher, data: bytes, inbox: str) -> None:
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

    async def _take(self, station: Dispatcher, message: JsonObject, reply: str) -> None:
        is_query = kind_of_message(message) == "query"
        for told in (await station.take(message, self._subject))[: limits.ANSWERS_PER_QUERY]:
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
