"""The health state machine: states, and which responses count against an endpoint."""

from __future__ import annotations

import pytest

from waypost.model.health import (
    GONE,
    EndpointHealth,
    Health,
    endpoint_to_check,
    failure_of,
    health_after_failure,
    health_after_success,
    restore_endpoint_health,
)
from waypost.model.record import AgentRecord, Binding

DEAD = EndpointHealth(state="unhealthy", since=5.0, reason="refused", failures=3)


def failing(before: EndpointHealth, times: int, now: float = 9.0) -> EndpointHealth:
    for _ in range(times):
        before = health_after_failure(before, "refused", now)
    return before


def test_a_first_answer_makes_healthy_and_a_first_failure_suspect() -> None:
    assert health_after_success(EndpointHealth(), 1.0).health == Health("healthy", 1.0)
    assert failing(EndpointHealth(), 1).health == Health("suspect", 9.0, "refused")


def test_three_failures_in_a_row_make_unhealthy_and_fewer_do_not() -> None:
    assert failing(EndpointHealth(), 2).state == "suspect"
    assert failing(EndpointHealth(), 3).state == "unhealthy"
    between = health_after_success(failing(EndpointHealth(), 2), 1.0)
    assert failing(between, 2).state == "suspect"


def test_two_answers_in_a_row_make_healthy_again_and_one_does_not() -> None:
    once = health_after_success(DEAD, 6.0)
    assert (once.state, once.since) == ("unhealthy", 5.0)
    assert health_after_success(failing(once, 1), 7.0).state == "unhealthy"
    assert health_after_success(once, 7.0).health == Health("healthy", 7.0)


def test_a_state_that_stays_keeps_its_time() -> None:
    assert health_after_success(health_after_success(EndpointHealth(), 1.0), 2.0).since == 1.0
    assert failing(DEAD, 1).since == 5.0


def test_a_stored_health_state_is_continued() -> None:
    assert failing(restore_endpoint_health(Health("suspect", 1.0)), 2).state == "unhealthy"
    assert health_after_success(restore_endpoint_health(Health("unhealthy", 1.0)), 2.0).state == "unhealthy"
    assert restore_endpoint_health(None) == EndpointHealth()


def test_an_endpoint_that_answers_gone_is_unhealthy_at_once() -> None:
    assert health_after_failure(EndpointHealth(), GONE, 1.0).state == "unhealthy"


def test_no_endpoint_becomes_unhealthy_while_our_own_network_may_be_at_fault() -> None:
    assert health_after_failure(failing(EndpointHealth(), 2), "refused", 1.0, hold=True).state == "suspect"


@pytest.mark.parametrize(
    ("endpoint", "status", "failure"),
    [
        ("https://a.example/", 200, None),
        ("https://a.example/", 302, None),
        ("https://a.example/", 401, None),
        ("https://a.example/", 405, None),
        ("https://a.example/", 404, "status_404"),
        ("https://a.example/", 410, "gone"),
        ("https://a.example/", 500, "status_500"),
        ("https://a.example/", 503, "status_503"),
        ("wss://a.example/", 101, None),
        ("wss://a.example/", 404, None),
        ("WSS://a.example/", 500, None),
        ("grpc://a.example:1", None, None),
    ],
)
def test_which_responses_count_as_a_failure(endpoint: str, status: int | None, failure: str | None) -> None:
    assert failure_of(endpoint, status) == failure


@pytest.mark.parametrize(
    ("bindings", "endpoint"),
    [
        ([], None),
        ([("mcp", "stdio:server", None)], None),
        ([("grpc", "grpc://a.example", None)], None),  # no port to connect to
        ([("https", "https://[bad/", None), ("https", "https://b.example/", None)], "https://b.example/"),
        ([("mail", "mailto:a@b.example", None), ("tcp", "tcp://a.example:7", None)], "tcp://a.example:7"),
        ([("https", "https://a.example/", 2), ("https", "https://b.example/", 1)], "https://b.example/"),
        ([("https", "https://a.example/", None), ("ws", "ws://b.example/", None)], "https://a.example/"),
    ],
)
def test_the_preferred_endpoint_that_can_be_checked_is_chosen(
    bindings: list[tuple[str, str, int | None]], endpoint: str | None
) -> None:
    made = tuple(Binding(protocol=name, endpoint=place, priority=rank) for name, place, rank in bindings)
    record = AgentRecord(id="a", name="A", description="", bindings=made)
    assert endpoint_to_check(record) == endpoint
