"""Agents in the order of every list, for each audience: by folded name, then by id.

What was loaded is put in order when a list is first asked for or changes: a start need not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sortedcontainers import SortedList

from waypost.model.names import fold
from waypost.model.principal import record_scopes
from waypost.model.record import LISTED
from waypost.model.registration import Entry
from waypost.registry.roll import SEEN_BY, Roll

_EVERYTHING = "*"

Position = tuple[str, str]  # (folded name, id)


class Orders:
    def __init__(self) -> None:
        self._orders: dict[str, SortedList[Position]] = {_EVERYTHING: SortedList()}
        self._loaded: list[tuple[Sequence[Any], ...]] = []  # columns that were loaded, and are not in the orders yet

    def load(self, roll: Roll) -> None:
        self._loaded.append(tuple(map(roll.column, ("name", "id", "status", *SEEN_BY))))

    def add(self, entry: Entry) -> None:
        position = position_of(entry)
        for scope in (*entry.scopes, _EVERYTHING):
            self._order(scope).add(position)

    def discard(self, entry: Entry) -> None:
        position = position_of(entry)
        for scope in (*entry.scopes, _EVERYTHING):
            self._order(scope).discard(position)

    def visible_to(self, audience: frozenset[str] | None) -> list[SortedList[Position]]:
        everything = self._order(_EVERYTHING)
        if audience is None:
            return [everything]
        return [self._orders[scope] for scope in sorted(audience) if self._orders.get(scope)] or [SortedList()]

    def _make(self) -> None:
        """Sorted once; what is handed to each order is sorted already, which costs it next to nothing."""
        loaded, self._loaded = self._loaded, []
        positions: dict[str, list[Position]] = {_EVERYTHING: []}
        listed = [
            (fold(name), agent_id, record_scopes(*seen_by))
            for columns in loaded
            for name, agent_id, status, *seen_by in zip(*columns, strict=True)
            if status in LISTED
        ]
        listed.sort()
        for folded, agent_id, scopes in listed:
            position = (folded, agent_id)
            positions[_EVERYTHING].append(position)
            for scope in scopes:
                positions.setdefault(scope, []).append(position)
        for scope, found in positions.items():
            self._orders.setdefault(scope, SortedList()).update(found)

    def _order(self, scope: str) -> SortedList[Position]:
        if self._loaded:
            self._make()
        found = self._orders.get(scope)
        if found is None:
            found = self._orders[scope] = SortedList()
        return found


def position_of(entry: Entry) -> Position:
    return (fold(entry.name), entry.id)
