"""Match words: thresholds from a background of scores, and exact names, ids and tags."""

from __future__ import annotations

import pytest

from waypost.model.record import AgentRecord
from waypost.search.ranking.match import (
    DEFAULT_BACKGROUND,
    DEFAULT_THRESHOLDS,
    ExactMatcher,
    MatchThresholds,
    calibrate_thresholds,
    match_of,
)

RECORD = AgentRecord(
    id="https://agents.example.net/id/invoice-translator",
    name="Invoice Translator",
    description="Translates invoices.",
    tags=("finance", "invoice-processing", "c++"),
)


def test_a_score_is_named_by_the_thresholds() -> None:
    thresholds = MatchThresholds(strong=0.6, possible=0.3)
    assert [match_of(score, thresholds) for score in (0.6, 0.59, 0.3, 0.29, 0.0)] == [
        "strong", "possible", "possible", "weak", "weak",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["请把发票翻译成英文", "請求書を翻訳してください", "übersetze eine Rechnung", "traduce una factura"]
)
def test_thresholds_are_lower_for_a_query_in_another_language(text: str) -> None:
    lowered = DEFAULT_THRESHOLDS.for_query(text)
    assert lowered.strong < DEFAULT_THRESHOLDS.strong
    assert DEFAULT_THRESHOLDS.possible > lowered.possible > DEFAULT_BACKGROUND
    assert DEFAULT_THRESHOLDS.for_query("translate an invoice") == DEFAULT_THRESHOLDS


def test_an_exact_name_or_id_is_strong_and_an_exact_tag_at_least_possible() -> None:
    assert match_of(0.0, DEFAULT_THRESHOLDS, "id") == "strong"
    assert match_of(0.0, DEFAULT_THRESHOLDS, "name") == "strong"
    assert match_of(0.0, DEFAULT_THRESHOLDS, "tag") == "possible"
    assert match_of(1.0, DEFAULT_THRESHOLDS, "tag") == "strong"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("https://agents.example.net/id/invoice-translator", "id"),
        ("HTTPS://agents.example.net/id/Invoice-Translator", "id"),
        ("urn:example:alias", "id"),
        ("Invoice Translator", "name"),
        ("  invoice-translator ", "name"),
        ("invoice_translator", "name"),
        ("finance", "tag"),
        (":Finance", "tag"),
        ("invoice processing", "tag"),
        ("c++", "tag"),
        ("c", None),
        ("invoice", None),
        ("translate an invoice", None),
        ("finance agents", None),
        ("", None),
        ("  ", None),
        ("!?", None),
    ],
)
def test_the_whole_text_names_a_field(text: str, field: str | None) -> None:
    assert ExactMatcher(text).find_field(RECORD, ("urn:example:alias",)) == field


def test_the_last_part_of_an_id_is_a_short_id() -> None:
    record = AgentRecord(id="urn:example:agents:tax-clerk", name="Helper", description="Helps.")
    assert ExactMatcher("Tax Clerk").find_field(record) == "id"
    assert ExactMatcher("clerk").find_field(record) is None


def test_without_a_background_the_defaults_apply() -> None:
    assert calibrate_thresholds([], 1000) == DEFAULT_THRESHOLDS
    assert calibrate_thresholds([DEFAULT_BACKGROUND] * 24, 1000) == DEFAULT_THRESHOLDS


def test_a_higher_background_raises_the_thresholds_within_bounds() -> None:
    low, high = (calibrate_thresholds([factor * DEFAULT_BACKGROUND] * 24, 1000) for factor in (0.5, 2.0))
    assert low.strong < DEFAULT_THRESHOLDS.strong < high.strong
    assert low.possible < DEFAULT_THRESHOLDS.possible < high.possible
    for best in (0.0, 0.3, 0.999, 1.0):
        thresholds = calibrate_thresholds([best] * 24, 10**6)
        assert 0 < thresholds.possible < thresholds.strong < 0.9


def test_a_few_agents_hardly_move_the_thresholds() -> None:
    few, many = (calibrate_thresholds([2 * DEFAULT_BACKGROUND] * 24, agents) for agents in (5, 5000))
    assert few.strong - DEFAULT_THRESHOLDS.strong < 0.3 * (many.strong - DEFAULT_THRESHOLDS.strong)


def test_a_minority_of_questions_that_fit_does_not_move_the_thresholds() -> None:
    best_scores = [1.5 * DEFAULT_BACKGROUND] * 24
    fitting = [*best_scores[:-8], *[0.99] * 8]
    assert calibrate_thresholds(fitting, 1000) == calibrate_thresholds(best_scores, 1000)
    assert calibrate_thresholds(fitting[::-1], 1000) == calibrate_thresholds(fitting, 1000)
