"""The latest change per agent, newest first, per audience: for visitors who do not watch.

Each scope has its own bounded list, so what an audience sees does not depend on hidden agents (P8). The lists start with
the agents that changed last and are then fed by the change log.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from waypost import limits
from waypost.model.events import Event, EventType, event_type_for
from waypost.model.principal import INTERNAL, PUBLIC
from waypost.model.registration import CatalogEntry
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry

_EVERYTHING = "*"
_SHARED = (_EVERYTHING, PUBLIC, INTERNAL)
_REMOVAL_EVENTS = frozenset(("withdrawn", "expired"))


class ChangeSummary(msgspec.Struct, frozen=True):
    """A change without its record, which may be large, but with its name."""

    event: Event
    name: str

    @property
    def place(self) -> tuple[float, int]:
        return self.event.at, self.event.revision


class VisibleChange(msgspec.Struct, frozen=True, kw_only=True):
    type: EventType
    id: str
    name: str
    at: float

    @property
    def is_removal(self) -> bool:
        return self.type in _REMOVAL_EVENTS


class RecentChanges:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: OrderedDict[str, OrderedDict[str, ChangeSummary]] = OrderedDict()
        self._is_filled = False
        self._pending: list[tuple[Event, str]] = []  # not merged yet: changes are more frequent than reads of this list
        registry.subscribe(self._on_change)

    def latest(self, audience: frozenset[str] | None, most: int) -> list[VisibleChange]:
        self._take_in()
        if not self._is_filled:
            self._fill()
        found: dict[str, ChangeSummary] = {}
        for scope in (_EVERYTHING,) if audience is None else sorted(audience):
            for agent_id, change in self._kept.get(scope, {}).items():
                if agent_id not in found or found[agent_id].place < change.place:
                    found[agent_id] = change
        newest = heapq.nlargest(most, found.values(), key=lambda change: change.place)
        return [shown for change in newest if (shown := _visible_change(change, audience)) is not None]

    def _on_change(self, committed: CommittedChange) -> None:
        event = committed.event
        if event.type != "renewed":
            self._pending.append(
                (event, committed.registration.record.name if committed.registration is not None else "")
            )
            if len(self._pending) >= limits.PAGE_CHANGES_PENDING:
                self._take_in()

    def _take_in(self) -> None:
        """Keep only the newest few of a public scope; older ones would be dropped anyway."""
        pending, self._pending = self._pending, []
        newest: dict[str, set[str]] = {scope: set() for scope in _SHARED}
        puts: list[tuple[ChangeSummary, list[str]]] = []
        for event, name in reversed(pending):
            scopes = [
                scope
                for scope in {*event.scopes, *(event.before or ()), _EVERYTHING}
                if scope not in newest or _is_among(newest[scope], event.id)
            ]
            if scopes:
                puts.append((ChangeSummary(msgspec.structs.replace(event, record=None), name), scopes))
        for change, scopes in reversed(puts):
            self._put(change, scopes)

    def _put(self, change: ChangeSummary, scopes: Iterable[str]) -> None:
        for scope in scopes:
            kept = self._kept.setdefault(scope, OrderedDict())
            self._kept.move_to_end(scope)
            kept[change.event.id] = change
            kept.move_to_end(change.event.id)
            if len(kept) > limits.PAGE_CHANGE_CACHE:
                kept.popitem(last=False)
        while len(self._kept) > limits.PAGE_AUDIENCES:
            # Widely visible changes are never dropped for private ones: their absence would reveal them.
            del self._kept[next(kept for kept in self._kept if kept not in _SHARED)]

    def _fill(self) -> None:
        """Load once on first use, so that start-up does not wait."""
        self._is_filled = True
        by_scope: dict[str, list[CatalogEntry]] = {}
        for entry in self._registry.entries:
            for scope in (*entry.scopes, _EVERYTHING):
                by_scope.setdefault(scope, []).append(entry)
        for scope, entries in by_scope.items():
            kept: dict[str, ChangeSummary] = self._kept.get(scope) or {}
            older = heapq.nlargest(limits.PAGE_CHANGE_CACHE, entries, key=lambda each: (each.changed_at, each.revision))
            changes = [*(_change_of(entry) for entry in older if entry.id not in kept), *kept.values()]
            newest = sorted(changes, key=lambda change: change.place)[-limits.PAGE_CHANGE_CACHE :]
            self._kept[scope] = OrderedDict((change.event.id, change) for change in newest)


def _is_among(newest: set[str], agent_id: str) -> bool:
    """Whether a change is the newest of its agent and among the newest few; records it if so."""
    if agent_id in newest or len(newest) >= limits.PAGE_CHANGE_CACHE:
        return False
    newest.add(agent_id)
    return True


def _change_of(entry: CatalogEntry) -> ChangeSummary:
    """A change from before the start, as far as it is known."""
    event = Event(
        revision=entry.revision,
        type="updated",
        id=entry.id,
        at=entry.changed_at,
        etag=entry.etag,
        owner=entry.owner,
        visibility=entry.visibility,
        invitees=entry.invitees,
        before=entry.scopes,
    )
    return ChangeSummary(event, entry.name)


def _visible_change(change: ChangeSummary, audience: frozenset[str] | None) -> VisibleChange | None:
    event = change.event
    kind = event_type_for(event, audience)
    if kind is None:
        return None
    name = event.id if kind in _REMOVAL_EVENTS else change.name or event.id
    return VisibleChange(type=kind, id=event.id, name=name, at=event.at)
