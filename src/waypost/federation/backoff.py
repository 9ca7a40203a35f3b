"""The pause after failures of a peer."""

from __future__ import annotations

import random

from waypost import limits


def backoff_seconds(failures: int) -> float:
    """Doubled with each failure, with jitter, so that many readers do not return at once."""
    seconds = min(limits.PEER_BACKOFF_MAX_SECONDS, limits.PEER_BACKOFF_SECONDS * 2 ** min(failures - 1, 16))
    return float(seconds * random.uniform(0.5, 1.0))
