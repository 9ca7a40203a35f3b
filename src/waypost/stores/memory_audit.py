"""The audit trail in memory: the same tree as in the file."""

from __future__ import annotations

from collections.abc import Sequence

from waypost import limits
from waypost.registry.ports import AuditEntry, AuditPage, AuditQuery
from waypost.registry.trail import leaf_of
from waypost.trust.merkle import Span, leaf_hash
from waypost.trust.tiles import WIDTH, Frontier, span_hash


class MemoryAudit:
    def __init__(self) -> None:
        self._frontier = Frontier()
        self._leaves: dict[int, bytes] = {}  # by number, without the oldest
        self._tiles: dict[tuple[int, int], bytes] = {}

    @property
    def size(self) -> int:
        return self._frontier.size

    def append(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            number = self.size + 1
            self._leaves[number] = leaf = leaf_of(entry, number)
            for tile in self._frontier.append(leaf_hash(leaf)):
                self._tiles[tile.level, tile.number] = tile.hashes

    def page(self, query: AuditQuery) -> AuditPage:
        oldest = next(iter(self._leaves), 1)
        after = max(query.after, oldest - 1)
        last = min(self.size, after + limits.AUDIT_SCAN)
        found: list[bytes] = []
        for number in range(after + 1, last + 1):
            if len(found) == query.limit:
                last = number - 1
                break
            if all(part in self._leaves[number] for part in query.parts()):
                found.append(self._leaves[number])
        return AuditPage(leaves=found, size=self.size, oldest=oldest, next_after=last if last < self.size else None)

    def hashes(self, spans: Sequence[Span]) -> list[bytes]:
        return [span_hash(span, self._tile) for span in spans]

    def _tile(self, level: int, number: int) -> bytes:
        return self._tiles.get((level, number)) or self._frontier.row(level)

    def prune(self, keep: int) -> int:
        last = max(0, self.size - max(keep, 1)) // WIDTH * WIDTH
        gone = [number for number in self._leaves if number <= last]
        for number in gone:
            del self._leaves[number]
        return len(gone)
