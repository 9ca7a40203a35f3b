"""What waits to be sent on one socket: bounded, in order. A reader that is too slow ends its session, not our memory (W6)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from waypost import limits
from waypost.errors import (
    ERROR_CODES,
    CursorTooOld,
    InvalidDocument,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
    Unavailable,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.messages import AgentQuery, parse_query
from waypost.protocols.announce.websocket import (
    SUBPROTOCOL,
    AnnounceFrame,
    AnnounceFrameType,
    StatusMessage,
    parse_frame,
    parse_status,
    parse_text,
    wants_subscription,
    write_frame,
)
from waypost.registry.catalog.entries import AnnouncedFilter
from waypost.registry.change_log import WatchCutOff, WatchEvent, WatchItem
from waypost.registry.registry import Registry
from waypost.server.api.announce.views import AnnounceView, AnnounceViews
from waypost.server.auth.authenticator import Authenticator
from waypost.server.auth.rate_limits import RateLimits, rate_limit_key
from waypost.server.auth.trusted_hosts import TrustedHosts, TrustedProxies
from waypost.server.http.asgi import App, Receive, Request, Scope, Send
from waypost.server.http.metrics import Metrics
from waypost.server.http.websockets import InProcessClient, RefuseUpgrade, deny_upgrade
from waypost.server.renderer import Renderer
from waypost.trust.announce.allow_list import find_agent_id
from waypost.trust.policy import require_scope

if TYPE_CHECKING:
    pass  # import-removed


TRY_AGAIN = 1013


class SessionClosed(Exception):
    """The session is over: the code and the words that the other side is told."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class _QueuedFrame(NamedTuple):
    data: bytes
    stream: str  # the subscription that it belongs to; empty: none
    cursor: str


class SendQueue:
    def __init__(self, stall_seconds: float = limits.SOCKET_STALL_SECONDS) -> None:
        self.sent: dict[str, str] = {}  # how far each subscription has come on the wire
        self._stall_seconds = stall_seconds
        self._waiting: deque[_QueuedFrame] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, data: bytes, stream: str = "", cursor: str = "") -> None:
        """Waits for room, for a while. What is dropped then can be had again from the cursor that is told."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                while self._is_full():
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            resume = self.sent.get(stream, "")
            raise SessionClosed(TRY_AGAIN, f"too slow; cursor={resume}" if resume else "too slow") from None
        self._waiting.append(_QueuedFrame(data, stream, cursor))
        self._bytes += len(data)
        self._news.set()

    async def drain(self, send: Send) -> None:
        """Goes on until it is cancelled."""
        while True:
            while self._waiting:
                item = self._waiting.popleft()
                await send({"type": "websocket.send", "bytes": item.data})
                self._bytes -= len(item.data)
                if item.cursor:
                    self.sent[item.stream] = item.cursor
                self._room.set()
            self._news.clear()
            await self._news.wait()

    async def flush(self, seconds: float) -> None:
        """Give what waits a moment to leave, before a last word."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._waiting:
                    self._room.clear()
                    await self._room.wait()

    def _is_full(self) -> bool:
        return len(self._waiting) >= limits.SOCKET_QUEUE_MESSAGES or self._bytes >= limits.SOCKET_QUEUE_BYTES


# ---- One subscription of a WebSocket session: the agents that fit, then what becomes of them (P-27, W10).
#
# Changes are read from the log as `watch` reads it: only those that the caller sees, under cursors that tell nothing of others.
# What fits is answered with the agent as it is now; whoever no longer fits or is gone is told of by its id alone.

RESPONSE = bytes((AnnounceFrameType.RESPONSE,))

PutFrame = Callable[[bytes, str, str], Awaitable[None]]

_PAGE = 200

_ENDS = {"withdrawn": "removed", "expired": "expired"}

_BEGINS = {"registered": "added", "updated": "updated", "renewed": "renewed"}


class ResponseMeta(NamedTuple):
    """What stands in a Response beside what was signed."""

    query_id: str | None
    event: str | None = None
    cursor: str | None = None
    ttl: int | None = None  # what is left: the other side may have another clock

    def members(self) -> JsonObject:
        return {name: value for name, value in self._asdict().items() if value is not None}


