"""How often one source may be attended to: a bucket for each, in a bounded memory, and one for all of them together."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

from waypost import limits


class SourceRateLimiter:
    def __init__(self, per_second: float, burst: float, *, sources: int = limits.ANSWER_SOURCES) -> None:
        self._per_second = per_second
        self._burst = burst
        self._sources = sources
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # what is left, and when that was so

    def __len__(self) -> int:
        return len(self._buckets)

    def left(self, source: Hashable) -> float:
        """Turns that a source had when it was last heard of."""
        return self._buckets.get(source, (self._burst, 0.0))[0]

    def take(self, source: Hashable, now: float) -> bool:
        """Whether the source may go on; it has used one of its turns then."""
        left, since = self._buckets.get(source, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - since) * self._per_second)
        may = left >= 1
        self._buckets[source] = (left - 1 if may else left, now)
        self._buckets.move_to_end(source)
        if len(self._buckets) > self._sources:
            self._buckets.popitem(last=False)
        return may


class TokenBucket:
    """One for all: what a Pace is for each."""

    __slots__ = ("_burst", "_left", "_per_second", "_since")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left, self._since = burst, -math.inf

    def take(self, now: float) -> bool:
        self._left = min(self._burst, self._left + max(0.0, now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class SourceStanding(Enum):
    """Of a source, at a moment."""

    USUAL = 1
    STRANGER = 2  # one of so many that their addresses must be made up
    LOUD = 3  # what it sends is a flood


class PacketAdmission:
    """What is let in from the network before anything is read: so much of one source, so much in all. Whoever uses up what
    it has shares half of that in all with others of its kind: the rest is for those that say little. While more strangers
    speak than there can be, they have little in common, and the rest is for whoever was believed before.

    It counts load, not leases: its time is that of the event loop, whatever clock a test moves.
    """

    def __init__(self) -> None:
        self._each = SourceRateLimiter(limits.SOURCE_PACKETS_PER_SECOND, limits.SOURCE_PACKETS_BURST)
        self._loud = SourceRateLimiter(limits.NOISY_SOURCE_PACKETS_PER_SECOND, limits.NOISY_SOURCE_PACKETS_PER_SECOND)
        self._strangers = TokenBucket(
            limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND, limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND
        )
        self._pressing = TokenBucket(limits.PACKETS_PER_SECOND / 2, limits.PACKETS_BURST / 2)
        self._all = TokenBucket(limits.PACKETS_PER_SECOND, limits.PACKETS_BURST)

    def lets_in(self, source: Hashable, now: float, standing: SourceStanding = SourceStanding.USUAL) -> bool:
        is_loud = standing is SourceStanding.LOUD
        own = self._loud if is_loud else self._each
        if not own.take(source, now):
            return False
        if standing is SourceStanding.STRANGER:
            return self._strangers.take(now)
        is_pressing = is_loud or own.left(source) < limits.SOURCE_PACKETS_BURST / 10
        return (not is_pressing or self._pressing.take(now)) and self._all.take(now)


# ---- Work that strangers bring comes in turns: a little of it, then whoever else waits for the event loop.
#
# A thousand packets at once are good news or a flood; either way a request that comes meanwhile is answered in between.


class WorkQueue:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` says how long a turn takes; that of an event loop may stand still meanwhile."""
        self._clock = clock
        self._waiting: deque[tuple[Hashable, Callable[..., None], tuple[Any, ...]]] = deque()
        self._next: asyncio.Handle | None = None
        self._rest_seconds = limits.PACKET_WORK_PAUSE_SECONDS

    def __len__(self) -> int:
        return len(self._waiting)

    def give_way(self) -> None:
        """To requests, from now on: whoever answers them can take in less than can be read."""
        self._rest_seconds = limits.LAN_READ_PAUSE_SECONDS

    def have_room(self) -> bool:
        return len(self._waiting) < limits.PACKET_QUEUE

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
        ends = self._clock() + limits.PACKET_WORK_SLICE_SECONDS
        while self._waiting:
            _, work, arguments = self._waiting.popleft()
            work(*arguments)
            if self._clock() >= ends:
                return

    def _go_on(self) -> None:
        self._next = None
        if self._waiting:
            self._take()
