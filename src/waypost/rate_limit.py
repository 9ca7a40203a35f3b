"""Rate limits by token bucket: an average rate, and a burst above it. The caller passes the time, in seconds."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

from waypost.cache import LruCache

K = TypeVar("K", bound=Hashable)


class TokenBucket:
    """Starts full with `burst` tokens and refills at `per_second`."""

    __slots__ = ("_burst", "_refilled_at", "_tokens", "per_second")

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self._burst = self._tokens = float(burst)
        self._refilled_at = -math.inf

    def available(self, now: float) -> float:
        """The tokens in the bucket. A clock that went backwards adds none."""
        elapsed = max(0.0, now - self._refilled_at)
        self._tokens = min(self._burst, self._tokens + elapsed * self.per_second)
        self._refilled_at = now
        return self._tokens

    def take(self, now: float, count: float = 1) -> bool:
        """Take `count` tokens, or none if there are fewer."""
        if self.available(now) < count:
            return False
        self._tokens -= count
        return True

    def charge(self, now: float, count: float) -> None:
        """Take `count` tokens that were used already; the bucket may owe some afterwards."""
        self.available(now)
        self._tokens -= count

    def wait_seconds(self, now: float, count: float = 1) -> float:
        """How long until `count` tokens are available."""
        return max(0.0, count - self.available(now)) / self.per_second


class RateLimiter(Generic[K]):
    """A token bucket for each key. Beyond `max_keys` the least recently used one is dropped, and starts full again."""

    def __init__(self, per_second: float, burst: float, *, max_keys: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: LruCache[K, TokenBucket] = LruCache(max_keys)

    def __len__(self) -> int:
        return len(self._buckets)

    def available(self, key: K, now: float) -> float:
        return self._bucket(key).available(now)

    def take(self, key: K, now: float, count: float = 1) -> bool:
        return self._bucket(key).take(now, count)

    def charge(self, key: K, now: float, count: float) -> None:
        self._bucket(key).charge(now, count)

    def wait_seconds(self, key: K, now: float, count: float = 1) -> float:
        return self._bucket(key).wait_seconds(now, count)

    def _bucket(self, key: K) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = TokenBucket(self._per_second, self._burst)
            self._buckets.put(key, bucket)
        return bucket
