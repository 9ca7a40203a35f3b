"""One subscription of a WebSocket session: the agents that fit, then what becomes of them (P-27, W10).

Changes are read from the log as `watch` reads it: only those that the caller sees, under cursors that tell nothing of others.
What fits is answered with the agent as it is now; whoever no longer fits or is gone is told of by its id alone.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from waypost import limits
from waypost.errors import NotFound
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import Principal
from waypost.model.times import to_rfc3339
from waypost.registry.announced import Wish
from waypost.registry.changes import CutOff, Seen, WatchItem
from waypost.server.announced_view import AnnouncedViews, View
from waypost.server.socket_outbox import TRY_AGAIN, Closing
from waypost.trust.allowlist import find_agent_id
from waypost.wire.announce import AgentQuery
from waypost.wire.announce_frames import FrameType

RESPONSE = bytes((FrameType.RESPONSE,))
Put = Callable[[bytes, str, str], Awaitable[None]]
_PAGE = 200
_ENDS = {"withdrawn": "removed", "expired": "expired"}
_BEGINS = {"registered": "added", "updated": "updated", "renewed": "renewed"}


class Told(NamedTuple):
    """What stands in a Response beside what was signed."""

    query_id: str | None
    event: str | None = None
    cursor: str | None = None
    ttl: int | None = None  # what is left: the other side may have another clock

    def members(self) -> JsonObject:
        return {name: value for name, value in self._asdict().items() if value is not None}


def response(body: bytes, told: Told) -> bytes:
    """The frame of an answer: its bytes stay as they are, what is told stands at their end."""
    members = told.members()
    return RESPONSE + (body[:-1] + b"," + dump_json(members)[1:] if members else body)


def left(view: View, now: float) -> int | None:
    """Seconds that an agent still has."""
    return None if view.ends is None else max(1, math.ceil(view.ends - now))


async def answers(views: AnnouncedViews, principal: Principal, query: AgentQuery) -> AsyncIterator[View]:
    """All agents that fit, a page at a time."""
    wish = Wish(names=tuple(wanted.name for wanted in query.wanted if wanted.name != "*"), limit=_PAGE)
    while True:
        listed = await views.page(principal, query, wish)
        for view in listed.views:
            yield view
        if listed.next_cursor is None:
            return
        wish = Wish(names=wish.names, limit=_PAGE, cursor=listed.next_cursor)


class SocketSubscription:
    def __init__(
        self,
        views: AnnouncedViews,
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

    async def pump(self, items: AsyncIterator[WatchItem], put: Put) -> None:
        """Until the session ends, or the service does."""
        async for item in items:
            if isinstance(item, CutOff):
                raise Closing(TRY_AGAIN, "too far behind: subscribe without a cursor")
            if isinstance(item, Seen):
                frame = await self._frame(item)
                if frame is not None:
                    await put(frame, self.name, item.cursor)

    def remember(self, view: View) -> None:
        """The other side was shown this agent."""
        if len(self._told) < limits.SOCKET_TOLD:
            self._told[view.record_id] = view.agent_id
        else:
            self._forgot = True

    async def _frame(self, item: Seen) -> bytes | None:
        record_id = item.event.id
        view = None if item.type in _ENDS else await self._find(record_id)
        if view is None:
            return self._gone(record_id, _ENDS.get(item.type, "removed"), item)
        kind = _BEGINS[item.type] if record_id in self._told or self._forgot else "added"
        self.remember(view)
        return response(view.body, Told(self._query.query_id, kind, item.cursor, left(view, self._now())))

    async def _find(self, record_id: str) -> View | None:
        """The agent as it is now, if it fits."""
        try:
            view = await self._views.get(self._principal, record_id)
        except NotFound:
            return None
        return view if self._query.matches(view.agent_id, view.capabilities) else None

    def _gone(self, record_id: str, kind: str, item: Seen) -> bytes | None:
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
        return response(dump_json(body), Told(self._query.query_id, kind, item.cursor))
