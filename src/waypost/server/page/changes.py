"""The latest changes for each audience, newest first, one for each agent: a list for whoever does not stay to watch.

What an audience is shown depends on nothing that it may not see: each scope has its own few (P8). At the start these are the
agents that changed last; from then on the log fills them.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from waypost import limits
from waypost.model.events import Event, EventType, as_seen_by
from waypost.model.json import parse_object
from waypost.model.registration import Entry
from waypost.registry.engine import Registry
from waypost.registry.ports import Committed
from waypost.server.page.cards import agent_path
from waypost.server.page.markup import Html, el
from waypost.server.page.times import moment

_EVERYTHING = "*"
_GONE = frozenset(("withdrawn", "expired"))


class ShownChange(msgspec.Struct, frozen=True, kw_only=True):
    type: EventType
    id: str
    name: str
    at: float
    revision: int


class RecentChanges:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: OrderedDict[str, OrderedDict[str, Event]] = OrderedDict()
        self._is_filled = False
        registry.observe(self._take_in)

    def latest(self, audience: frozenset[str] | None, most: int) -> list[ShownChange]:
        if not self._is_filled:
            self._fill()
        found: dict[str, Event] = {}
        for scope in (_EVERYTHING,) if audience is None else sorted(audience):
            for event in self._kept.get(scope, {}).values():
                if event.id not in found or _place(found[event.id]) < _place(event):
                    found[event.id] = event
        newest = heapq.nlargest(most, found.values(), key=_place)
        return [shown for event in newest if (shown := _shown(event, audience)) is not None]

    def _take_in(self, committed: Committed) -> None:
        event = committed.event
        if event.type != "renewed":
            self._put(event, {*event.scopes, *(event.before or ()), _EVERYTHING})

    def _put(self, event: Event, scopes: Iterable[str]) -> None:
        for scope in scopes:
            kept = self._kept.setdefault(scope, OrderedDict())
            self._kept.move_to_end(scope)
            kept[event.id] = event
            kept.move_to_end(event.id)
            if len(kept) > limits.PAGE_CHANGES_KEPT:
                kept.popitem(last=False)
        while len(self._kept) > limits.PAGE_AUDIENCES:
            self._kept.popitem(last=False)

    def _fill(self) -> None:
        """Once, when somebody looks: a start does not wait for it."""
        self._is_filled = True
        catalogue = self._registry.catalogue
        by_scope: dict[str, list[Entry]] = {}
        for agent_id in catalogue.ids():
            entry = catalogue.find(agent_id)
            for scope in (*entry.scopes, _EVERYTHING) if entry is not None else ():
                by_scope.setdefault(scope, []).append(entry)  # type: ignore[arg-type]
        for scope, entries in by_scope.items():
            kept: dict[str, Event] = self._kept.get(scope) or {}
            older = heapq.nlargest(limits.PAGE_CHANGES_KEPT, entries, key=lambda each: (each.changed_at, each.revision))
            told = [*(_event_of(entry) for entry in older if entry.id not in kept), *kept.values()]
            newest = sorted(told, key=_place)[-limits.PAGE_CHANGES_KEPT :]
            self._kept[scope] = OrderedDict((event.id, event) for event in newest)


def _place(event: Event) -> tuple[float, int]:
    return event.at, event.revision


def _event_of(entry: Entry) -> Event:
    """What is known of a change from before the start."""
    return Event(
        revision=entry.revision,
        type="updated",
        id=entry.id,
        at=entry.changed_at,
        etag=entry.etag,
        owner=entry.owner,
        visibility=entry.visibility,
        invitees=entry.invitees,
        before=entry.scopes,
        shown=entry.name,
    )


def _shown(event: Event, audience: frozenset[str] | None) -> ShownChange | None:
    kind = as_seen_by(event, audience)
    if kind is None:
        return None
    name = "" if kind in _GONE else _name_of(event)
    return ShownChange(type=kind, id=event.id, name=name or event.id, at=event.at, revision=event.revision)


def _name_of(event: Event) -> str:
    if event.record is None:
        return event.shown or ""
    name = parse_object(event.record).get("name")
    return name if isinstance(name, str) else ""


def change_line(change: ShownChange) -> Html:
    named = (
        el("span", change.name, class_="name")
        if change.type in _GONE
        else el("a", change.name, href=agent_path(change.id), class_="name")
    )
    kind = el("span", change.type, class_=f"kind {change.type}")
    return el("li", kind, " ", named, " ", moment(change.at), data_id=change.id)
