"""Token buckets: a burst, then a rate; for one and for each key."""

from __future__ import annotations

import pytest

from waypost.rate_limit import RateLimiter, TokenBucket


def test_a_bucket_has_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(10, 10)
    assert [bucket.take(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert [bucket.take(0.1), bucket.take(0.1)] == [True, False]
    assert sum(bucket.take(100.0) for _ in range(20)) == 10


def test_several_tokens_are_taken_together_or_not_at_all() -> None:
    bucket = TokenBucket(1, 5)
    assert not bucket.take(0.0, 6)
    assert bucket.take(0.0, 5)
    assert bucket.wait_seconds(0.0, 3) == pytest.approx(3.0)
    assert bucket.wait_seconds(2.0, 3) == pytest.approx(1.0)
    assert bucket.available(2.0) == pytest.approx(2.0)


def test_a_clock_that_goes_backwards_adds_no_tokens() -> None:
    bucket = TokenBucket(1, 1)
    assert bucket.take(100.0)
    assert not bucket.take(0.0)
    assert bucket.take(1.0)


def test_each_key_has_a_bucket_of_its_own() -> None:
    limiter: RateLimiter[str] = RateLimiter(10, 10, max_keys=100)
    bucket = TokenBucket(10, 10)
    times = [0.0] * 11 + [0.1, 0.1, 0.05, 0.2, 100.0, *[100.0] * 20]
    assert [limiter.take("a", now) for now in times] == [bucket.take(now) for now in times]
    assert limiter.available("b", 100.0) == 10
    assert limiter.wait_seconds("a", 100.0) == pytest.approx(0.1)


def test_the_least_recently_used_keys_are_dropped() -> None:
    limiter: RateLimiter[int] = RateLimiter(1, 1, max_keys=3)
    for key in (0, 1, 2):
        assert limiter.take(key, 0.0)
    assert not limiter.take(0, 0.0)
    assert limiter.take(3, 0.0)
    assert len(limiter) == 3
    assert [limiter.take(key, 0.0) for key in (0, 2, 3)] == [False, False, False]
    assert limiter.take(1, 0.0)
