"""The clock of clients."""

from __future__ import annotations

import time


class WallClock:
    """The time of the system. A client runs too briefly to mind that it may jump."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def wall(self) -> float:
        """The same."""
        return time.time()

    def latest(self) -> float:
        """The same."""
        return time.time()
