"""Every request of the corpus on a real socket: refused with the reason and the connection closed, or served as it was sent."""

from __future__ import annotations

import pytest
from bench.http_servers import Outcome, examine

from support.http_corpus import corpus


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """All at once, since the slow ones take as long as the service waits."""
    return {outcome.case.name: outcome for outcome in examine("waypost")}


def test_the_corpus_is_large() -> None:
    assert len(corpus()) >= 150
    assert sum(case.is_ambiguous for case in corpus()) >= 80


@pytest.mark.parametrize("name", [case.name for case in corpus()])
def test_a_request_is_served_as_it_was_sent_or_refused(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.fault is None, (outcome.fault, outcome.statuses, outcome.closed, outcome.seen)
    assert not outcome.reset
