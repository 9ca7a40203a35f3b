"""Changes as server-sent events: ordered, unique, resumable (GET /api/v1/watch)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, Unavailable
from waypost.model.events import etag_as_seen
from waypost.model.json import dump_json
from waypost.model.json_lines import one_line
from waypost.model.times import to_rfc3339_millis
from waypost.registry.changes import Bookmark, CutOff, Seen, WatchItem
from waypost.registry.engine import Registry
from waypost.server.asgi import AnyResponse, StreamingResponse
from waypost.server.routes import Body, Call, Parameter, Route

_INCLUDES = ("agent",)


class WatchFace:
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
                    Parameter(name="from", description="a cursor; 0 is the beginning of what is kept; absent is now"),
                    Parameter(name="renewals", schema={"enum": ["true", "false"]}),
                    Parameter(name="include", schema={"enum": list(_INCLUDES)}),
                    Parameter(name="Last-Event-ID", place="header", description="wins over from"),
                ),
                answers={200: Body(schema={"type": "string"}, content_type="text/event-stream")},
                described=False,  # it never ends: described in words in the reference
            )
        ]

    async def watch(self, call: Call) -> AnyResponse:
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
                yield frame(item, with_agent=with_agent)
        finally:
            self.watchers -= 1


def frame(item: WatchItem, *, with_agent: bool) -> bytes:
    """One event, with one `data` line."""
    if isinstance(item, Bookmark):
        return _frame("bookmark", item.cursor, b'{"type":"bookmark"}')
    if isinstance(item, CutOff):
        reason = {
            "type": "cut_off",
            "code": "slow_consumer",
            "message": "Too far behind: resume from this cursor, or list anew.",
        }
        return _frame("cut_off", item.cursor, dump_json(reason))
    return _frame(item.type, item.cursor, _event_json(item, with_agent=with_agent))


def _frame(kind: str, cursor: str, data: bytes) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (cursor.encode(), kind.encode(), one_line(data))


def _event_json(seen: Seen, *, with_agent: bool) -> bytes:
    event = seen.event
    body: dict[str, object] = {
        "type": seen.type,
        "id": event.id,
        "at": to_rfc3339_millis(event.at),
        "etag": etag_as_seen(event, seen.type),
    }
    if with_agent and event.record is not None and seen.type in ("registered", "updated", "renewed"):
        body["agent"] = msgspec.Raw(event.record)
    return dump_json(body)
