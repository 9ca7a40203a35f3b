"""`WS /ws`: the announce protocol over a WebSocket (announce.md §6.5, P-27, P-28; THREATS §2.8, rows W).

`AnnounceWebSocket` admits a session before the upgrade. `AnnounceSession` handles its messages one by one. Announcements
become requests to `POST /agents`, so that admission, rate limits and audit are the same; queries are answered by the
registry of this process. `http/uvicorn_hooks.py` bounds frames and messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from waypost import limits
from waypost.errors import (
    ERROR_CODES,
    CursorTooOld,
    InvalidDocument,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    Unauthorized,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal, require_scope
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
from waypost.server.auth.callers import OpenSessions, RateLimits, TrustedHosts, TrustedProxies
from waypost.server.http.app import InProcessClient, RefuseUpgrade, deny_upgrade
from waypost.server.http.asgi import App, Receive, Request, Scope, Send
from waypost.server.http.metrics import Metrics
from waypost.server.renderer import Renderer
from waypost.trust.announce.trust_store import find_agent_id

log = logging.getLogger("waypost.announce")

TRY_AGAIN = 1013
VIA_WEBSOCKET = "ws"

_FORBIDDEN = 4403
# The close code of each error name of the protocol. Several rows have the same name; the first one counts.
_CLOSE_CODES = {codes.ann: codes.ws_close for codes in reversed(ERROR_CODES.values())}
_RENEW_AFTER = 0.75  # of the TTL: later than an agent that announces itself at half of it
_CLOSE_FLUSH_SECONDS = 1.0
_REASON_BYTES = 120  # of a close frame
_PAGE_SIZE = 200
_END_EVENTS = {"withdrawn": "removed", "expired": "expired"}
_EVENTS = {"registered": "added", "updated": "updated", "renewed": "renewed"}


class SessionClosed(Exception):
    """Ends the session with a close code and a reason for the peer."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class _QueuedFrame(NamedTuple):
    data: bytes
    stream: str  # the subscription that the frame belongs to, or ""
    cursor: str


