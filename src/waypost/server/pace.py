"""Long work on the event loop, in short steps: it gives way to other requests every few milliseconds."""

from __future__ import annotations

import asyncio

from waypost import limits


class Pace:
    """`await pace.step()` between the pieces of long work; it costs next to nothing until the time is up."""

    __slots__ = ("_loop", "_until")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + limits.WORK_SLICE_SECONDS

    async def step(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + limits.WORK_SLICE_SECONDS
