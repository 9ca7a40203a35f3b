"""Changes of agents: their versions, changes that await confirmation, and the stream of all changes (SSE)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.events import etag_for
from waypost.model.json import dump_json, to_single_line
from waypost.model.query import MATCHES, Match, Query
from waypost.model.times import to_rfc3339_millis
from waypost.protocols.profile.discovery_request import parse_min_match
from waypost.registry.change_log import WatchBookmark, WatchCutOff, WatchEvent, WatchItem
from waypost.registry.publication import pending_view
from waypost.registry.reader import AgentHistory, VersionEntry
from waypost.registry.registry import Registry
from waypost.responses.agents import AgentVersion, Change, DiffResult, HistoryResult, PendingChangeView, Receipt
from waypost.responses.base import embedded
from waypost.server.api.rest.agents import location_of
from waypost.server.auth.authenticator import Authenticate, still_holds
from waypost.server.auth.callers import OpenSessions, TrustedProxies
from waypost.server.http.asgi import NO_STORE, AnyResponse, Headers, Request, StreamingResponse, json_response
from waypost.server.http.request_params import limit_parameter, read_limit, read_object
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import write_response

_MAX_VERSIONS = limits.HISTORY_VERSIONS + 1  # and the current one
_INCLUDES = ("agent",)
_DEFAULT_MIN_MATCH: Final[Match] = "possible"
_WITH_AGENT = ("registered", "updated", "renewed")  # events after which the agent exists
_ETAG_BODY = BodySpec(
    schema={
        "type": "object",
        "required": ["etag"],
        "properties": {"etag": {"type": "string", "description": "`held.etag` of the pending change"}},
    }
)


class HistoryApi:
    """`/api/v1/agents/{id}:history` and `:diff`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:history",
                operation="history",
                handler=self.history,
                summary="List the stored versions of an agent",
                parameters=(limit_parameter(_MAX_VERSIONS),),
                answers={200: HistoryResult},
            ),
            Route(
                method="GET",
                path="/api/v1/agents/{id}:diff",
                operation="diff",
                handler=self.diff,
                summary="Compare two versions of an agent",
                parameters=(
                    ParameterSpec(name="from", description="etag of a version; default: the one before `to`"),
                    ParameterSpec(name="to", description="etag of a version; default: the current one"),
                ),
                answers={200: DiffResult},
            ),
        ]

    async def history(self, call: RequestContext) -> AnyResponse:
        limit = read_limit(call.request, default=_MAX_VERSIONS, most=_MAX_VERSIONS)
        found = await self._registry.history(call.principal, call.id, limit)
        versions = tuple(_version(line, found) for line in found.lines)
        return json_response(HistoryResult(id=found.registration.id, versions=versions), headers=_private_headers())

    async def diff(self, call: RequestContext) -> AnyResponse:
        request = call.request
        found = await self._registry.compare(call.principal, call.id, request.param("from"), request.param("to"))
        result = DiffResult(
            id=found.id,
            from_=found.before.etag,
            to=found.after.etag,
            differences=tuple(found.differences),
            complete=len(found.differences) < limits.DIFFERENCES,
        )
        return json_response(result, headers=_private_headers())


def _private_headers() -> Headers:
    """The answer depends on the caller."""
    return [(b"cache-control", b"private, no-cache"), (b"vary", b"Authorization")]


def _version(line: VersionEntry, history: AgentHistory) -> AgentVersion:
    version = line.version
    return AgentVersion(
        etag=version.etag,
        at=to_rfc3339_millis(version.at),
        current=line.current,
        changed=None if line.changed is None else tuple(line.changed),
        subject=version.subject if history.names_subjects else None,
        digests=version.digests if history.names_subjects else None,
    )