def response_frame(body: bytes, told: ResponseMeta) -> bytes:
    """The frame of an answer: its bytes stay as they are, what is told stands at their end."""
    members = told.members()
    return RESPONSE + (body[:-1] + b"," + dump_json(members)[1:] if members else body)


def remaining_seconds(view: AnnounceView, now: float) -> int | None:
    """Seconds that an agent still has."""
    return None if view.ends is None else max(1, math.ceil(view.ends - now))


async def matching_views(views: AnnounceViews, principal: Principal, query: AgentQuery) -> AsyncIterator[AnnounceView]:
    """All agents that fit, a page at a time."""
    wish = AnnouncedFilter(names=tuple(wanted.name for wanted in query.wanted if wanted.name != "*"), limit=_PAGE)
    while True:
        listed = await views.page(principal, query, wish)
        for view in listed.views:
            yield view
        if listed.next_cursor is None:
            return
        wish = AnnouncedFilter(names=wish.names, limit=_PAGE, cursor=listed.next_cursor)


class AnnounceSubscription:
    def __init__(
        self,
        views: AnnounceViews,
        principal: Principal,
        query: AgentQuery,
        *,
        name: str,
        resumed: bool,
        now: Callable[[], float],
    ) -> None:
        """`name` tells it from the others of its session. Resumed: what was told before is not known any more."""
        self.name = name
        self._views = views
        self._principal = principal
        self._query = query
        self._told: dict[str, str] = {}  # record id → agent_id of what the other side was shown
        self._forgot = resumed
        self._now = now

    async def pump(self, items: AsyncIterator[WatchItem], put: PutFrame) -> None:
        """Until the session ends, or the service does."""
        async for item in items:
            if isinstance(item, WatchCutOff):
                raise SessionClosed(TRY_AGAIN, "too far behind: subscribe without a cursor")
            if isinstance(item, WatchEvent):
                frame = await self._frame(item)
                if frame is not None:
                    await put(frame, self.name, item.cursor)

    def remember(self, view: AnnounceView) -> None:
        """The other side was shown this agent."""
        if len(self._told) < limits.SOCKET_SUBSCRIBED_AGENTS:
            self._told[view.record_id] = view.agent_id
        else:
            self._forgot = True

    async def _frame(self, item: WatchEvent) -> bytes | None:
        record_id = item.event.id
        view = None if item.type in _ENDS else await self._find(record_id)
        if view is None:
            return self._gone(record_id, _ENDS.get(item.type, "removed"), item)
        kind = _BEGINS[item.type] if record_id in self._told or self._forgot else "added"
        self.remember(view)
        return response_frame(
            view.body, ResponseMeta(self._query.query_id, kind, item.cursor, remaining_seconds(view, self._now()))
        )

    async def _find(self, record_id: str) -> AnnounceView | None:
        """The agent as it is now, if it fits."""
        try:
            view = await self._views.get(self._principal, record_id)
        except NotFound:
            return None
        return view if self._query.matches(view.agent_id, view.capabilities) else None

    def _gone(self, record_id: str, kind: str, item: WatchEvent) -> bytes | None:
        """`matched` is false, so that a reader who knows no events leaves it alone (P-6)."""
        agent_id = self._told.pop(record_id, None)
        if agent_id is None and self._forgot:
            agent_id = find_agent_id(record_id.removeprefix("urn:uuid:"))
        if agent_id is None or self._query.agent_id not in (None, agent_id.lower()):
            return None
        body: JsonObject = {
            "protocol_version": "v1.0",
            "agent": {"agent_id": agent_id},
            "matched": False,
            "timestamp": to_rfc3339(item.event.at),
        }
        return response_frame(dump_json(body), ResponseMeta(self._query.query_id, kind, item.cursor))


# ---- One WebSocket session: messages come in one by one, each is answered before the next is read.
#
# Announcements go the way of `POST /agents` (`inner_call.py`); questions are answered from the registry of this process. A
# message that is refused is answered by a STATUS and costs nobody the session; many in a row do.

log = logging.getLogger("waypost.announce")

_CLOSE_CODES = {
    codes.ann: codes.ws_close for codes in reversed(ERROR_CODES.values())
}  # of a name, the first row counts

_RENEW_AFTER = 0.75  # of the ttl: an agent that announces itself at half of it needs no help

_CLOSE_FLUSH_SECONDS = 1.0

_REASON_BYTES = 120  # of a close frame


