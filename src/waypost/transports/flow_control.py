"""Flow control of packets from the LAN: token buckets that admit them, and a queue that handles them in time slices.

A thousand packets at once may be welcome or a flood. In both cases requests that arrive meanwhile must be served in between.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

from waypost import limits
from waypost.rate_limit import RateLimiter, TokenBucket


class SourceStanding(Enum):
    NORMAL = 1
    UNKNOWN = 2  # one of too many sources: their addresses must be spoofed
    FLOODING = 3


class PacketAdmission:
    """Which packets are admitted before they are parsed: limits for each source and for all of them.

    Sources that use up their own limit share half of the total; the other half is for sources that send little. While there
    are too many unknown sources, they share a small limit, and the rest is for sources that were known before.

    The time is that of the event loop, since this limits load; a test's clock does not apply.
    """

    def __init__(self) -> None:
        sources = limits.ANSWER_SOURCES
        self._per_source: RateLimiter[Hashable] = RateLimiter(
            limits.SOURCE_PACKETS_PER_SECOND, limits.SOURCE_PACKETS_BURST, max_keys=sources
        )
        noisy = limits.NOISY_SOURCE_PACKETS_PER_SECOND
        self._per_flooding_source: RateLimiter[Hashable] = RateLimiter(noisy, noisy, max_keys=sources)
        unknown = limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND
        self._unknown_total = TokenBucket(unknown, unknown)
        self._busy_total = TokenBucket(limits.PACKETS_PER_SECOND / 2, limits.PACKETS_BURST / 2)
        self._total = TokenBucket(limits.PACKETS_PER_SECOND, limits.PACKETS_BURST)

    def admits(self, source: Hashable, now: float, standing: SourceStanding = SourceStanding.NORMAL) -> bool:
        is_flooding = standing is SourceStanding.FLOODING
        limiter = self._per_flooding_source if is_flooding else self._per_source
        if not limiter.take(source, now):
            return False
        if standing is SourceStanding.UNKNOWN:
            return self._unknown_total.take(now)
        is_busy = is_flooding or limiter.available(source, now) < limits.SOURCE_PACKETS_BURST / 10
        return (not is_busy or self._busy_total.take(now)) and self._total.take(now)


class WorkQueue:
    """Runs queued work in short slices, with pauses in which the event loop serves requests."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures a slice; the time of an event loop may stand still meanwhile."""
        self._clock = clock
        self._queue: deque[tuple[Hashable, Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled: asyncio.Handle | None = None
        self._pause_seconds = limits.PACKET_WORK_PAUSE_SECONDS

    def __len__(self) -> int:
        return len(self._queue)

    def slow_down(self) -> None:
        """Pause longer from now on: a registry stores fewer announcements than can be parsed, and serves requests."""
        self._pause_seconds = limits.LAN_READ_PAUSE_SECONDS

    def has_room(self) -> bool:
        return len(self._queue) < limits.PACKET_QUEUE

    def add(self, source: Hashable, work: Callable[..., None], *arguments: Any) -> None:
        """Call `work` later. The event loop reports its exceptions."""
        self._queue.append((source, work, arguments))
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._run_slice)

    def discard(self, matches: Callable[[Any], bool]) -> int:
        """Remove the queued work of matching sources; returns how many items that were."""
        before = len(self._queue)
        self._queue = deque(item for item in self._queue if not matches(item[0]))
        return before - len(self._queue)

    def close(self) -> None:
        self._queue.clear()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _run_slice(self) -> None:
        # Scheduled first: an exception of one item must not stop the others.
        self._scheduled = asyncio.get_running_loop().call_later(self._pause_seconds, self._continue)
        ends_at = self._clock() + limits.PACKET_WORK_SLICE_SECONDS
        while self._queue:
            _, work, arguments = self._queue.popleft()
            work(*arguments)
            if self._clock() >= ends_at:
                return

    def _continue(self) -> None:
        self._scheduled = None
        if self._queue:
            self._run_slice()
