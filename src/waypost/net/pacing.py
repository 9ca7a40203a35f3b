"""How often and how many at once: a registry asks strangers on behalf of strangers, and must hurt neither."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Crowd(Generic[Key]):
    """At most so many at once for each key. Remembers only keys that somebody uses."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._gates: dict[Key, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def place(self, key: Key) -> AsyncIterator[None]:
        gate, users = self._gates.get(key, (asyncio.Semaphore(self._each), 0))
        self._gates[key] = (gate, users + 1)
        try:
            async with gate:
                yield
        finally:
            users = self._gates[key][1] - 1
            if users:
                self._gates[key] = (gate, users)
            else:
                del self._gates[key]

    def __len__(self) -> int:
        return len(self._gates)


class Pace(Generic[Key]):
    """Not before a time for each key; the keys that were used last are remembered."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._not_before: OrderedDict[Key, float] = OrderedDict()

    def wait_seconds(self, key: Key) -> float:
        return max(0.0, self._not_before.get(key, 0.0) - self._clock())

    def rest(self, key: Key, seconds: float) -> None:
        self._not_before[key] = self._clock() + seconds
        self._not_before.move_to_end(key)
        while len(self._not_before) > self._most:
            self._not_before.popitem(last=False)
