"""Duplicate messages, and messages that cannot be handled."""

from __future__ import annotations

import asyncio
import logging

import pytest

from waypost import limits
from waypost.errors import Forbidden, StoreUnavailable
from waypost.net.clock import ManualClock
from waypost.transports.bus import Redelivery

NOW = 1_780_000_000.0


class Work:
    """Fails with each of these in turn, and is done then."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.runs = 0

    async def __call__(self) -> None:
        self.runs += 1
        if self.failures:
            raise self.failures.pop(0)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.pauses: list[float] = []
        self.attempts = Redelivery("bus", self.clock, self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def unavailable() -> StoreUnavailable:
    return StoreUnavailable("The disk is gone.", hint="Bring it back.")


async def test_a_message_that_fails_three_times_is_parked_and_others_continue() -> None:
    """B3."""
    bench = Bench()
    poison, other = Work(*(unavailable() for _ in range(9))), Work()
    await bench.attempts.run("p", b"poison", poison)
    await bench.attempts.run("o", b"other", other)
    assert (poison.runs, other.runs) == (3, 1)
    assert bench.pauses == list(limits.REDELIVERY_DELAYS_SECONDS)
    assert [(parked.data, parked.reason) for parked in bench.attempts.parked] == [(b"poison", "The disk is gone.")]


async def test_a_fault_of_ours_is_parked_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        await bench.attempts.run("p", b"poison", Work(*(KeyError("agent") for _ in range(3))))
    assert [parked.reason for parked in bench.attempts.parked] == ["KeyError"]
    assert "KeyError" in caplog.text


async def test_a_second_attempt_that_succeeds_is_final() -> None:
    bench, work = Bench(), Work(unavailable())
    await bench.attempts.run("a", b"", work)
    assert (work.runs, bench.attempts.parked) == (2, ())


async def test_a_refusal_is_final_and_nothing_is_parked() -> None:
    bench, work = Bench(), Work(Forbidden("Not listed.", hint="Ask."))
    await bench.attempts.run("a", b"", work)
    assert (work.runs, bench.attempts.parked, bench.pauses) == (1, (), [])


def test_the_same_bytes_are_taken_once_until_an_announcer_would_repeat_itself() -> None:
    """B5."""
    bench = Bench()
    assert bench.attempts.begin("a")
    assert not bench.attempts.begin("a")
    assert bench.attempts.begin("b")
    bench.clock.advance(limits.DUPLICATE_WINDOW_SECONDS)
    assert bench.attempts.begin("a")


async def test_a_parked_message_is_retried_only_after_the_dead_letter_time() -> None:
    bench = Bench()
    await bench.attempts.run("p", b"", Work(*(unavailable() for _ in range(3))))
    bench.clock.advance(limits.DUPLICATE_WINDOW_SECONDS + 1)
    assert not bench.attempts.begin("p")
    bench.clock.advance(limits.DEAD_LETTER_SECONDS)
    assert bench.attempts.begin("p")
    await bench.attempts.run("p", b"", Work())
    assert bench.attempts.parked == ()


async def test_seen_messages_and_dead_letters_are_bounded() -> None:
    bench = Bench()
    for number in range(limits.DUPLICATE_WINDOW_MESSAGES + 1):
        bench.attempts.begin(str(number))
    assert bench.attempts.begin("0")
    assert not bench.attempts.begin(str(limits.DUPLICATE_WINDOW_MESSAGES))
    for number in range(limits.DEAD_LETTERS + 5):
        await bench.attempts.run(str(number), b"", Work(*(unavailable() for _ in range(3))))
    assert len(bench.attempts.parked) == limits.DEAD_LETTERS


async def test_an_end_in_the_middle_ends_the_work() -> None:
    bench = Bench()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.ensure_future(bench.attempts.run("a", b"", work))
    await begun.wait()
    running.cancel()
    await asyncio.wait_for(ended.wait(), 60)
