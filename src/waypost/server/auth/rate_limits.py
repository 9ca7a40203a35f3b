"""How often a caller may ask: a bucket for each, which fills again at an even pace. The least recent callers are forgotten.

It knows callers by a name; who they are and what they ask for is decided elsewhere. Each process counts for itself.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import RateLimited
from waypost.model.principal import Principal


class TokenBuckets:
    """One rate for many callers. A caller who was away long enough may ask for a whole minute's worth at once."""

    def __init__(
        self, now: Callable[[], float], most: int, *, what: str = "requests", hint: str = "Slow down."
    ) -> None:
        self._now = now
        self._most = most
        self._what = what
        self._hint = hint
        self._left: LruCache[str, tuple[float, float]] = LruCache(
            limits.RATE_CALLERS
        )  # what is left, and when that was

    def take(self, caller: str, cost: int = 1) -> None:
        """Take from the caller's bucket, or refuse and say when to come back. More than a bucket holds empties it."""
        now, left = self._level(caller)
        cost = min(cost, self._most)
        if left < cost:
            raise self._refusal(cost - left)
        self._left.put(caller, (left - cost, now))

    def check(self, caller: str) -> None:
        """Refuse whoever has used up all, and take nothing."""
        left = self._level(caller)[1]
        if left < 1:
            raise self._refusal(1 - left)

    def _level(self, caller: str) -> tuple[float, float]:
        now = self._now()
        left, since = self._left.get(caller) or (float(self._most), now)
        return now, min(float(self._most), left + max(0.0, now - since) * self._most / 60)

    def _refusal(self, missing: float) -> RateLimited:
        wait = max(1, math.ceil(missing * 60 / self._most))
        return RateLimited(f"More than {self._most} {self._what} in a minute.", hint=self._hint, retry_after=wait)


class RateLimits:
    """The rates of the service. Admins have none. A number that was set holds for every other caller; the defaults leave
    out callers on this machine: behind a proxy here all have one address, and tools beside the service are the operator's.
    """

    def __init__(self, now: Callable[[], float], reads: int | None = None, writes: int | None = None) -> None:
        self._spares_loopback = {"reads": reads is None, "writes": writes is None}
        self._buckets: dict[str, TokenBuckets | None] = {
            "reads": _make_buckets(now, limits.READS_PER_MINUTE if reads is None else reads, "reads"),
            "writes": _make_buckets(now, limits.WRITES_PER_MINUTE if writes is None else writes, "writes"),
        }

    def read(self, principal: Principal, address: str, cost: int = 1) -> None:
        self._take("reads", principal, address, cost)

    def write(self, principal: Principal, address: str, cost: int = 1) -> None:
        self._take("writes", principal, address, cost)

    def _take(self, kind: str, principal: Principal, address: str, cost: int) -> None:
        buckets = self._buckets[kind]
        if buckets is None or principal.is_admin or (self._spares_loopback[kind] and is_loopback(address)):
            return
        caller = rate_limit_key(address) if principal.is_anonymous else f"subject {principal.subject}"
        buckets.take(caller, cost)


def _make_buckets(now: Callable[[], float], most: int, kind: str) -> TokenBuckets | None:
    hint = f"Come back after Retry-After, or ask the operator for a higher rate_limit_{kind}."
    return TokenBuckets(now, most, what=kind, hint=hint) if most else None


def is_loopback(address: str) -> bool:
    """An address of this machine; what has none came over a socket of this machine."""
    return address.startswith("127.") or address in ("::1", "")


def rate_limit_key(address: str) -> str:
    """The name by which an address is counted: one customer has a whole /64 of IPv6 addresses."""
    if ":" not in address:
        return f"address {address}"
    try:
        return f"network {ipaddress.ip_network((address.partition('%')[0], 64), strict=False)}"
    except ValueError:
        return f"address {address}"
