"""The clock of the service, and one for tests."""

from __future__ import annotations

import time


class SystemClock:
    """`now` never jumps within a process: it is the wall time at the start plus the monotonic time since.

    A jump of the wall clock must neither expire every lease at once nor make leases immortal (T2). The monotonic clock stands
    still while the machine is suspended, so whether a credential is still valid is decided by `wall` (E13).
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()

    def wall(self) -> float:
        return time.time()

    def latest(self) -> float:
        return max(self.now(), self.wall())


class ClusterClock:
    """The time of the database, which all nodes of a cluster share. `offsets` are kept where every process of the node reads
    them: microseconds to add to `now` and to `wall` of its own clock.

    `now` jumps forward only, for example after a suspend; a clock that is ahead is slowed down, so that no lease ends twice.
    """

    def __init__(self, clock: SystemClock, offsets: memoryview[int] | list[int]) -> None:
        self._clock = clock
        self._offsets = offsets

    def now(self) -> float:
        return self._clock.now() + self._offsets[0] / 1e6

    def wall(self) -> float:
        return self._clock.wall() + self._offsets[1] / 1e6

    def latest(self) -> float:
        return max(self.now(), self.wall())

    def follow(self, there: float) -> None:
        """Set the time of the database. The first time, it is taken as it is."""
        is_first = self._offsets[1] == 0
        ahead = self.now() - there
        if ahead > 0 and not is_first:
            ahead = min(ahead, _SLEW_SECONDS)
        self._offsets[0] -= round(ahead * 1e6)
        self._offsets[1] += round((there - self.wall()) * 1e6) or 1  # never 0 again


_SLEW_SECONDS = 0.3  # at most, each time: a tenth of the time in between


class ManualClock:
    """Stands still until `advance` is called. `jump` sets the wall clock alone, as a suspend or an operator does."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now
        self._wall_offset = 0.0

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    def latest(self) -> float:
        return max(self.now(), self.wall())

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def jump(self, seconds: float) -> None:
        self._wall_offset += seconds
