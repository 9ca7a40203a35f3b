from __future__ import annotations

from typing import Any

from waypost.model.query import Evidence, MatchSignals, Query
from waypost.model.record import AgentRecord, Binding, Example
from waypost.search.evidence import explain

RECORD = AgentRecord(
    id="hr",
    name="HR Core Automator",
    description="Optimizes HR workflows. Runs onboarding checks for new employees! Knows nothing of cooking.",
    tags=("hr", "Onboarding", "api-automation", "workflows"),
    examples=(
        Example(id="ex-1", text="Prepare a new employee onboarding workflow."),
        Example(id="ex-2", text="Check an employee record for missing payroll fields."),
        Example(id="ex-3", text="Order pizza."),
    ),
    bindings=(Binding(protocol="https", endpoint="https://a.example"), Binding(protocol="MCP", endpoint="stdio")),
    updated_at="2026-05-08T00:00:00Z",
)


def evidence(text: str = "", **members: Any) -> Evidence:
    return explain(Query(text=text, **members), RECORD)


def test_requested_and_typed_tags_are_direct_matches() -> None:
    found = evidence("an agent for onboarding", required_tags=("HR",), preferred_tags=("none",))
    assert found.matched_tags == ("hr", "Onboarding")
    assert found.expanded_tags == ()


def test_tags_matched_by_stem_or_spelling_are_distinguished() -> None:
    found = evidence("automate an API workflow", preferred_tags=("api automation",))
    assert found.matched_tags == ()
    assert found.expanded_tags == ("api-automation", "workflows")


def test_the_most_informative_examples_come_first() -> None:
    found = evidence("onboarding of a new employee")
    assert [(example.id, example.score) for example in found.matched_examples] == [("ex-1", 1.0), ("ex-2", 0.3333)]
    assert found.matched_examples[0].text == RECORD.examples[0].text


def test_snippets_are_the_sentences_that_match() -> None:
    assert evidence("onboarding employees").snippets == ("Runs onboarding checks for new employees!",)
    assert evidence("zebra").snippets == ()


def test_components_are_the_parts_of_the_score_of_the_hit() -> None:
    near = MatchSignals(words=0.5, components={"words": 0.25, "context": 0.123456})
    assert explain(Query(text="zebra"), RECORD, near).components == {"words": 0.25, "context": 0.1235}
    assert evidence("zebra").components == {}


def test_a_long_sentence_is_shortened() -> None:
    record = AgentRecord(id="x", name="x", description="weather " * 100)
    snippet = explain(Query(text="weather"), record).snippets[0]
    assert len(snippet) <= 240
    assert snippet.endswith("…")
