"""A rate for each caller (AF-54): a bucket that fills again at an even pace. Off unless it is set up."""

from __future__ import annotations

import math
from collections.abc import Callable

from waypost import limits
from waypost.errors import RateLimited
from waypost.model.principal import Principal
from waypost.registry.lru import Lru
from waypost.server.asgi import Request


class RateLimiter:
    """Buckets by subject, and by address for those without one. The least recent callers are forgotten first."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        anonymous_per_minute: int = limits.AF_ANONYMOUS_PER_MINUTE,
        principal_per_minute: int = limits.AF_PRINCIPAL_PER_MINUTE,
    ) -> None:
        self._now = now
        self._anonymous = anonymous_per_minute
        self._principal = principal_per_minute
        self._buckets: Lru[str, tuple[float, float]] = Lru(limits.RATE_CALLERS)  # what is left, and when that was

    def check(self, request: Request, principal: Principal) -> None:
        """Take one request from the caller's bucket, or refuse and say when to come back."""
        if principal.is_anonymous:
            client = request.scope.get("client")
            caller, most = f"address {client[0] if client else 'unknown'}", self._anonymous
        else:
            caller, most = f"subject {principal.subject}", self._principal
        now = self._now()
        left, since = self._buckets.get(caller) or (float(most), now)
        left = min(float(most), left + (now - since) * most / 60)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / most)
            raise RateLimited(f"More than {most} requests in a minute.", hint="Slow down.", retry_after=max(1, wait))
        self._buckets.put(caller, (left - 1, now))