class _PeerDisconnected(Exception):
    """The other side is gone."""


class AnnounceSession:
    def __init__(
        self, sockets: AnnounceWebSocket, request: Request, principal: Principal, inner: InProcessClient
    ) -> None:
        self._sockets = sockets
        self._request = request
        self._principal = principal
        self._inner = inner
        self._outbox = SendQueue(sockets.stall_seconds)
        self._group = asyncio.TaskGroup()
        self._subscriptions = 0
        self._refused = 0  # in a row
        self._alive: dict[str, asyncio.TimerHandle] = {}  # agents that this session keeps alive (P-28)

    async def run(self, receive: Receive, send: Send) -> None:
        ended: SessionClosed | None = None
        try:
            async with self._group:
                self._group.create_task(self._outbox.drain(send))
                self._group.create_task(self._recheck())
                self._group.create_task(self._read(receive))
        except* SessionClosed as group:
            ended = _first(group)
        except* (_PeerDisconnected, OSError):  # uvicorn's word for a client that left is an OSError
            ended = None
        finally:
            for timer in self._alive.values():
                timer.cancel()
        if ended is not None:
            reason = ended.reason.encode()[:_REASON_BYTES].decode(errors="ignore")
            await send({"type": "websocket.close", "code": ended.code, "reason": reason})

    # --- What comes in ---------------------------------------------------------------------------

    async def _read(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                raise _PeerDisconnected
            data, text = message.get("bytes"), message.get("text") or ""
            try:
                if data is not None:
                    await self._take(parse_frame(data), data[1:])
                else:
                    await self._take(parse_text(text.encode()), text.encode())
                self._refused = 0
            except WaypostError as error:
                await self._refuse(_status_of(error), error_codes(error).ws_close)

    async def _take(self, read: AnnounceFrame, document: bytes) -> None:
        match read.type:
            case AnnounceFrameType.ANNOUNCE:
                await self._announce(read.message, document)
            case AnnounceFrameType.QUERY:
                await self._query(read.message)
            case AnnounceFrameType.STATUS:
                parse_status(read.message)  # nothing was asked of the other side: its word is read and left
            case AnnounceFrameType.RESPONSE:
                raise InvalidDocument("Nothing was asked.", path="$", hint="Announce with the type byte 0x01.")

    async def _say(self, status: StatusMessage) -> None:
        await self._outbox.put(write_frame(AnnounceFrameType.STATUS, status.document()))

    async def _refuse(self, status: StatusMessage, close_code: int) -> None:
        await self._say(status)
        self._refused += 1
        if self._refused >= limits.SOCKET_REFUSALS:
            await self._outbox.flush(_CLOSE_FLUSH_SECONDS)
            raise SessionClosed(close_code, f"{self._refused} messages in a row were refused: {status.code}")

    # --- Announcing ------------------------------------------------------------------------------

    async def _announce(self, message: JsonObject, document: bytes) -> None:
        """`document`: the message as it came, since older signatures depend on how numbers are written."""
        agent_id = _agent_id_of(message)
        status, answer = await self._inner.post("/agents", document)
        if status != 200:
            told = _refusal_of(answer, agent_id)
            await self._refuse(told, _CLOSE_CODES.get(str(told.code), 1011))
            return
        ttl = answer.get("ttl", 0)
        if agent_id is not None:
            self._keep_alive(agent_id, ttl)
        await self._say(StatusMessage(status="done", agent_id=agent_id, expires_at=answer.get("expires_at")))

    def _keep_alive(self, agent_id: str, ttl: int) -> None:
        timer = self._alive.pop(agent_id, None)
        if timer is not None:
            timer.cancel()
        if ttl > 0 and len(self._alive) < limits.LOCAL_AGENTS:
            loop = asyncio.get_running_loop()
            self._alive[agent_id] = loop.call_later(ttl * _RENEW_AFTER, self._renew_soon, agent_id, ttl)

    def _renew_soon(self, agent_id: str, ttl: int) -> None:
        self._group.create_task(self._renew(agent_id, ttl))

    async def _renew(self, agent_id: str, ttl: int) -> None:
        """The session stands for the agent: while it is there, so is the agent. One that was removed stays away."""
        status, _ = await self._inner.post(f"/api/v1/agents/urn%3Auuid%3A{agent_id}:renew", b"")
        if status == 200 or status >= 500:
            self._keep_alive(agent_id, ttl)
        else:
            self._alive.pop(agent_id, None)

    # --- Asking ----------------------------------------------------------------------------------

    async def _query(self, message: JsonObject) -> None:
        query_id = message.get("query_id")
        try:
            await self._answer(message)
        except WaypostError as error:
            status = _status_of(error, query_id if isinstance(query_id, str) else None)
            await self._refuse(status, error_codes(error).ws_close)

    async def _answer(self, message: JsonObject) -> None:
        sockets = self._sockets
        require_scope(self._principal, SCOPE_READ, anonymous_ok=sockets.anonymous_read)
        if sockets.rates is not None:
            sockets.rates.read(self._principal, self._principal.address)
        query = parse_query(message)
        await sockets.catch_up()
        if wants_subscription(message):
            await self._subscribe(query, _cursor_of(message))
            return
        count = await self._tell_all(query, None)
        await self._say(StatusMessage(status="done", query_id=query.query_id, count=count))

    async def _tell_all(self, query: AgentQuery, subscription: AnnounceSubscription | None) -> int:
        count = 0
        event = None if subscription is None else "added"
        now = self._sockets.registry.clock.now
        async for view in matching_views(self._sockets.views, self._principal, query):
            if subscription is not None:
                subscription.remember(view)
            await self._outbox.put(
                response_frame(view.body, ResponseMeta(query.query_id, event, ttl=remaining_seconds(view, now())))
            )
            count += 1
        return count

    async def _subscribe(self, query: AgentQuery, cursor: str | None) -> None:
        if self._subscriptions >= limits.SOCKET_SUBSCRIPTIONS:
            raise QuotaExceeded(
                f"A session has at most {limits.SOCKET_SUBSCRIPTIONS} subscriptions.",
                path="$.subscribe",
                hint="Ask for more than one agent in each, or open another session.",
            )
        start, items = await self._sockets.registry.open_watch(self._principal, cursor, renewals=True)
        self._subscriptions += 1
        name = query.query_id or f"#{self._subscriptions}"
        subscription = AnnounceSubscription(
            self._sockets.views,
            self._principal,
            query,
            name=name,
            resumed=cursor is not None,
            now=self._sockets.registry.clock.now,
        )
        self._outbox.sent[name] = start
        count = 0 if cursor is not None else await self._tell_all(query, subscription)
        await self._say(StatusMessage(status="subscribed", query_id=query.query_id, count=count, cursor=start))
        self._group.create_task(subscription.pump(items, self._outbox.put))

    # --- The credential --------------------------------------------------------------------------

    async def _recheck(self) -> None:
        """W9: a credential that ended or was revoked ends the session, and so does one that lost its rights."""
        while True:
            await asyncio.sleep(self._sockets.recheck_seconds)
            try:
                principal = await self._sockets.principal(self._request)
            except Unauthorized as error:
                raise SessionClosed(error_codes(error).ws_close, error.message) from None
            except WaypostError as error:  # who cannot be asked now is asked again
                log.debug("a credential could not be checked again: %s", error)
                continue
            if principal.subject != self._principal.subject or not principal.scopes >= self._principal.scopes:
                raise SessionClosed(4403, "the credential lost rights")


def _first(group: BaseExceptionGroup[SessionClosed]) -> SessionClosed:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _agent_id_of(message: JsonObject) -> str | None:
    agent = message.get("agent")
    agent_id = agent.get("agent_id") if isinstance(agent, dict) else None
    return find_agent_id(agent_id) if isinstance(agent_id, str) else None


def _cursor_of(message: JsonObject) -> str | None:
    query = message["query"]
    cursor = message.get("cursor", query.get("cursor") if isinstance(query, dict) else None)
    if cursor is not None and not isinstance(cursor, str):
        raise InvalidDocument("A cursor is a text.", path="$.cursor", hint="Send one that this service gave.")
    return cursor


def _status_of(error: WaypostError, query_id: str | None = None) -> StatusMessage:
    return StatusMessage(
        status="error",
        query_id=query_id,
        code=error_codes(error).ann,
        message=str(error),
        reason="cursor_too_old" if isinstance(error, CursorTooOld) else error.details.get("reason"),
        retry_after=error.retry_after,
        supported=_supported(error.details),
    )


def _refusal_of(problem: JsonObject, agent_id: str | None) -> StatusMessage:
    told = problem.get("error", {})
    return StatusMessage(
        status="error",
        agent_id=agent_id,
        code=told.get("code", "ErrUnavailable"),
        message=problem.get("detail", "The service could not answer."),
        reason=told.get("reason"),
        retry_after=told.get("retry_after"),
        supported=_supported(problem),
    )


def _supported(details: JsonObject) -> tuple[str, ...] | None:
    found = details.get("supported")
    return tuple(found) if isinstance(found, list) else None


# ---- `WS /ws`: the announce protocol over a WebSocket (announce.md §6.5; THREATS §2.8, rows W).
#
# Who may open a session is decided here, before the upgrade, in the words of every other refusal. What a session does is in
# `socket_session.py`; what may be on the wire below its messages, in `bounded_socket.py`.

PATH = b"/ws"

VIA_WEBSOCKET = "ws"

_OPEN = "open"


async def _always_current() -> None:
    """A process that writes is never behind."""


class AnnounceWebSocket:
    """The ASGI application of WebSockets. `app` answers what sessions ask for; it is set by whoever puts the two together."""

    app: App
    refuse: RefuseUpgrade

    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        authenticator: Authenticator,
        hosts: TrustedHosts,
        metrics: Metrics,
        *,
        anonymous_read: bool,
        rates: RateLimits | None = None,
        origin: TrustedProxies | None = None,
        catch_up: Callable[[], Awaitable[None]] = _always_current,
        recheck_seconds: float = limits.SOCKET_RECHECK_SECONDS,
        stall_seconds: float = limits.SOCKET_STALL_SECONDS,
    ) -> None:
        self.registry = registry
        self.views = AnnounceViews(registry, renderer)
        self.rates = rates
        self.anonymous_read = anonymous_read
        self.catch_up = catch_up
        self.recheck_seconds = recheck_seconds
        self.stall_seconds = stall_seconds
        self._authenticator = authenticator
        self._hosts = hosts
        self._metrics = metrics
        self._origin = origin or TrustedProxies()
        self._open: Counter[str] = Counter()
        metrics.observe_sessions(lambda: self.sessions)

    @property
    def sessions(self) -> int:
        return self._open.total()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request({**scope, "method": "GET"}, receive)
        await receive()  # the handshake
        try:
            principal = await self._admitted(request)
        except WaypostError as error:
            await self.refuse(request, deny_upgrade(send), error)
            return
        name = _session_owner(principal)
        self._open[name] += 1
        self._metrics.count("GET", "/ws", 101)
        try:
            await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
            await AnnounceSession(self, request, principal, InProcessClient(self.app, scope, VIA_WEBSOCKET)).run(
                receive, send
            )
        finally:
            self._open[name] -= 1
            if self._open[name] <= 0:
                del self._open[name]

    async def principal(self, request: Request) -> Principal:
        """Who the credential of a handshake stands for, now."""
        found = await self._authenticator.principal(request)
        return msgspec.structs.replace(found, address=self._origin.address(request.scope))

    async def _admitted(self, request: Request) -> Principal:
        self._hosts.check(request)
        principal = await self.principal(request)
        if not principal.has(SCOPE_WRITE):
            require_scope(principal, SCOPE_READ, anonymous_ok=self.anonymous_read)
        _check_subprotocol(request)
        if self.sessions >= limits.SOCKETS:
            raise Unavailable("Too many WebSockets are open.", hint="Come back later.", retry_after=10)
        if principal.via != _OPEN and self._open[_session_owner(principal)] >= limits.SOCKETS_PER_PRINCIPAL:
            raise RateLimited(
                f"{limits.SOCKETS_PER_PRINCIPAL} WebSockets of this caller are open.",
                path="Authorization",
                hint="Close some of them: one carries many agents.",
                retry_after=10,
            )
        return principal


def _session_owner(principal: Principal) -> str:
    return f"subject {principal.subject}" if principal.subject is not None else rate_limit_key(principal.address)


def _check_subprotocol(request: Request) -> None:
    if SUBPROTOCOL not in request.scope.get("subprotocols", ()):
        raise InvalidRequest(
            "The WebSocket speaks another protocol.",
            path="Sec-WebSocket-Protocol",
            hint=f"Offer the subprotocol {SUBPROTOCOL}.",
        )