class PendingChangesApi:
    """`/api/v1/agents/{id}:held`, `:confirm` and `:reject`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:held",
                operation="held",
                handler=self.held,
                summary="Show the pending change of a verified agent",
                answers={200: PendingChangeView},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:confirm",
                operation="confirm",
                handler=self.confirm,
                summary="Confirm a pending change",
                body=_ETAG_BODY,
                answers={200: Receipt},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:reject",
                operation="reject",
                handler=self.reject,
                summary="Reject a pending change",
                body=_ETAG_BODY,
                answers={200: Receipt},
            ),
        ]

    async def held(self, call: RequestContext) -> AnyResponse:
        change = await self._registry.pending_change(call.principal, call.id)
        return json_response(pending_view(change), headers=[NO_STORE])

    async def confirm(self, call: RequestContext) -> AnyResponse:
        receipt = await self._registry.confirm(call.principal, call.id, await _read_etag(call))
        return write_response(receipt, location_of(receipt))

    async def reject(self, call: RequestContext) -> AnyResponse:
        receipt = await self._registry.reject(call.principal, call.id, await _read_etag(call))
        return write_response(receipt, location_of(receipt))


async def _read_etag(call: RequestContext) -> str:
    etag = (await read_object(call.request)).get("etag")
    if not isinstance(etag, str) or not etag:
        raise InvalidParameter(
            "etag is missing.", path="$.etag", hint="Name the pending change: `held.etag` of the receipt."
        )
    return etag


class WatchApi:
    """`/api/v1/watch`: changes as server-sent events; ordered, unique and resumable.

    A stream ends with its credential: before each event or bookmark the credential is checked again."""

    def __init__(self, registry: Registry, authenticate: Authenticate, origin: TrustedProxies | None = None) -> None:
        self._registry = registry
        self._authenticate = authenticate
        self._origin = origin or TrustedProxies()
        self._sessions = OpenSessions(
            "watches",
            total=limits.WATCHERS,
            per_subject=limits.WATCHERS_PER_SUBJECT,
            per_address=limits.WATCHERS_PER_ADDRESS,
        )
        self._queries = OpenSessions(
            "standing queries",
            total=limits.STANDING_QUERIES,
            per_subject=limits.STANDING_QUERIES_PER_SUBJECT,
            per_address=limits.STANDING_QUERIES_PER_ADDRESS,
        )

    @property
    def watchers(self) -> int:
        return self._sessions.count

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/watch",
                operation="watch",
                handler=self.watch,
                summary="Follow changes",
                parameters=(
                    ParameterSpec(name="from", description="a cursor; 0: the oldest stored change; default: now"),
                    ParameterSpec(name="renewals", schema={"enum": ["true", "false"]}),
                    ParameterSpec(name="include", schema={"enum": list(_INCLUDES)}),
                    ParameterSpec(name="query", description="a task in words: only agents that fit it"),
                    ParameterSpec(
                        name="min_match",
                        schema={"enum": list(MATCHES)},
                        description=f"with `query`: the weakest match; default: {_DEFAULT_MIN_MATCH}",
                    ),
                    ParameterSpec(name="Last-Event-ID", place="header", description="overrides `from`"),
                ),
                answers={200: BodySpec(schema={"type": "string"}, content_type="text/event-stream")},
                described=False,  # the stream has no end, which API tools cannot handle; the reference describes it
            )
        ]

    async def watch(self, call: RequestContext) -> AnyResponse:
        return await self.watch_as(call, self._authenticate)

    async def watch_as(self, call: RequestContext, authenticate: Authenticate) -> AnyResponse:
        """`authenticate` finds the principal of the call again, as long as its credential is valid."""
        request = call.request
        cursor = request.header(b"last-event-id") or request.param("from")
        renewals = request.param("renewals", "false")
        if renewals not in ("true", "false"):
            raise InvalidParameter("renewals must be true or false.", path="renewals")
        include = request.param("include")
        if include is not None and include not in _INCLUDES:
            raise InvalidParameter(f"{include[:40]!r} cannot be included.", path="include", hint="Use include=agent.")
        query = _read_standing_query(request)
        address = self._origin.client_address(request.scope)
        kinds = (self._sessions,) if query is None else (self._sessions, self._queries)
        for sessions in kinds:
            sessions.check(call.principal, address)
        event_filter = None if query is None else self._registry.standing_query(query, call.principal)
        start, items = await self._registry.open_watch(
            call.principal, cursor, renewals=renewals == "true", event_filter=event_filter
        )
        return StreamingResponse(
            200,
            self._stream(
                items,
                [sessions.open(call.principal, address) for sessions in kinds],
                lambda: still_holds(authenticate, request, call.principal),
                with_agent=include == "agent",
            ),
            content_type=b"text/event-stream",
            receive=request.receive,
            headers=[NO_STORE, (b"x-accel-buffering", b"no"), (b"waypost-cursor", start.encode())],
            stall_seconds=limits.WATCH_STALL_SECONDS,
        )

    async def _stream(
        self,
        items: AsyncIterator[WatchItem],
        sessions: Sequence[AbstractContextManager[None]],
        is_authenticated: Callable[[], Awaitable[bool]],
        *,
        with_agent: bool,
    ) -> AsyncIterator[bytes]:
        with ExitStack() as stack:
            for session in sessions:
                stack.enter_context(session)
            yield b": watching\n\n"  # shows the client that the stream is open before the first change
            async for item in items:
                if not await is_authenticated():
                    return  # a client that connects again is told why
                yield sse_event(item, with_agent=with_agent)


def _read_standing_query(request: Request) -> Query | None:
    text, least = request.param("query"), request.param("min_match")
    if text is None:
        if least is not None:
            raise InvalidParameter("min_match needs a query.", path="min_match", hint="Add query=, a task in words.")
        return None
    if not text.strip():
        raise InvalidParameter("The query is empty.", path="query", hint="Describe the task in words.")
    if len(text) > limits.QUERY_CHARS:
        raise InvalidParameter(
            f"The query has {len(text)} characters; the limit is {limits.QUERY_CHARS}.",
            path="query",
            hint="Shorten it.",
        )
    return Query(text=text, min_match=parse_min_match(least, "min_match", _DEFAULT_MIN_MATCH))


def sse_event(item: WatchItem, *, with_agent: bool) -> bytes:
    """One server-sent event with one `data` line."""
    if isinstance(item, WatchBookmark):
        return _format_event("bookmark", item.cursor, b'{"type":"bookmark"}')
    if isinstance(item, WatchCutOff):
        reason = {
            "type": "cut_off",
            "code": "slow_consumer",
            "message": "The client is too far behind: resume from this cursor, or list again.",
        }
        return _format_event("cut_off", item.cursor, dump_json(reason))
    return _format_event(item.type, item.cursor, dump_json(_change(item, with_agent=with_agent)))


def _format_event(kind: str, cursor: str, data: bytes) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (cursor.encode(), kind.encode(), to_single_line(data))


def _change(item: WatchEvent, *, with_agent: bool) -> Change:
    event = item.event
    record = event.record if with_agent and item.type in _WITH_AGENT else None
    return Change(
        type=item.type,
        id=event.id,
        at=to_rfc3339_millis(event.at),
        etag=etag_for(event, item.type),
        match=item.match,
        agent=None if record is None else embedded(record),
    )
