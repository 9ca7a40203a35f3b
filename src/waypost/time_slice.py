"""Time slices for long work on the event loop."""

from __future__ import annotations

import asyncio

from waypost import limits


class TimeSlice:
    """`await time_slice.step()` between the steps of long work lets other requests run every few milliseconds."""

    __slots__ = ("_loop", "_seconds", "_until")

    def __init__(self, seconds: float = limits.WORK_SLICE_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._until = self._loop.time() + seconds

    async def step(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + self._seconds
