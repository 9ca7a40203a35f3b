"""The in-memory `KeyValueStore`. It is here and not in `stores`, because the client uses it for the state of a conversation."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from waypost.errors import StoreUnavailable
from waypost.registry.ports import ANY_VALUE, KeyValueItem, KeyValueWrite

_SWEEP_EVERY = 256  # number of commits between two sweeps of expired items


class MemoryKeyValueStore:
    """The key-value store of a process that keeps nothing, and of one conversation."""

    def __init__(self) -> None:
        self._things: dict[str, dict[str, KeyValueItem]] = {}
        self._order: dict[str, list[str]] = {}  # sorted keys per kind, cached until the next change
        self._first_end = math.inf  # no item expires earlier
        self._commits = 0
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False

    async def healthy(self) -> bool:
        return self._open

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        if not self._open:
            raise _closed_error()
        for write in writes:
            expected = write.expected
            if expected is ANY_VALUE or expected == ANY_VALUE:
                continue
            if self._value(write.kind, write.key, now) != expected:
                return False
        for write in writes:
            value = write.value
            if value is None:
                self._remove(write)
            else:
                self._put(write, value)
        self._commits += 1
        if self._commits % _SWEEP_EVERY == 0:
            self._sweep(now)
        return True

    def _remove(self, write: KeyValueWrite) -> None:
        things = self._things.get(write.kind)
        if things is not None and things.pop(write.key, None) is not None and self._order:
            self._order.pop(write.kind, None)

    def _put(self, write: KeyValueWrite, value: bytes) -> None:
        key, ends = write.key, write.expires_at
        things = self._things.get(write.kind)
        if things is None:
            things = self._things[write.kind] = {}
        if self._order and key not in things:
            self._order.pop(write.kind, None)
        things[key] = KeyValueItem(key, value, ends)
        if ends is not None and ends < self._first_end:
            self._first_end = ends

    def _sweep(self, now: float) -> None:
        if now < self._first_end:
            return
        for kind, things in self._things.items():
            self._things[kind] = {key: kept for key, kept in things.items() if not _is_over(kept, now)}
        self._order.clear()
        ends = (kept.expires_at for things in self._things.values() for kept in things.values())
        self._first_end = min((end for end in ends if end is not None), default=math.inf)

    async def get(self, kind: str, key: str, now: float) -> bytes | None:
        return self._value(kind, key, now)

    def _value(self, kind: str, key: str, now: float) -> bytes | None:
        if not self._open:
            raise _closed_error()
        things = self._things.get(kind)
        kept = None if things is None else things.get(key)
        return None if kept is None or _is_over(kept, now) else kept.value

    async def scan(
        self, kind: str, now: float, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[KeyValueItem]:
        return list(islice(self._found(kind, now, prefix, after), limit))

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int:
        return sum(1 for _ in self._found(kind, now, prefix, ""))

    def _found(self, kind: str, now: float, prefix: str, after: str) -> Iterator[KeyValueItem]:
        if not self._open:
            raise _closed_error()
        if kind not in self._order:
            self._order[kind] = sorted(self._things.get(kind, ()))
        keys = self._order[kind]
        for key in islice(keys, max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0), None):
            if not key.startswith(prefix):
                return
            kept = self._things[kind][key]
            if not _is_over(kept, now):
                yield kept


def _is_over(kept: KeyValueItem, now: float) -> bool:
    return kept.expires_at is not None and kept.expires_at <= now


def _closed_error() -> StoreUnavailable:
    return StoreUnavailable("The store is closed.", hint="The service is stopping; try again soon.", retry_after=5)
