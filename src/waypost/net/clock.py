"""The clock of the service, and one for tests."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time that never jumps within a process: the wall time at the start plus the monotonic time since.

    A jump of the wall clock must neither expire every lease at once nor make leases immortal (T2).
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class ManualClock:
    """Stands still until `advance` is called."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
