"""The checker finds what must not happen. That it finds mistakes of the store is tested with the store."""

from __future__ import annotations

import pytest

from support.cluster_checker import (
    CLOCK_SECONDS,
    AcknowledgedWrite,
    ClusterHistory,
    LeaseSighting,
    LoggedChange,
    StrongRead,
    find_violations,
)


def make_history() -> ClusterHistory:
    """Two increments of a counter, and a change of an agent that nobody counts in between."""
    return ClusterHistory(
        writes=[AcknowledgedWrite("a", "hot", 1, 1, 0.0, 1.0), AcknowledgedWrite("b", "hot", 2, 3, 2.0, 3.0)],
        reads=[StrongRead("b", "hot", 1, 1.5), StrongRead("a", "hot", 3, 4.0)],
        leases=[
            LeaseSighting("leased", "a", 10.0, 9.0, 9.1, is_seen=True),
            LeaseSighting("leased", "b", 10.0, 9.0, 10.0, is_seen=False),
            LeaseSighting("leased", "b", 10.0, 10.0 + CLOCK_SECONDS + 1, 14.0, is_seen=False),
        ],
        results={"the task 1": {"t1"}, "the invitation nobody opened": set()},
        log=[LoggedChange(1, "hot", 1), LoggedChange(2, "other", None), LoggedChange(3, "hot", 2)],
        watched={"client": [1, 2, 3]},
        states={"a": {"hot": (3, 2)}, "b": {"hot": (3, 2)}},
    )


def test_a_history_without_a_fault() -> None:
    assert find_violations(make_history()) == []


def test_a_lease_that_does_not_end() -> None:
    history = make_history()
    history.leases.append(LeaseSighting("leased", "c", 10.0, 10.0 + CLOCK_SECONDS + 1, 14.0, is_seen=True))
    (found,) = find_violations(history)
    assert found == f"c showed leased {CLOCK_SECONDS + 1:.1f} s after the end of its lease"


def test_a_lease_that_ends_early() -> None:
    history = make_history()
    history.leases.append(LeaseSighting("leased", "c", 10.0, 1.0, 2.0, is_seen=False))
    assert find_violations(history) == ["c hid leased 8.0 s before the end of its lease"]


def test_what_happens_twice() -> None:
    history = make_history()
    history.results["the task 1"].add("t2")
    assert find_violations(history) == ["the task 1 happened 2 times"]


def test_one_change_that_was_acknowledged_to_two_writers() -> None:
    history = make_history()
    history.writes.append(AcknowledgedWrite("c", "hot", 2, 3, 2.0, 3.0))
    assert any("acknowledged to two writers" in found for found in find_violations(history))


@pytest.mark.parametrize("events", [[1, 3], [1, 2, 2, 3], [1, 3, 2], [1, 2, -1, 3]])
def test_a_watcher_that_misses_repeats_or_invents_a_change(events: list[int]) -> None:
    history = make_history()
    history.watched["client"] = events
    assert len(find_violations(history)) >= 1


def test_a_state_that_is_not_that_of_the_log() -> None:
    history = make_history()
    history.states["b"] = {"hot": (1, 1)}
    assert len(find_violations(history)) == 1
