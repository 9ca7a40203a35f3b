"""A rate for each caller of an AF surface that stands alone (AF-54). Off unless it is set up."""

from __future__ import annotations

from collections.abc import Callable

from waypost import limits
from waypost.model.principal import Principal
from waypost.server.asgi import Request
from waypost.server.rates import Buckets


class RateLimiter:
    """Buckets by subject, and by address for those without one."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        anonymous_per_minute: int = limits.AF_ANONYMOUS_PER_MINUTE,
        principal_per_minute: int = limits.AF_PRINCIPAL_PER_MINUTE,
    ) -> None:
        self._anonymous = Buckets(now, anonymous_per_minute)
        self._principals = Buckets(now, principal_per_minute)

    def check(self, request: Request, principal: Principal) -> None:
        """Take one request from the caller's bucket, or refuse and say when to come back."""
        if principal.is_anonymous:
            client = request.scope.get("client")
            self._anonymous.take(client[0] if client else "unknown")
        else:
            self._principals.take(principal.subject or "")
