"""The fallback to the registry, as a state machine."""

from __future__ import annotations

import pytest

from waypost.protocols.announce.messages import Outcome, Rollback, State, Suppress, initial_rollback


def run(machine: Rollback, *outcomes: Outcome) -> list[State]:
    states: list[State] = []
    for outcome in outcomes:
        machine = machine.after(outcome)
        states.append(machine.state)
    return states


@pytest.mark.req("ANN-39")
@pytest.mark.parametrize(("suppress", "local"), [("keepalive", "BOTH"), ("strict", "LOCAL")])
def test_a_lan_that_cannot_be_used_is_left_at_once_and_trusted_again_after_three_good_loops(
    suppress: Suppress, local: State
) -> None:
    assert initial_rollback(suppress).state == local
    outcomes: tuple[Outcome, ...] = ("failed", "looped", "looped", "looped")
    assert run(initial_rollback(suppress), *outcomes) == ["REGISTRY", "REGISTRY", "REGISTRY", local]


@pytest.mark.req("ANN-39")
def test_three_announcements_in_a_row_that_do_not_come_back_are_a_failure() -> None:
    assert run(initial_rollback(), "silent", "silent", "looped", "silent", "silent", "silent")[-2:] == [
        "BOTH",
        "REGISTRY",
    ]


def test_a_good_loop_that_is_followed_by_a_bad_one_counts_for_nothing() -> None:
    outcomes: tuple[Outcome, ...] = ("failed", "looped", "looped", "silent", "looped", "looped", "looped")
    assert run(initial_rollback("strict"), *outcomes) == ["REGISTRY"] * 6 + ["LOCAL"]


def test_the_registry_is_left_alone_in_the_state_local_only() -> None:
    assert [Rollback(state=state).uses_registry for state in ("LOCAL", "BOTH", "REGISTRY")] == [False, True, True]
