"""Match words: thresholds from a background of scores, and exact names, ids and tags."""

from __future__ import annotations

import pytest

from waypost.model.record import AgentRecord
from waypost.search.ranking.match import (
    DEFAULT_THRESHOLDS,
    MIN_BACKGROUND,
    MatchThresholds,
    calibrate_thresholds,
    find_exact_field,
    match_of,
    quantile,
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
    assert find_exact_field(text, RECORD, ("urn:example:alias",)) == field


def test_the_last_part_of_an_id_is_a_short_id() -> None:
    record = AgentRecord(id="urn:example:agents:tax-clerk", name="Helper", description="Helps.")
    assert find_exact_field("Tax Clerk", record) == "id"
    assert find_exact_field("clerk", record) is None


def test_a_small_background_leaves_the_defaults() -> None:
    assert calibrate_thresholds([]) == DEFAULT_THRESHOLDS
    assert calibrate_thresholds([0.9] * (MIN_BACKGROUND - 1)) == DEFAULT_THRESHOLDS


def test_a_higher_background_raises_the_thresholds_within_bounds() -> None:
    low, high = calibrate_thresholds([0.05] * 48), calibrate_thresholds([0.95] * 48)
    assert low.strong < DEFAULT_THRESHOLDS.strong < high.strong
    assert low.possible < DEFAULT_THRESHOLDS.possible < high.possible
    for thresholds in (low, high, calibrate_thresholds([1.0] * 48), calibrate_thresholds([0.0] * 48)):
        assert 0 < thresholds.possible < thresholds.strong < 1


def test_the_order_of_the_background_does_not_matter() -> None:
    background = [at / 48 for at in range(48)]
    assert calibrate_thresholds(background) == calibrate_thresholds(background[::-1])


def test_quantiles_are_interpolated() -> None:
    assert [quantile([0.0, 1.0, 2.0], share) for share in (0.0, 0.25, 0.5, 1.0)] == [0.0, 0.5, 1.0, 2.0]
    assert quantile([0.5], 0.9) == 0.5
