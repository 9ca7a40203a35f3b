"""The clock of clients."""

from __future__ import annotations

import time


class WallClock:
    """The time of the system."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
