"""One WebSocket session: messages come in one by one, each is answered before the next is read.

Announcements go the way of `POST /agents` (`inner_call.py`); questions are answered from the registry of this process. A
message that is refused is answered by a STATUS and costs nobody the session; many in a row do.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from waypost import limits
from waypost.errors import (
    CODES,
    CursorTooOld,
    InvalidDocument,
    QuotaExceeded,
    Unauthorized,
    WaypostError,
    codes_of,
)
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPE_READ, Principal
from waypost.server.asgi import Receive, Request, Send
from waypost.server.inner_call import InnerCall
from waypost.server.socket_outbox import Closing, Outbox
from waypost.server.socket_subscription import SocketSubscription, Told, answers, left, response
from waypost.trust.allowlist import find_agent_id
from waypost.trust.policy import require_scope
from waypost.wire.announce import AgentQuery, parse_query
from waypost.wire.announce_frames import (
    Frame,
    FrameType,
    Status,
    frame,
    parse_frame,
    parse_status,
    parse_text,
    wants_subscription,
)

if TYPE_CHECKING:
    from waypost.server.websocket import Sockets

log = logging.getLogger("waypost.announce")

_CLOSE_CODES = {codes.ann: codes.ws_close for codes in reversed(CODES.values())}  # of a name, the first row counts
_RENEW_AFTER = 0.75  # of the ttl: an agent that announces itself at half of it needs no help
_LAST_WORDS_SECONDS = 1.0
_REASON_BYTES = 120  # of a close frame


class _Left(Exception):
    """The other side is gone."""


class SocketSession:
    def __init__(self, sockets: Sockets, request: Request, principal: Principal, inner: InnerCall) -> None:
        self._sockets = sockets
        self._request = request
        self._principal = principal
        self._inner = inner
        self._outbox = Outbox(sockets.stall_seconds)
        self._group = asyncio.TaskGroup()
        self._subscriptions = 0
        self._refused = 0  # in a row
        self._alive: dict[str, asyncio.TimerHandle] = {}  # agents that this session keeps alive (P-28)

    async def run(self, receive: Receive, send: Send) -> None:
        ended: Closing | None = None
        try:
            async with self._group:
                self._group.create_task(self._outbox.drain(send))
                self._group.create_task(self._recheck())
                self._group.create_task(self._read(receive))
        except* Closing as group:
            ended = _first(group)
        except* (_Left, OSError):  # uvicorn's word for a client that left is an OSError
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
                raise _Left
            data, text = message.get("bytes"), message.get("text") or ""
            try:
                if data is not None:
                    await self._take(parse_frame(data), data[1:])
                else:
                    await self._take(parse_text(text.encode()), text.encode())
                self._refused = 0
            except WaypostError as error:
                await self._refuse(_status_of(error), codes_of(error).ws_close)

    async def _take(self, read: Frame, document: bytes) -> None:
        match read.type:
            case FrameType.ANNOUNCE:
                await self._announce(read.message, document)
            case FrameType.QUERY:
                await self._query(read.message)
            case FrameType.STATUS:
                parse_status(read.message)  # nothing was asked of the other side: its word is read and left
            case FrameType.RESPONSE:
                raise InvalidDocument("Nothing was asked.", path="$", hint="Announce with the type byte 0x01.")

    async def _say(self, status: Status) -> None:
        await self._outbox.put(frame(FrameType.STATUS, status.document()))

    async def _refuse(self, status: Status, close_code: int) -> None:
        await self._say(status)
        self._refused += 1
        if self._refused >= limits.SOCKET_REFUSALS:
            await self._outbox.flush(_LAST_WORDS_SECONDS)
            raise Closing(close_code, f"{self._refused} messages in a row were refused: {status.code}")

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
        await self._say(Status(status="done", agent_id=agent_id, expires_at=answer.get("expires_at")))

    def _keep_alive(self, agent_id: str, ttl: int) -> None:
        timer = self._alive.pop(agent_id, None)
        if timer is not None:
            timer.cancel()
        if ttl > 0 and len(self._alive) < limits.OWN_AGENTS:
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
            await self._refuse(status, codes_of(error).ws_close)

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
        await self._say(Status(status="done", query_id=query.query_id, count=count))

    async def _tell_all(self, query: AgentQuery, subscription: SocketSubscription | None) -> int:
        count = 0
        event = None if subscription is None else "added"
        now = self._sockets.registry.clock.now
        async for view in answers(self._sockets.views, self._principal, query):
            if subscription is not None:
                subscription.remember(view)
            await self._outbox.put(response(view.body, Told(query.query_id, event, ttl=left(view, now()))))
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
        subscription = SocketSubscription(
            self._sockets.views,
            self._principal,
            query,
            name=name,
            resumed=cursor is not None,
            now=self._sockets.registry.clock.now,
        )
        self._outbox.sent[name] = start
        count = 0 if cursor is not None else await self._tell_all(query, subscription)
        await self._say(Status(status="subscribed", query_id=query.query_id, count=count, cursor=start))
        self._group.create_task(subscription.pump(items, self._outbox.put))

    # --- The credential --------------------------------------------------------------------------

    async def _recheck(self) -> None:
        """W9: a credential that ended or was revoked ends the session, and so does one that lost its rights."""
        while True:
            await asyncio.sleep(self._sockets.recheck_seconds)
            try:
                principal = await self._sockets.principal(self._request)
            except Unauthorized as error:
                raise Closing(codes_of(error).ws_close, error.message) from None
            except WaypostError as error:  # who cannot be asked now is asked again
                log.debug("a credential could not be checked again: %s", error)
                continue
            if principal.subject != self._principal.subject or not principal.scopes >= self._principal.scopes:
                raise Closing(4403, "the credential lost rights")


def _first(group: BaseExceptionGroup[Closing]) -> Closing:
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


def _status_of(error: WaypostError, query_id: str | None = None) -> Status:
    return Status(
        status="error",
        query_id=query_id,
        code=codes_of(error).ann,
        message=str(error),
        reason="cursor_too_old" if isinstance(error, CursorTooOld) else error.details.get("reason"),
        retry_after=error.retry_after,
        supported=_supported(error.details),
    )


def _refusal_of(problem: JsonObject, agent_id: str | None) -> Status:
    told = problem.get("error", {})
    return Status(
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
