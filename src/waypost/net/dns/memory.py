"""What is remembered for a while, and no more of it than a bound: the least used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from waypost import limits

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memory(Generic[Key, Value]):
    def __init__(self, clock: Callable[[], float], most: int = limits.DNS_CACHE_ANSWERS) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[Key, tuple[Value, float]] = OrderedDict()

    def find(self, key: Key) -> tuple[Value, int] | None:
        """With the seconds that are left of its time."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        left = kept[1] - self._clock()
        if left <= 0:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept[0], int(left)

    def keep(self, key: Key, value: Value, ttl: float) -> int:
        """For how long it is kept: the time to live within D14's bounds."""
        seconds = clamp(ttl)
        self._kept[key] = (value, self._clock() + seconds)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return seconds

    def forget(self, key: Key) -> None:
        self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)


def clamp(ttl: float) -> int:
    return int(min(max(ttl, limits.DNS_TTL_LEAST), limits.DNS_TTL_MOST))
