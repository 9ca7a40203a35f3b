"""The one clock. Tests pass their own."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time that does not jump within a process: the start's wall time plus the monotonic time since.

    A jump of the wall clock must neither end every lease at once nor make leases immortal (T2 of the threat list).
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
