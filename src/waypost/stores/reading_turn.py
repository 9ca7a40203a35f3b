"""One connection that threads read in turns. Knows nothing of what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ReadingTurn:
    """Whoever stops waiting leaves its thread reading: the turn is over only when the thread has ended, so that nobody else
    reads on the same connection or closes it meanwhile."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()

    async def read(self, read: Callable[[], T]) -> T:
        reading = asyncio.create_task(self._read(read))
        reading.add_done_callback(_look_at)
        return await asyncio.shield(reading)

    async def _read(self, read: Callable[[], T]) -> T:
        async with self.alone:
            return await asyncio.to_thread(read)


def _look_at(task: asyncio.Task[T]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not task.cancelled():
        task.exception()
