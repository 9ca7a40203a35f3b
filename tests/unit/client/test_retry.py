"""Retry decisions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waypost import limits
from waypost.client.http import Retry
from waypost.errors import InvalidDocument, NotFound, QuotaExceeded, RateLimited, StorageFull, Timeout, Unavailable

RETRY = Retry(attempts=4, base_seconds=0.1, most_seconds=1.0)


def test_permanent_errors_are_not_retried() -> None:
    for error in (NotFound("x"), InvalidDocument("x"), StorageFull("x"), QuotaExceeded("x")):
        assert RETRY.delay(error, 1, repeatable=True, chance=0.5) is None


def test_a_timeout_is_not_retried() -> None:
    assert RETRY.delay(Timeout("x"), 1, repeatable=True, chance=0.5) is None


def test_attempts_are_bounded() -> None:
    assert RETRY.delay(Unavailable("x"), 3, repeatable=True, chance=0.5) is not None
    assert RETRY.delay(Unavailable("x"), 4, repeatable=True, chance=0.5) is None


def test_a_write_that_may_have_been_done_is_not_repeated_unless_that_is_the_same() -> None:
    lost = Unavailable("x", details={"sent": True})
    assert RETRY.delay(lost, 1, repeatable=False, chance=0.5) is None
    assert RETRY.delay(lost, 1, repeatable=True, chance=0.5) is not None
    assert RETRY.delay(Unavailable("x"), 1, repeatable=False, chance=0.5) is not None


def test_a_service_that_asks_for_time_is_given_it() -> None:
    assert RETRY.delay(RateLimited("x", retry_after=3), 1, repeatable=True, chance=0.5) == 3.05
    too_long = limits.CLIENT_RETRY_AFTER_MAX_SECONDS + 1
    assert RETRY.delay(RateLimited("x", retry_after=too_long), 1, repeatable=True, chance=0.5) is None


@given(attempt=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_the_delay_is_never_longer_than_its_bound(attempt: int, chance: float) -> None:
    assert 0 <= RETRY.backoff(attempt, chance) <= min(1.0, 0.1 * 2 ** min(attempt - 1, 50))
