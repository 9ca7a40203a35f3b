"""What changes leave behind for each audience: how many there were, when the last one was, and a sum of what is there.

It keeps no agent: an audience is told by these alone that what it sees is another set than before.
"""

from __future__ import annotations

from collections.abc import Iterable

from waypost.model.principal import record_scopes
from waypost.model.record import LISTED
from waypost.model.registration import Entry
from waypost.registry.roll import SEEN_BY, Roll

_EVERYTHING = "*"
_MARK_BITS = 2**64 - 1


class Traces:
    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._modified: dict[str, float] = {}
        self._marks: dict[str, int] = {}

    def load(self, roll: Roll) -> None:
        """The newest change of each audience; marks are made with the tags."""
        latest: dict[tuple[str, str, tuple[str, ...]], float] = {}
        times, seen = roll.column("changed_at"), [*map(roll.column, SEEN_BY)]
        if times and all(len(set(column)) == 1 for column in seen):  # one owner, one visibility
            latest[seen[0][0], seen[1][0], seen[2][0]] = max(times)
        else:
            for seen_by, at in zip(zip(*seen, strict=True), times, strict=True):
                if at > latest.get(seen_by, 0.0):
                    latest[seen_by] = at
        newest: dict[tuple[str, ...], float] = {}
        for seen_by, at in latest.items():
            scopes = record_scopes(*seen_by)
            newest[scopes] = max(at, newest.get(scopes, 0.0))
        for scopes, at in newest.items():
            self.touch(scopes, at)

    def touch(self, scopes: Iterable[str], at: float) -> None:
        for scope in (*scopes, _EVERYTHING):
            self._changes[scope] = self._changes.get(scope, 0) + 1
            if at > self._modified.get(scope, 0.0):
                self._modified[scope] = at

    def note(self, scopes: Iterable[str], at: float) -> None:
        """A change that counts for `last_modified` and for nothing else."""
        for scope in (*scopes, _EVERYTHING):
            self._modified[scope] = max(at, self._modified.get(scope, 0.0))

    def mark(self, entry: Entry) -> None:
        self._add(entry, _mark_of(entry))

    def unmark(self, entry: Entry) -> None:
        self._add(entry, -_mark_of(entry))

    def _add(self, entry: Entry, mark: int) -> None:
        for scope in (*entry.scopes, _EVERYTHING):
            self._marks[scope] = self._marks.get(scope, 0) + mark

    def generation(self, audience: frozenset[str] | None) -> int:
        if audience is None:
            return self._changes.get(_EVERYTHING, 0)
        return sum(self._changes.get(scope, 0) for scope in audience)

    def fingerprint(self, audience: frozenset[str] | None) -> str:
        scopes: Iterable[str] = (_EVERYTHING,) if audience is None else audience
        return f"{sum(self._marks.get(scope, 0) for scope in scopes) & _MARK_BITS:016x}"

    def last_modified(self, audience: frozenset[str] | None) -> float | None:
        scopes: Iterable[str] = (_EVERYTHING,) if audience is None else audience
        found = [self._modified[scope] for scope in scopes if scope in self._modified]
        return max(found) if found else None


def _mark_of(entry: Entry) -> int:
    """A number made of the content: marks of a set add up to the same sum in whatever order it came about."""
    mark = int.from_bytes(entry.etag[:12].encode("ascii", "replace"))
    return mark if entry.status in LISTED else ~mark  # who is dead leaves the list without a change of its content
