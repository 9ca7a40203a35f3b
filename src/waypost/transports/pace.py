"""How often one source may be attended to: a bucket for each, in a bounded memory, and one for all of them together."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum

from waypost import limits


class Pace:
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


class Bucket:
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


class Standing(Enum):
    """Of a source, at a moment."""

    USUAL = 1
    STRANGER = 2  # one of so many that their addresses must be made up
    LOUD = 3  # what it sends is a flood


class Door:
    """What is let in from the network before anything is read: so much of one source, so much in all. Whoever uses up what
    it has shares half of that in all with others of its kind: the rest is for those that say little. While more strangers
    speak than there can be, they have little in common, and the rest is for whoever was believed before.

    It counts load, not leases: its time is that of the event loop, whatever clock a test moves.
    """

    def __init__(self) -> None:
        self._each = Pace(limits.HEARD_PER_SECOND, limits.HEARD_BURST)
        self._loud = Pace(limits.HEARD_LOUD_PER_SECOND, limits.HEARD_LOUD_PER_SECOND)
        self._strangers = Bucket(limits.HEARD_STRANGERS_PER_SECOND, limits.HEARD_STRANGERS_PER_SECOND)
        self._pressing = Bucket(limits.HEARD_ALL_PER_SECOND / 2, limits.HEARD_ALL_BURST / 2)
        self._all = Bucket(limits.HEARD_ALL_PER_SECOND, limits.HEARD_ALL_BURST)

    def lets_in(self, source: Hashable, now: float, standing: Standing = Standing.USUAL) -> bool:
        is_loud = standing is Standing.LOUD
        own = self._loud if is_loud else self._each
        if not own.take(source, now):
            return False
        if standing is Standing.STRANGER:
            return self._strangers.take(now)
        is_pressing = is_loud or own.left(source) < limits.HEARD_BURST / 10
        return (not is_pressing or self._pressing.take(now)) and self._all.take(now)
