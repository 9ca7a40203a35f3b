"""A registry over a WebSocket as a transport (announce.md §6.5): one session announces, queries and subscribes.

A lost session is reopened after a random delay (P-28), and its subscription resumes from the last cursor. Messages that the
registry relays are verified here again. The registry answers queries itself: `serve` only receives.
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
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

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
from waypost.transports.directory import AgentDirectory, Subscriber, Subscriptions, agent_id_of, is_goodbye
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
from waypost.transports.websocket_client import open_websocket

log = logging.getLogger("waypost.transports")

_WATCH = "watch"  # the query id of the subscription
_SESSION_MEMBERS = ("event", "cursor", "expires_at", "query_id")  # the session adds these to a Response


class _PendingQuery:
    def __init__(self, query: AgentQuery) -> None:
        self.responses = QueryResponses(query)
        self.completed: asyncio.Future[StatusMessage] = asyncio.get_running_loop().create_future()


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
        """`url`: the HTTP URL of the registry, or the URL of its WebSocket."""
        self.source = socket_url(url)
        self._clock = clock
        self._token = token
        self._tls = tls
        self._random = random or randomness.SystemRandom()
        self._pause = pause
        self._subscriptions = Subscriptions(AgentDirectory(self.name) if directory is None else directory, clock)
        self._on_message: MessageHandler | None = None
        self._connection: ClientConnection | None = None
        self._session_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: dict[str, _PendingQuery] = {}
        self._acks: dict[str, deque[asyncio.Future[StatusMessage]]] = {}
        self._announced: dict[
            str, JsonObject
        ] = {}  # by agent_id: needed to withdraw; own announcements are not reported
        self._cursor: str | None = None
        self._is_watching = False

    async def open(self) -> None:
        self._connection = await self._connect()
        self._session_task = asyncio.get_running_loop().create_task(
            self._run_session(), name=f"websocket-session {self.source}"
        )

    async def close(self) -> None:
        task, self._session_task = self._session_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        for task in tuple(self._tasks):
            task.cancel()
        self._subscriptions.close()
        await self._close_session()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        try:
            agent_id = agent_id_of(message)
            status = await self._announce(agent_id, {**message, "ttl": ttl})
        except WaypostError as error:
            return Ack(False, reason=error.message)
        if status.status == "error":
            return Ack(False, reason=status.message or status.code or "")
        if is_goodbye(message):
            self._announced.pop(agent_id, None)
        else:
            self._announced[agent_id] = message
        return Ack(True, self._expiry(find_instant(status.expires_at), ttl))

    def _expiry(self, expires_at: float | None, ttl: int) -> float:
        """The earlier of the registry's expiry and the one by the local clock."""
        own_expiry = self._clock.now() + ttl
        return own_expiry if expires_at is None else min(own_expiry, expires_at)

    async def withdraw(self, agent_id: str) -> None:
        """Send the action `shutdown`, which is valid in a session of the owner (P-19)."""
        message = self._announced.pop(agent_id.lower(), None)
        if message is not None:
            await self._announce(agent_id.lower(), {**message, "action": "shutdown"})

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        if len(self._pending) >= limits.PENDING_QUERIES:
            raise RateLimited(
                f"The limit of {limits.PENDING_QUERIES} concurrent queries is reached.", hint="Try again."
            )
        query_id = f"{self._random.getrandbits(64):016x}"
        pending = self._pending[query_id] = _PendingQuery(query)
        try:
            await self._send(AnnounceFrameType.QUERY, build_query(msgspec.structs.replace(query, query_id=query_id)))
            _check(await _within(timeout, pending.completed))
        except TimeoutError:
            log.debug("ws: %s did not send all responses in time", self.source)
        finally:
            del self._pending[query_id]
        return pending.responses.messages()

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._subscriptions.subscribe(callback, query)
        await self._watch()
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        """`on_query` is not called: the registry answers queries itself."""
        self._on_message = on_message
        if on_message is not None:
            self._start(self._watch())

    async def _connect(self) -> ClientConnection:
        try:
            return await open_websocket(
                self.source,
                SUBPROTOCOL,
                max_size=limits.SOCKET_MESSAGE_BYTES,
                token=self._token,
                tls=self._tls,
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise _unreachable(self.source, error) from None

    async def _run_session(self) -> None:
        """Read from the session, and reopen it when it is lost, until the transport is closed."""
        attempt = 0
        while True:
            if self._connection is not None:
                attempt = 0 if await self._read(self._connection) else attempt
                await self._close_session()
            minimum, maximum = limits.SOCKET_BACKOFF_SECONDS
            await self._pause(self._random.uniform(0, min(maximum, minimum * 2**attempt)))
            attempt = min(attempt + 1, 16)
            try:
                self._connection = await self._connect()
                if self._is_watching:
                    await self._subscribe()
            except WaypostError as error:
                log.debug("ws: %s", error)

    async def _read(self, connection: ClientConnection) -> bool:
        """Read until the session ends; returns whether anything was received."""
        received = False
        try:
            async for data in connection:
                received = True
                try:
                    self._handle_frame(data)
                except WaypostError as error:
                    log.debug("ws: frame of %s rejected: %s", self.source, error)
        except ConnectionClosed as error:
            log.debug("ws: %s closed the session: %s", self.source, error)
        return received

    async def _close_session(self) -> None:
        """Close the connection and fail all pending requests."""
        connection, self._connection = self._connection, None
        acks = [future for futures in self._acks.values() for future in futures]
        for future in (*acks, *(pending.completed for pending in self._pending.values())):
            if not future.done():
                future.set_exception(_no_session(self.source))
        self._acks.clear()
        if connection is not None:
            await connection.close()

    async def _send(self, kind: AnnounceFrameType, message: JsonObject) -> None:
        data = write_frame(kind, message)
        if self._connection is None:
            raise _no_session(self.source)
        try:
            await self._connection.send(data)
        except ConnectionClosed:
            raise _no_session(self.source) from None

    async def _announce(self, agent_id: str, message: JsonObject) -> StatusMessage:
        """Send an announcement and wait for its status. Statuses arrive in the order of the messages."""
        ack: asyncio.Future[StatusMessage] = asyncio.get_running_loop().create_future()
        self._acks.setdefault(agent_id, deque()).append(ack)
        try:
            await self._send(AnnounceFrameType.ANNOUNCE, message)
            return await _within(QUERY_SECONDS, ack)
        except TimeoutError:
            raise Unavailable(f"{self.source} did not answer in time.", path="ws", hint="Announce again.") from None
        except WaypostError:
            self._remove_ack(agent_id, ack)
            raise

    def _remove_ack(self, agent_id: str, ack: asyncio.Future[StatusMessage]) -> None:
        acks = self._acks.get(agent_id)
        if acks is not None and ack in acks:
            acks.remove(ack)

    def _handle_frame(self, data: str | bytes) -> None:
        frame = parse_frame(data if isinstance(data, bytes) else data.encode())
        if frame.type is AnnounceFrameType.STATUS:
            self._handle_status(parse_status(frame.message))
        elif frame.type is AnnounceFrameType.RESPONSE:
            self._handle_response(frame.message)

    def _handle_status(self, status: StatusMessage) -> None:
        if status.query_id == _WATCH:
            self._handle_watch_status(status)
        elif status.query_id in self._pending:
            _set_result(self._pending[status.query_id].completed, status)
        elif status.agent_id is not None:
            acks = self._acks.get(status.agent_id)
            if acks:
                _set_result(acks.popleft(), status)
                if not acks:
                    del self._acks[status.agent_id]
        elif status.status == "error":
            log.debug("ws: error of %s: %s", self.source, status.message)

    def _handle_watch_status(self, status: StatusMessage) -> None:
        if status.status == "subscribed":
            self._cursor = status.cursor
        elif status.status == "error" and self._cursor is not None:  # the cursor is too old, or of another history
            self._cursor = None
            self._start(self._subscribe())

    def _handle_response(self, response: JsonObject) -> None:
        query_id = response.get("query_id")
        message = {name: value for name, value in response.items() if name not in _SESSION_MEMBERS}
        if query_id == _WATCH:
            self._cursor = response.get("cursor", self._cursor)
            self._handle_event(message, response.get("event"))
        elif query_id in self._pending:
            pin = self._subscriptions.directory.find_pin(agent_id_of(message))
            self._pending[query_id].responses.add(message, pin)

    def _handle_event(self, message: JsonObject, event: object) -> None:
        agent_id = agent_id_of(message)
        if message.get("matched") is False:
            sighting = self._subscriptions.directory.remove(agent_id, self._clock.now())
            if sighting is not None and event == "expired":
                sighting = msgspec.structs.replace(sighting, kind="expired")
            self._subscriptions.notify(sighting)
            return
        self._subscriptions.receive(message, self.source)
        own = self._announced.get(agent_id)
        if self._on_message is not None and (own is None or own["agent"] != message["agent"]):
            self._start(self._report(self._on_message, message))

    async def _report(self, on_message: MessageHandler, message: JsonObject) -> None:
        announcement = {name: value for name, value in message.items() if name != "matched"}
        try:
            await on_message(announcement, MessageContext(transport=self.name, source=self.source))
        except WaypostError as error:
            log.debug("ws: announcement rejected: %s", error)

    async def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            await self._subscribe()

    async def _subscribe(self) -> None:
        """Subscribe, from the cursor of the last session if there was one."""
        members: JsonObject = {"subscribe": True} | ({"cursor": self._cursor} if self._cursor is not None else {})
        try:
            await self._send(AnnounceFrameType.QUERY, build_query(AgentQuery(query_id=_WATCH), **members))
        except WaypostError as error:  # the next session subscribes
            log.debug("ws: %s", error)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def socket_url(url: str) -> str:
    """`https://host:port` → `wss://host:port/ws`."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}{path if path.endswith('/ws') else path + '/ws'}"


async def _within(seconds: float, future: asyncio.Future[StatusMessage]) -> StatusMessage:
    async with asyncio.timeout(seconds):
        return await future


def _set_result(future: asyncio.Future[StatusMessage], status: StatusMessage) -> None:
    if not future.done():
        future.set_result(status)


def _check(status: StatusMessage) -> None:
    if status.status == "error":
        raise Unavailable(status.message or "The registry rejected the query.", path="ws", hint="See its log.")


def _no_session(source: str) -> Unavailable:
    return Unavailable(
        f"There is no session with {source}.", path="ws", hint="Try again: it is reopened automatically."
    )


def _unreachable(source: str, error: Exception) -> WaypostError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return Unauthorized(
            f"{source} rejects the session ({error.response.status_code}).",
            path="ws",
            hint="Use a token with the scopes discover:read and discover:write.",
        )
    return Unavailable(
        f"Cannot open a session with {source} ({describe_failure(error)}).",
        path="ws",
        hint="Check that the service is running, and its address.",
    )
