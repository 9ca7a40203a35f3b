"""Preferences order near-ties and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.model.record import AgentRecord, Example
from waypost.search.ranking.boosts import apply_preference, parse_preferences, preference_share


def record(**members: Any) -> AgentRecord:
    return AgentRecord(id="a", name="a", description="d", **members)


GERMAN = record(examples=(Example(text="Hallo", language="de"),), tags=("finance",), constraints={"region": "eu"})


@pytest.mark.parametrize(
    ("context", "share"),
    [
        ({}, 0.0),
        ({"locale": "de-AT"}, 1.0),
        ({"locale": "de_AT"}, 1.0),
        ({"language": "fr", "locale": "de"}, 0.0),
        ({"domain": "Finance"}, 1.0),
        ({"domain": ["health", "finance"], "locale": "fr"}, 0.5),
        ({"region": "eu", "domain": "law", "language": "de"}, 2 / 3),
        ({"mood": "good", "locale": 5, "domain": None}, 0.0),
    ],
)
def test_the_share_of_the_wishes_that_are_met(context: dict[str, Any], share: float) -> None:
    assert preference_share(GERMAN, context) == pytest.approx(share)


def test_an_agent_without_the_attribute_is_not_preferred() -> None:
    assert preference_share(record(), {"locale": "de", "domain": "finance"}) == 0.0


def test_a_preference_moves_a_score_by_a_twentieth_at_most() -> None:
    assert apply_preference(0.8, 1.0) == pytest.approx(0.84)
    assert apply_preference(0.8, 0.0) == 0.8
    assert apply_preference(1.0, 1.0) == 1.0


def test_only_known_members_of_a_context_are_wishes() -> None:
    assert not parse_preferences({"user": "u", "device": "phone"})
