"""When to try again, and after how long. Pure: chance is an argument."""

from __future__ import annotations

import msgspec

from waypost import limits
from waypost.client.problems import may_have_been_done
from waypost.errors import QuotaExceeded, RateLimited, StorageFull, Timeout, Unavailable, WaypostError


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Full jitter: a delay drawn from zero to a bound that doubles. The bound keeps a fleet from coming back at once."""

    attempts: int = limits.CLIENT_ATTEMPTS
    base_seconds: float = limits.CLIENT_BACKOFF_SECONDS
    most_seconds: float = limits.CLIENT_BACKOFF_MAX_SECONDS

    def delay(self, error: WaypostError, attempt: int, *, repeatable: bool, chance: float) -> float | None:
        """Seconds to wait before attempt `attempt + 1` (they count from 1), or None when the error is final."""
        if attempt >= self.attempts or not _passes(error):
            return None
        if may_have_been_done(error) and not repeatable:
            return None
        drawn = self.backoff(attempt, chance)
        if error.retry_after is None:
            return drawn
        if error.retry_after > limits.CLIENT_RETRY_AFTER_MAX_SECONDS:
            return None
        return error.retry_after + drawn  # never earlier than asked

    def backoff(self, attempt: int, chance: float) -> float:
        return float(min(self.most_seconds, self.base_seconds * 2 ** min(attempt - 1, 30))) * chance


def _passes(error: WaypostError) -> bool:
    """True for what time alone may heal. Whoever waited as long as was asked for does not wait again."""
    if isinstance(error, (StorageFull, QuotaExceeded, Timeout)):
        return False
    return isinstance(error, (Unavailable, RateLimited))
