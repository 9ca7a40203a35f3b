"""Earlier versions of an agent, on the service's own face: the list of them, and how two of them differ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, Unavailable
from waypost.model.events import etag_for
from waypost.model.json import dump_json, to_single_line
from waypost.model.times import to_rfc3339_millis
from waypost.registry.change_log import WatchBookmark, WatchCutOff, WatchEvent, WatchItem
from waypost.registry.publication import pending_to_json
from waypost.registry.reader import AgentHistory, VersionComparison, VersionEntry
from waypost.registry.registry import Registry
from waypost.server.api.rest.agents import location_of
from waypost.server.http.asgi import AnyResponse, Headers, StreamingResponse, json_response
from waypost.server.http.document_responses import write_response
from waypost.server.http.request_params import read_limit, read_object
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.response_schemas import DIFF, HELD, HISTORY, RECEIPT

_MAX_VERSIONS = limits.HISTORY_VERSIONS + 1  # and the current one


class HistoryApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:history",
                operation="history",
                handler=self.history,
                summary="The versions of an agent that are kept",
                parameters=(
                    ParameterSpec(name="limit", schema={"type": "integer", "minimum": 1, "maximum": _MAX_VERSIONS}),
                ),
                answers={200: BodySpec(schema=HISTORY)},
            ),
            Route(
                method="GET",
                path="/api/v1/agents/{id}:diff",
                operation="diff",
                handler=self.diff,
                summary="How two versions of an agent differ",
                parameters=(
                    ParameterSpec(name="from", description="etag of a version; the one before `to`, when absent"),
                    ParameterSpec(name="to", description="etag of a version; the current one, when absent"),
                ),
                answers={200: BodySpec(schema=DIFF)},
            ),
        ]

    async def history(self, call: RequestContext) -> AnyResponse:
        limit = read_limit(call.request, default=_MAX_VERSIONS, most=_MAX_VERSIONS)
        found = await self._registry.history(call.principal, call.id, limit)
        return json_response(_history_json(found), headers=_headers())

    async def diff(self, call: RequestContext) -> AnyResponse:
        request = call.request
        found = await self._registry.compare(call.principal, call.id, request.param("from"), request.param("to"))
        return json_response(_comparison_json(found), headers=_headers())


def _headers() -> Headers:
    """Who asks decides what is seen."""
    return [(b"cache-control", b"private, no-cache"), (b"vary", b"Authorization")]


def _history_json(found: AgentHistory) -> dict[str, Any]:
    lines = [_line_json(line, names_subjects=found.names_subjects) for line in found.lines]
    return {"id": found.registration.id, "versions": lines}


def _line_json(line: VersionEntry, *, names_subjects: bool) -> dict[str, Any]:
    version = line.version
    told: dict[str, Any] = {"etag": version.etag, "at": to_rfc3339_millis(version.at), "current": line.current}
    if line.changed is not None:
        told["changed"] = line.changed
    if names_subjects:
        told["subject"] = version.subject
        told["digests"] = version.digests
    return told


def _comparison_json(found: VersionComparison) -> dict[str, Any]:
    return {
        "id": found.id,
        "from": found.before.etag,
        "to": found.after.etag,
        "differences": [msgspec.to_builtins(each) for each in found.differences],
        "complete": len(found.differences) < limits.DIFFERENCES,
    }


# ---- What waits for its owner, on the service's own face: show it, confirm it, reject it.

_ETAG_BODY = BodySpec(
    schema={
        "type": "object",
        "required": ["etag"],
        "properties": {"etag": {"type": "string", "description": "of the change that is meant, as `held.etag` says"}},
    }
)

_NOT_STORED = (b"cache-control", b"no-store")


class PendingChangesApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:held",
                operation="held",
                handler=self.held,
                summary="The change of a verified agent that waits",
                answers={200: BodySpec(schema=HELD)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:confirm",
                operation="confirm",
                handler=self.confirm,
                summary="Let a change pass that waits",
                body=_ETAG_BODY,
                answers={200: BodySpec(schema=RECEIPT)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:reject",
                operation="reject",
                handler=self.reject,
                summary="Forget a change that waits",
                body=_ETAG_BODY,
                answers={200: BodySpec(schema=RECEIPT)},
            ),
        ]

    async def held(self, call: RequestContext) -> AnyResponse:
        waiting = await self._registry.pending_change(call.principal, call.id)
        return json_response(pending_to_json(waiting), headers=[_NOT_STORED])

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
            "etag is missing.", path="$.etag", hint="Name the change that you have seen: `held.etag` of the answer."
        )
    return etag


# ---- Changes as server-sent events: ordered, unique, resumable (GET /api/v1/watch).

_INCLUDES = ("agent",)


class WatchApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.watchers = 0

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/watch",
                operation="watch",
                handler=self.watch,
                summary="Follow changes",
                parameters=(
                    ParameterSpec(
                        name="from", description="a cursor; 0 is the beginning of what is kept; absent is now"
                    ),
                    ParameterSpec(name="renewals", schema={"enum": ["true", "false"]}),
                    ParameterSpec(name="include", schema={"enum": list(_INCLUDES)}),
                    ParameterSpec(name="Last-Event-ID", place="header", description="wins over from"),
                ),
                answers={200: BodySpec(schema={"type": "string"}, content_type="text/event-stream")},
                described=False,  # it never ends: described in words in the reference
            )
        ]

    async def watch(self, call: RequestContext) -> AnyResponse:
        request = call.request
        cursor = request.header(b"last-event-id") or request.param("from")
        renewals = request.param("renewals", "false")
        if renewals not in ("true", "false"):
            raise InvalidParameter("renewals must be true or false.", path="renewals")
        include = request.param("include")
        if include is not None and include not in _INCLUDES:
            raise InvalidParameter(f"{include[:40]!r} cannot be included.", path="include", hint="Use include=agent.")
        if self.watchers >= limits.WATCHERS:
            raise Unavailable("Too many watchers.", retry_after=10)
        start, items = await self._registry.open_watch(call.principal, cursor, renewals=renewals == "true")
        return StreamingResponse(
            200,
            self._stream(items, with_agent=include == "agent"),
            content_type=b"text/event-stream",
            receive=request.receive,
            headers=[
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
                (b"waypost-cursor", start.encode()),
            ],
            stall_seconds=limits.WATCH_STALL_SECONDS,
        )

    async def _stream(self, items: AsyncIterator[WatchItem], *, with_agent: bool) -> AsyncIterator[bytes]:
        self.watchers += 1
        try:
            yield b": watching\n\n"  # tells the client that it is heard before the first change
            async for item in items:
                yield sse_event(item, with_agent=with_agent)
        finally:
            self.watchers -= 1


def sse_event(item: WatchItem, *, with_agent: bool) -> bytes:
    """One event, with one `data` line."""
    if isinstance(item, WatchBookmark):
        return _format_event("bookmark", item.cursor, b'{"type":"bookmark"}')
    if isinstance(item, WatchCutOff):
        reason = {
            "type": "cut_off",
            "code": "slow_consumer",
            "message": "Too far behind: resume from this cursor, or list anew.",
        }
        return _format_event("cut_off", item.cursor, dump_json(reason))
    return _format_event(item.type, item.cursor, _event_json(item, with_agent=with_agent))


def _format_event(kind: str, cursor: str, data: bytes) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (cursor.encode(), kind.encode(), to_single_line(data))


def _event_json(seen: WatchEvent, *, with_agent: bool) -> bytes:
    event = seen.event
    body: dict[str, object] = {
        "type": seen.type,
        "id": event.id,
        "at": to_rfc3339_millis(event.at),
        "etag": etag_for(event, seen.type),
    }
    if with_agent and event.record is not None and seen.type in ("registered", "updated", "renewed"):
        body["agent"] = msgspec.Raw(event.record)
    return dump_json(body)
