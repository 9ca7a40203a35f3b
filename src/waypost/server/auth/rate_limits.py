"""Rate limits by caller: a subject, an IPv4 address or an IPv6 /64 network. Each process counts for itself."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable

from waypost import limits
from waypost.errors import RateLimited
from waypost.model.principal import Principal
from waypost.rate_limit import RateLimiter


class CallerRateLimiter:
    """A rate per minute for each caller, with a burst of one minute. Raises RateLimited with the time to wait."""

    def __init__(
        self, now: Callable[[], float], per_minute: int, *, what: str = "requests", hint: str = "Slow down."
    ) -> None:
        self._now = now
        self._per_minute = per_minute
        self._what = what
        self._hint = hint
        self._limiter: RateLimiter[str] = RateLimiter(per_minute / 60, per_minute, max_keys=limits.RATE_CALLERS)

    def take(self, caller: str, cost: int = 1) -> None:
        """A cost above the burst takes the whole burst."""
        now, cost = self._now(), min(cost, self._per_minute)
        if not self._limiter.take(caller, now, cost):
            raise self._error(caller, now, cost)

    def check(self, caller: str) -> None:
        """Raise if nothing is left; take nothing."""
        now = self._now()
        if self._limiter.available(caller, now) < 1:
            raise self._error(caller, now, 1)

    def _error(self, caller: str, now: float, cost: int) -> RateLimited:
        wait = max(1, math.ceil(self._limiter.wait_seconds(caller, now, cost)))
        return RateLimited(f"More than {self._per_minute} {self._what} in a minute.", hint=self._hint, retry_after=wait)


class RateLimits:
    """The read and write rates of the service. Admins are exempt. A configured rate holds for every other caller; the
    defaults exempt loopback: behind a proxy on this machine all callers have one address, and local tools are the
    operator's. A rate of 0 is no limit."""

    def __init__(self, now: Callable[[], float], reads: int | None = None, writes: int | None = None) -> None:
        self._exempts_loopback = {"reads": reads is None, "writes": writes is None}
        self._limiters = {
            "reads": _make_limiter(now, limits.READS_PER_MINUTE if reads is None else reads, "reads"),
            "writes": _make_limiter(now, limits.WRITES_PER_MINUTE if writes is None else writes, "writes"),
        }

    def read(self, principal: Principal, address: str, cost: int = 1) -> None:
        self._take("reads", principal, address, cost)

    def write(self, principal: Principal, address: str, cost: int = 1) -> None:
        self._take("writes", principal, address, cost)

    def _take(self, kind: str, principal: Principal, address: str, cost: int) -> None:
        limiter = self._limiters[kind]
        if limiter is None or principal.is_admin or (self._exempts_loopback[kind] and is_loopback(address)):
            return
        limiter.take(rate_limit_key(address) if principal.is_anonymous else f"subject {principal.subject}", cost)


def _make_limiter(now: Callable[[], float], per_minute: int, kind: str) -> CallerRateLimiter | None:
    hint = f"Wait as long as Retry-After says, or ask the operator for a higher rate_limit_{kind}."
    return CallerRateLimiter(now, per_minute, what=kind, hint=hint) if per_minute else None


def is_loopback(address: str) -> bool:
    """A request without an address came over a Unix socket of this machine."""
    return address.startswith("127.") or address in ("::1", "")


def rate_limit_key(address: str) -> str:
    """One customer usually has a whole /64 of IPv6 addresses, so that network counts as one caller."""
    if ":" not in address:
        return f"address {address}"
    try:
        return f"network {ipaddress.ip_network((address.partition('%')[0], 64), strict=False)}"
    except ValueError:
        return f"address {address}"