class SendQueue:
    """Frames to send, in order. The queue is bounded: a peer that reads too slowly loses its session (W6)."""

    def __init__(self, stall_seconds: float = limits.SOCKET_STALL_SECONDS) -> None:
        self.sent: dict[str, str] = {}  # by subscription: the cursor of the last frame that was sent
        self._stall_seconds = stall_seconds
        self._frames: deque[_QueuedFrame] = deque()
        self._bytes = 0
        self._not_empty = asyncio.Event()
        self._progress = asyncio.Event()

    async def put(self, data: bytes, stream: str = "", cursor: str = "") -> None:
        """Append a frame. If the queue stays full, close the session and name the cursor to resume from."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                while self._is_full():
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            resume = self.sent.get(stream, "")
            raise SessionClosed(TRY_AGAIN, f"too slow; cursor={resume}" if resume else "too slow") from None
        self._frames.append(_QueuedFrame(data, stream, cursor))
        self._bytes += len(data)
        self._not_empty.set()

    async def drain(self, send: Send) -> None:
        """Send frames until the task is cancelled."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                await send({"type": "websocket.send", "bytes": frame.data})
                self._bytes -= len(frame.data)
                if frame.cursor:
                    self.sent[frame.stream] = frame.cursor
                self._progress.set()
            self._not_empty.clear()
            await self._not_empty.wait()

    async def flush(self, seconds: float) -> None:
        """Wait until the queue is empty, at most for `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._frames:
                    self._progress.clear()
                    await self._progress.wait()

    def _is_full(self) -> bool:
        return len(self._frames) >= limits.SOCKET_QUEUE_MESSAGES or self._bytes >= limits.SOCKET_QUEUE_BYTES


# --- Subscriptions --------------------------------------------------------------------------------

PutFrame = Callable[[bytes, str, str], Awaitable[None]]


class ResponseMeta(NamedTuple):
    """The members of a Response that are not signed."""

    query_id: str | None
    event: str | None = None
    cursor: str | None = None
    ttl: int | None = None  # seconds left, because the clock of the peer may differ


def response_frame(body: bytes, meta: ResponseMeta) -> bytes:
    """The frame of a Response. The signed bytes are not changed; the members of `meta` are appended."""
    members = {name: value for name, value in meta._asdict().items() if value is not None}
    frame = bytes((AnnounceFrameType.RESPONSE,))
    return frame + (body[:-1] + b"," + dump_json(members)[1:] if members else body)


def remaining_seconds(view: AnnounceView, now: float) -> int | None:
    return None if view.expires_at is None else max(1, math.ceil(view.expires_at - now))


async def matching_views(views: AnnounceViews, principal: Principal, query: AgentQuery) -> AsyncIterator[AnnounceView]:
    """All agents that match a query, read page by page."""
    names = tuple(each.name for each in query.requirements if each.name != "*")
    cursor: str | None = None
    while True:
        page = await views.page(principal, query, AnnouncedFilter(names=names, limit=_PAGE_SIZE, cursor=cursor))
        for view in page.views:
            yield view
        cursor = page.next_cursor
        if cursor is None:
            return


class AnnounceSubscription:
    """A query with its later changes (P-27, W10).

    Changes come from the change log as `watch` gives it: only those that the caller may see, under cursors that reveal
    nothing of others. A change of a matching agent sends the agent as it is now; one that no longer matches, or is
    gone, is reported by its id.
    """

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
        """`name` is unique in the session. `resumed`: the peer knows agents that an earlier session sent."""
        self.name = name
        self._views = views
        self._principal = principal
        self._query = query
        self._sent: dict[str, str] = {}  # agents that the peer knows: record id → agent_id
        self._is_partial = resumed  # the peer may know more agents than `_sent` holds
        self._now = now

    async def pump(self, items: AsyncIterator[WatchItem], put: PutFrame) -> None:
        """Send changes until the session or the service ends."""
        async for item in items:
            if isinstance(item, WatchCutOff):
                raise SessionClosed(TRY_AGAIN, "too far behind: subscribe without a cursor")
            if isinstance(item, WatchEvent):
                frame = await self._frame(item)
                if frame is not None:
                    await put(frame, self.name, item.cursor)

    def remember(self, view: AnnounceView) -> None:
        """Record that the agent was sent to the peer."""
        if len(self._sent) < limits.SOCKET_SUBSCRIBED_AGENTS:
            self._sent[view.record_id] = view.agent_id
        else:
            self._is_partial = True

    async def _frame(self, item: WatchEvent) -> bytes | None:
        record_id = item.event.id
        view = None if item.type in _END_EVENTS else await self._find(record_id)
        if view is None:
            return self._removal_frame(record_id, _END_EVENTS.get(item.type, "removed"), item)
        event = _EVENTS[item.type] if record_id in self._sent or self._is_partial else "added"
        self.remember(view)
        meta = ResponseMeta(self._query.query_id, event, item.cursor, remaining_seconds(view, self._now()))
        return response_frame(view.body, meta)

    async def _find(self, record_id: str) -> AnnounceView | None:
        """The agent as it is now, if it matches."""
        try:
            view = await self._views.get(self._principal, record_id)
        except NotFound:
            return None
        return view if self._query.matches(view.agent_id, view.capabilities) else None

    def _removal_frame(self, record_id: str, event: str, item: WatchEvent) -> bytes | None:
        """`matched` is false, so that a peer that does not know events ignores the frame (P-6)."""
        agent_id = self._sent.pop(record_id, None)
        if agent_id is None and self._is_partial:
            agent_id = find_agent_id(record_id.removeprefix("urn:uuid:"))
        if agent_id is None or self._query.agent_id not in (None, agent_id.lower()):
            return None
        body: JsonObject = {
            "protocol_version": "v1.0",
            "agent": {"agent_id": agent_id},
            "matched": False,
            "timestamp": to_rfc3339(item.event.at),
        }
        return response_frame(dump_json(body), ResponseMeta(self._query.query_id, event, item.cursor))


# --- Sessions -------------------------------------------------------------------------------------


class _PeerDisconnected(Exception):
    pass


class AnnounceSession:
    """One session. A refused message is answered with a STATUS; too many in a row close the session."""

    def __init__(
        self, sockets: AnnounceWebSocket, request: Request, principal: Principal, client: InProcessClient
    ) -> None:
        self._sockets = sockets
        self._request = request
        self._principal = principal
        self._client = client
        self._queue = SendQueue(sockets.stall_seconds)
        self._tasks = asyncio.TaskGroup()
        self._subscriptions = 0
        self._refusals = 0  # in a row
        self._renewals: dict[str, asyncio.TimerHandle] = {}  # of the agents that this session keeps alive (P-28)

    async def run(self, receive: Receive, send: Send) -> None:
        closed: SessionClosed | None = None
        try:
            async with self._tasks:
                self._tasks.create_task(self._queue.drain(send))
                self._tasks.create_task(self._recheck())
                self._tasks.create_task(self._receive(receive))
        except* SessionClosed as group:
            closed = _first(group)
        except* (_PeerDisconnected, OSError):  # uvicorn raises an OSError if the client has disconnected
            pass
        finally:
            for timer in self._renewals.values():
                timer.cancel()
        if closed is not None:
            reason = closed.reason.encode()[:_REASON_BYTES].decode(errors="ignore")
            await send({"type": "websocket.close", "code": closed.code, "reason": reason})

    async def _receive(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                raise _PeerDisconnected
            data, text = message.get("bytes"), message.get("text") or ""
            try:
                if data is not None:
                    await self._handle(parse_frame(data), data[1:])
                else:
                    await self._handle(parse_text(text.encode()), text.encode())
                self._refusals = 0
            except WaypostError as error:
                await self._refuse(_error_status(error), error_codes(error).ws_close)

    async def _handle(self, frame: AnnounceFrame, document: bytes) -> None:
        match frame.type:
            case AnnounceFrameType.ANNOUNCE:
                await self._announce(frame.message, document)
            case AnnounceFrameType.QUERY:
                await self._query(frame.message)
            case AnnounceFrameType.STATUS:
                parse_status(frame.message)  # only validated: the service sends no requests
            case AnnounceFrameType.RESPONSE:
                raise InvalidDocument(
                    "A Response was not requested.", path="$", hint="Announce with the type byte 0x01."
                )

    async def _send_status(self, status: StatusMessage) -> None:
        await self._queue.put(write_frame(AnnounceFrameType.STATUS, status.document()))

    async def _refuse(self, status: StatusMessage, close_code: int) -> None:
        await self._send_status(status)
        self._refusals += 1
        if self._refusals >= limits.SOCKET_REFUSALS:
            await self._queue.flush(_CLOSE_FLUSH_SECONDS)
            raise SessionClosed(close_code, f"{self._refusals} messages in a row were refused: {status.code}")

    # --- Announcements ---------------------------------------------------------------------------

    async def _announce(self, message: JsonObject, document: bytes) -> None:
        """`document` is the message as received: some signatures cover the original spelling of numbers."""
        agent_id = _agent_id_of(message)
        status, response = await self._client.post("/agents", document)
        if status != 200:
            refusal = _problem_status(response, agent_id)
            await self._refuse(refusal, _CLOSE_CODES.get(str(refusal.code), 1011))
            return
        if agent_id is not None:
            self._schedule_renewal(agent_id, response.get("ttl", 0))
        await self._send_status(
            StatusMessage(
                status="done", agent_id=agent_id, expires_at=response.get("expires_at"), ttl=response.get("ttl")
            )
        )

    def _schedule_renewal(self, agent_id: str, ttl_seconds: int) -> None:
        timer = self._renewals.pop(agent_id, None)
        if timer is not None:
            timer.cancel()
        if ttl_seconds > 0 and len(self._renewals) < limits.LOCAL_AGENTS:
            self._renewals[agent_id] = asyncio.get_running_loop().call_later(
                ttl_seconds * _RENEW_AFTER, lambda: self._tasks.create_task(self._renew(agent_id, ttl_seconds))
            )

    async def _renew(self, agent_id: str, ttl_seconds: int) -> None:
        """Renew the lease of an agent as long as its session is open. An agent that was removed is not renewed."""
        status, _ = await self._client.post(f"/api/v1/agents/urn%3Auuid%3A{agent_id}:renew", b"")
        if status == 200 or status >= 500:
            self._schedule_renewal(agent_id, ttl_seconds)
        else:
            self._renewals.pop(agent_id, None)

    # --- Queries ---------------------------------------------------------------------------------

    async def _query(self, message: JsonObject) -> None:
        query_id = message.get("query_id")
        try:
            await self._answer_query(message)
        except WaypostError as error:
            status = _error_status(error, query_id if isinstance(query_id, str) else None)
            await self._refuse(status, error_codes(error).ws_close)

    async def _answer_query(self, message: JsonObject) -> None:
        sockets = self._sockets
        require_scope(self._principal, SCOPE_READ, anonymous_ok=sockets.anonymous_read)
        if sockets.rates is not None:
            sockets.rates.read(self._principal, self._principal.address)
        query = parse_query(message)
        await sockets.registry.catch_up()
        if wants_subscription(message):
            await self._subscribe(query, _parse_cursor(message))
            return
        count = await self._send_matches(query, None)
        await self._send_status(StatusMessage(status="done", query_id=query.query_id, count=count))

    async def _send_matches(self, query: AgentQuery, subscription: AnnounceSubscription | None) -> int:
        count = 0
        event = None if subscription is None else "added"
        now = self._sockets.registry.clock.now
        async for view in matching_views(self._sockets.views, self._principal, query):
            if subscription is not None:
                subscription.remember(view)
            meta = ResponseMeta(query.query_id, event, ttl=remaining_seconds(view, now()))
            await self._queue.put(response_frame(view.body, meta))
            count += 1
        return count

    async def _subscribe(self, query: AgentQuery, cursor: str | None) -> None:
        if self._subscriptions >= limits.SOCKET_SUBSCRIPTIONS:
            raise QuotaExceeded(
                f"A session has at most {limits.SOCKET_SUBSCRIPTIONS} subscriptions.",
                path="$.subscribe",
                hint="Query for more than one agent in each, or open another session.",
            )
        registry = self._sockets.registry
        start, items = await registry.open_watch(self._principal, cursor, renewals=True)
        self._subscriptions += 1
        name = query.query_id or f"#{self._subscriptions}"
        subscription = AnnounceSubscription(
            self._sockets.views,
            self._principal,
            query,
            name=name,
            resumed=cursor is not None,
            now=registry.clock.now,
        )
        self._queue.sent[name] = start
        count = 0 if cursor is not None else await self._send_matches(query, subscription)
        await self._send_status(StatusMessage(status="subscribed", query_id=query.query_id, count=count, cursor=start))
        self._tasks.create_task(subscription.pump(items, self._queue.put))

    # --- Credentials -----------------------------------------------------------------------------

    async def _recheck(self) -> None:
        """W9: close the session if its credential expires, is revoked or loses rights."""
        while True:
            await asyncio.sleep(self._sockets.recheck_seconds)
            try:
                principal = await self._sockets.authenticate(self._request)
            except Unauthorized as error:
                raise SessionClosed(error_codes(error).ws_close, error.message) from None
            except WaypostError as error:  # e.g. the issuer cannot be reached: try again next time
                log.debug("could not check the credential of a session: %s", error)
                continue
            if principal.subject != self._principal.subject or not principal.scopes >= self._principal.scopes:
                raise SessionClosed(_FORBIDDEN, "the credential lost rights")


def _first(group: BaseExceptionGroup[SessionClosed]) -> SessionClosed:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _agent_id_of(message: JsonObject) -> str | None:
    agent = message.get("agent")
    agent_id = agent.get("agent_id") if isinstance(agent, dict) else None
    return find_agent_id(agent_id) if isinstance(agent_id, str) else None


def _parse_cursor(message: JsonObject) -> str | None:
    query = message["query"]
    cursor = message.get("cursor", query.get("cursor") if isinstance(query, dict) else None)
    if cursor is not None and not isinstance(cursor, str):
        raise InvalidDocument("A cursor must be a string.", path="$.cursor", hint="Send one that this service gave.")
    return cursor


def _error_status(error: WaypostError, query_id: str | None = None) -> StatusMessage:
    return StatusMessage(
        status="error",
        query_id=query_id,
        code=error_codes(error).ann,
        message=str(error),
        reason="cursor_too_old" if isinstance(error, CursorTooOld) else error.details.get("reason"),
        retry_after=error.retry_after,
        supported=_supported(error.details),
    )


def _problem_status(problem: JsonObject, agent_id: str | None) -> StatusMessage:
    error = problem.get("error", {})
    return StatusMessage(
        status="error",
        agent_id=agent_id,
        code=error.get("code", "ErrUnavailable"),
        message=problem.get("detail", "The service could not answer."),
        reason=error.get("reason"),
        retry_after=error.get("retry_after"),
        supported=_supported(problem),
    )


def _supported(details: JsonObject) -> tuple[str, ...] | None:
    versions = details.get("supported")
    return tuple(versions) if isinstance(versions, list) else None


# --- The application ------------------------------------------------------------------------------


class AnnounceWebSocket:
    """The ASGI application of `/ws`. `app` answers the requests of sessions, `refuse` a handshake that is denied."""

    def __init__(
        self,
        app: App,
        refuse: RefuseUpgrade,
        registry: Registry,
        renderer: Renderer,
        authenticator: Authenticator,
        hosts: TrustedHosts,
        metrics: Metrics,
        *,
        anonymous_read: bool,
        rates: RateLimits | None = None,
        origin: TrustedProxies | None = None,
        recheck_seconds: float = limits.SOCKET_RECHECK_SECONDS,
        stall_seconds: float = limits.SOCKET_STALL_SECONDS,
    ) -> None:
        self.app = app
        self._refuse = refuse
        self.registry = registry
        self.views = AnnounceViews(registry, renderer)
        self.rates = rates
        self.anonymous_read = anonymous_read
        self.recheck_seconds = recheck_seconds
        self.stall_seconds = stall_seconds
        self._authenticator = authenticator
        self._hosts = hosts
        self._metrics = metrics
        self._origin = origin or TrustedProxies()
        self._sessions = OpenSessions(
            "WebSockets",
            total=limits.SOCKETS,
            per_subject=limits.SOCKETS_PER_PRINCIPAL,
            per_address=limits.SOCKETS_PER_ADDRESS,
        )
        metrics.add_gauge(
            "websocket_sessions",
            "Open WebSocket sessions of the announce protocol.",
            lambda: self.sessions,
            is_summed=True,
        )

    @property
    def sessions(self) -> int:
        return self._sessions.count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request({**scope, "method": "GET"}, receive)
        await receive()  # the handshake
        try:
            principal = await self._admit(request)
        except WaypostError as error:
            await self._refuse(request, deny_upgrade(send), error)
            return
        self._metrics.observe("GET", "/ws", 101, request.elapsed_seconds())
        with self._sessions.open(principal, principal.address):
            await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
            client = InProcessClient(self.app, scope, VIA_WEBSOCKET)
            await AnnounceSession(self, request, principal, client).run(receive, send)

    async def authenticate(self, request: Request) -> Principal:
        """The principal of the credential that the handshake carried."""
        principal = await self._authenticator.authenticate(request)
        return msgspec.structs.replace(principal, address=self._origin.client_address(request.scope))

    async def _admit(self, request: Request) -> Principal:
        self._hosts.check_host(request)
        self._hosts.check_origin(request)
        principal = await self.authenticate(request)
        if not principal.has(SCOPE_WRITE):
            require_scope(principal, SCOPE_READ, anonymous_ok=self.anonymous_read)
        if SUBPROTOCOL not in request.scope.get("subprotocols", ()):
            raise InvalidRequest(
                f"The subprotocol {SUBPROTOCOL} is required.",
                path="Sec-WebSocket-Protocol",
                hint=f"Offer the subprotocol {SUBPROTOCOL}.",
            )
        self._sessions.check(principal, principal.address)
        return principal
