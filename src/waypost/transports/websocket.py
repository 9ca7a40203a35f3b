"""A registry over a WebSocket as a transport (announce.md §6.5): one session that announces, asks and listens.

A session that is lost is opened again after a while of chance (P-28), and its subscription goes on from the last cursor. What
the registry tells is judged here once more, as on every transport. A registry answers by itself: `serve` only hears.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from waypost import limits
from waypost.errors import RateLimited, Unauthorized, Unavailable, WaypostError
from waypost.model.json import JsonObject
from waypost.model.times import find_instant
from waypost.protocols.announce.messages import AgentQuery, build_query
from waypost.protocols.announce.websocket import (
    SUBPROTOCOL,
    AnnounceFrameType,
    StatusMessage,
    parse_frame,
    parse_status,
    write_frame,
)
from waypost.transports.directory import AgentDirectory, agent_id_of, is_goodbye
from waypost.transports.port import (
    QUERY_SECONDS,
    Ack,
    MessageContext,
    MessageHandler,
    QueryHandler,
    SightingCallback,
    TransportClock,
    describe_failure,
)
from waypost.transports.responses import QueryResponses
from waypost.transports.subscriptions import Subscriber, Subscriptions

log = logging.getLogger("waypost.transports")

_WATCH = "watch"  # the query id of the subscription
_OWN = ("event", "cursor", "expires_at", "query_id")  # what the session adds to a Response


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """A token goes to where it was meant to go, and nowhere else."""
        return exc


class _PendingQuery:
    def __init__(self, query: AgentQuery) -> None:
        self.answers = QueryResponses(query)
        self.ended: asyncio.Future[StatusMessage] = asyncio.get_running_loop().create_future()


class WebSocketTransport:
    name = "ws"

    def __init__(
        self,
        url: str,
        clock: TransportClock,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`url`: of the registry, as for HTTP, or of its socket."""
        self.source = socket_url(url)
        self._clock = clock
        self._token = token
        self._tls = tls
        self._random = random or randomness.SystemRandom()
        self._pause = pause
        self._listening = Subscriptions(AgentDirectory(self.name) if directory is None else directory, clock)
        self._heard: MessageHandler | None = None
        self._connection: ClientConnection | None = None
        self._staying: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._asked: dict[str, _PendingQuery] = {}
        self._acks: dict[str, deque[asyncio.Future[StatusMessage]]] = {}
        self._announced: dict[str, JsonObject] = {}  # by agent_id: what is withdrawn, and not heard as news
        self._cursor: str | None = None
        self._is_watching = False

    # --- The port --------------------------------------------------------------------------------

    async def open(self) -> None:
        self._connection = await self._connect()
        self._staying = asyncio.get_running_loop().create_task(self._stay(), name=f"session with {self.source}")

    async def close(self) -> None:
        staying, self._staying = self._staying, None
        if staying is not None:
            staying.cancel()
            await asyncio.wait((staying,))
        for task in tuple(self._working):
            task.cancel()
        self._listening.close()
        await self._hang_up()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        try:
            agent_id = agent_id_of(message)
            told = await self._announce(agent_id, {**message, "ttl": ttl})
        except WaypostError as error:
            return Ack(False, reason=error.message)
        if told.status == "error":
            return Ack(False, reason=told.message or told.code or "")
        if is_goodbye(message):
            self._announced.pop(agent_id, None)
        else:
            self._announced[agent_id] = message
        return Ack(True, self._ends(find_instant(told.expires_at), ttl))

    def _ends(self, told: float | None, ttl: int) -> float:
        """By the own clock, which may not be the registry's."""
        mine = self._clock.now() + ttl
        return mine if told is None else min(mine, told)

    async def withdraw(self, agent_id: str) -> None:
        """By the word `shutdown`, which counts within a session of the owner (P-19)."""
        message = self._announced.pop(agent_id.lower(), None)
        if message is not None:
            await self._announce(agent_id.lower(), {**message, "action": "shutdown"})

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        if len(self._asked) >= limits.PENDING_QUERIES:
            raise RateLimited(f"{limits.PENDING_QUERIES} queries wait for answers.", hint="Wait for some of them.")
        query_id = f"{self._random.getrandbits(64):016x}"
        asked = self._asked[query_id] = _PendingQuery(query)
        try:
            await self._send(AnnounceFrameType.QUERY, build_query(msgspec.structs.replace(query, query_id=query_id)))
            _check(await _within(timeout, asked.ended))
        except TimeoutError:
            log.debug("ws: %s had not told all of its answers in time", self.source)
        finally:
            del self._asked[query_id]
        return asked.answers.found()

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._listening.subscribe(callback, query)
        await self._watch()
        return subscriber

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        """A registry answers by itself: `answer` is not asked."""
        self._heard = heard
        if heard is not None:
            self._begin(self._watch())

    # --- The session -----------------------------------------------------------------------------

    async def _connect(self) -> ClientConnection:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token is not None else {}
        try:
            return await _Connect(
                self.source,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=headers,
                compression=None,
                proxy=None,
                max_size=limits.SOCKET_MESSAGE_BYTES,
                open_timeout=limits.SOCKET_OPEN_SECONDS,
                ping_interval=limits.SOCKET_PING_SECONDS,
                ping_timeout=limits.SOCKET_SILENCE_SECONDS - limits.SOCKET_PING_SECONDS,
                close_timeout=limits.SOCKET_CLOSE_SECONDS,
                ssl=self._tls,
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise _unreachable(self.source, error) from None

    async def _stay(self) -> None:
        """Read while there is a session; then open another one, until the transport is closed."""
        attempt = 0
        while True:
            if self._connection is not None:
                attempt = 0 if await self._read(self._connection) else attempt
                await self._hang_up()
            least, most = limits.SOCKET_BACKOFF_SECONDS
            await self._pause(self._random.uniform(0, min(most, least * 2**attempt)))
            attempt = min(attempt + 1, 16)
            try:
                self._connection = await self._connect()
                if self._is_watching:
                    await self._subscribe()
            except WaypostError as error:
                log.debug("ws: %s", error)

    async def _read(self, connection: ClientConnection) -> bool:
        """Until the session ends. Whether anything came."""
        came = False
        try:
            async for data in connection:
                came = True
                try:
                    self._take(data)
                except WaypostError as error:
                    log.debug("ws: a frame of %s came to nothing: %s", self.source, error)
        except ConnectionClosed as error:
            log.debug("ws: %s ended the session: %s", self.source, error)
        return came

    async def _hang_up(self) -> None:
        """Whoever waits for an answer of this session waits no longer."""
        connection, self._connection = self._connection, None
        waiting = [future for each in self._acks.values() for future in each]
        for future in (*waiting, *(asked.ended for asked in self._asked.values())):
            if not future.done():
                future.set_exception(_lost(self.source))
        self._acks.clear()
        if connection is not None:
            await connection.close()

    async def _send(self, kind: AnnounceFrameType, message: JsonObject) -> None:
        data = write_frame(kind, message)
        if self._connection is None:
            raise _lost(self.source)
        try:
            await self._connection.send(data)
        except ConnectionClosed:
            raise _lost(self.source) from None

    async def _announce(self, agent_id: str, message: JsonObject) -> StatusMessage:
        """What the registry says to it. Answers come in the order of the messages."""
        ack: asyncio.Future[StatusMessage] = asyncio.get_running_loop().create_future()
        self._acks.setdefault(agent_id, deque()).append(ack)
        try:
            await self._send(AnnounceFrameType.ANNOUNCE, message)
            return await _within(QUERY_SECONDS, ack)
        except TimeoutError:
            raise Unavailable(f"{self.source} did not answer in time.", path="ws", hint="Announce again.") from None
        except WaypostError:
            self._forget(agent_id, ack)
            raise

    def _forget(self, agent_id: str, ack: asyncio.Future[StatusMessage]) -> None:
        waiting = self._acks.get(agent_id)
        if waiting is not None and ack in waiting:
            waiting.remove(ack)

    # --- What comes in ---------------------------------------------------------------------------

    def _take(self, data: str | bytes) -> None:
        read = parse_frame(data if isinstance(data, bytes) else data.encode())
        if read.type is AnnounceFrameType.STATUS:
            self._take_status(parse_status(read.message))
        elif read.type is AnnounceFrameType.RESPONSE:
            self._take_response(read.message)

    def _take_status(self, told: StatusMessage) -> None:
        if told.query_id == _WATCH:
            self._take_watch_status(told)
        elif told.query_id in self._asked:
            _settle(self._asked[told.query_id].ended, told)
        elif told.agent_id is not None:
            waiting = self._acks.get(told.agent_id)
            if waiting:
                _settle(waiting.popleft(), told)
                if not waiting:
                    del self._acks[told.agent_id]
        elif told.status == "error":
            log.debug("ws: %s says: %s", self.source, told.message)

    def _take_watch_status(self, told: StatusMessage) -> None:
        if told.status == "subscribed":
            self._cursor = told.cursor
        elif told.status == "error" and self._cursor is not None:  # too old, or of another history: look anew
            self._cursor = None
            self._begin(self._subscribe())

    def _take_response(self, message: JsonObject) -> None:
        query_id = message.get("query_id")
        plain = {name: value for name, value in message.items() if name not in _OWN}
        if query_id == _WATCH:
            self._cursor = message.get("cursor", self._cursor)
            self._see(plain, message.get("event"))
        elif query_id in self._asked:
            pin = self._listening.directory.pin_of(agent_id_of(plain))
            self._asked[query_id].answers.take(plain, pin)

    def _see(self, message: JsonObject, event: object) -> None:
        agent_id = agent_id_of(message)
        if message.get("matched") is False:
            gone = self._listening.directory.remove(agent_id, self._clock.now())
            if gone is not None and event == "expired":
                gone = msgspec.structs.replace(gone, kind="expired")
            self._listening.tell(gone)
            return
        self._listening.hear(message, self.source)
        own = self._announced.get(agent_id)
        if self._heard is not None and (own is None or own["agent"] != message["agent"]):
            self._begin(self._hear(self._heard, message))

    async def _hear(self, heard: MessageHandler, message: JsonObject) -> None:
        said = {name: value for name, value in message.items() if name != "matched"}
        try:
            await heard(said, MessageContext(transport=self.name, source=self.source))
        except WaypostError as error:
            log.debug("ws: an announcement was refused: %s", error)

    # --- Listening -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            await self._subscribe()

    async def _subscribe(self) -> None:
        """From where the last session ended, if there was one."""
        beside: JsonObject = {"subscribe": True} | ({"cursor": self._cursor} if self._cursor is not None else {})
        try:
            await self._send(AnnounceFrameType.QUERY, build_query(AgentQuery(query_id=_WATCH), **beside))
        except WaypostError as error:  # the next session does it
            log.debug("ws: %s", error)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)


def socket_url(url: str) -> str:
    """`https://host:port` → `wss://host:port/ws`."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}{path if path.endswith('/ws') else path + '/ws'}"


async def _within(seconds: float, future: asyncio.Future[StatusMessage]) -> StatusMessage:
    async with asyncio.timeout(seconds):
        return await future


def _settle(future: asyncio.Future[StatusMessage], told: StatusMessage) -> None:
    if not future.done():
        future.set_result(told)


def _check(told: StatusMessage) -> None:
    if told.status == "error":
        raise Unavailable(told.message or "The registry refused the query.", path="ws", hint="See its log.")


def _lost(source: str) -> Unavailable:
    return Unavailable(f"There is no session with {source}.", path="ws", hint="It is opened again in a while.")


def _unreachable(source: str, error: Exception) -> WaypostError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return Unauthorized(
            f"{source} refuses the session ({error.response.status_code}).",
            path="ws",
            hint="Give a token with the scopes discover:read and discover:write.",
        )
    return Unavailable(
        f"There is no session with {source} ({describe_failure(error)}).",
        path="ws",
        hint="Is the service running, and is this its address?",
    )
