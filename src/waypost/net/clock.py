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
