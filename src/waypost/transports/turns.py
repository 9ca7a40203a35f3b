"""Work that strangers bring comes in turns: a little of it, then whoever else waits for the event loop.

A thousand packets at once are good news or a flood; either way a request that comes meanwhile is answered in between.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from waypost import limits


class Turns:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` says how long a turn takes; that of an event loop may stand still meanwhile."""
        self._clock = clock
        self._waiting: deque[tuple[Hashable, Callable[..., None], tuple[Any, ...]]] = deque()
        self._next: asyncio.Handle | None = None
        self._rest_seconds = limits.HEARD_REST_SECONDS

    def __len__(self) -> int:
        return len(self._waiting)

    def give_way(self) -> None:
        """To requests, from now on: whoever answers them can take in less than can be read."""
        self._rest_seconds = limits.LAN_READ_REST_SECONDS

    def have_room(self) -> bool:
        return len(self._waiting) < limits.HEARD_WAITING

    def add(self, source: Hashable, work: Callable[..., None], *arguments: Any) -> None:
        """To be called in its turn; what it raises is the event loop's to tell."""
        self._waiting.append((source, work, arguments))
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._take)

    def forget(self, is_meant: Callable[[Any], bool]) -> int:
        """What waits of such sources is left out. How much that was."""
        before = len(self._waiting)
        self._waiting = deque(each for each in self._waiting if not is_meant(each[0]))
        return before - len(self._waiting)

    def close(self) -> None:
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _take(self) -> None:
        # Planned first: a fault in one piece of work does not end the others.
        self._next = asyncio.get_running_loop().call_later(self._rest_seconds, self._go_on)
        ends = self._clock() + limits.HEARD_TURN_SECONDS
        while self._waiting:
            _, work, arguments = self._waiting.popleft()
            work(*arguments)
            if self._clock() >= ends:
                return

    def _go_on(self) -> None:
        self._next = None
        if self._waiting:
            self._take()
