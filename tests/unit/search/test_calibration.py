"""The displayed score: one curve, raised by preferred tags; and the clauses of a query."""

from __future__ import annotations

import numpy as np
import pytest

from waypost.search.ranking.scoring import ScoreCurve, SignalWeights, SpaceNames, calibrate, curve_for, score_by_tags
from waypost.search.text.analyzer import split_clauses

MIXES = [*map(curve_for, (SpaceNames("network", "static"), SpaceNames(None, "static"), SpaceNames()))]
NO_LIFT = np.zeros(3, dtype=np.float32)


@pytest.mark.parametrize("rules", MIXES)
def test_a_score_rises_with_the_figure_and_does_not_depend_on_the_others(rules: ScoreCurve) -> None:
    figures = np.array([0.05, 0.2, 0.5], dtype=np.float32)
    together = calibrate(figures, NO_LIFT, rules)
    alone = [calibrate(figures[at : at + 1], NO_LIFT[:1], rules)[0] for at in range(3)]
    assert together.tolist() == alone
    assert 0 < together[0] < together[1] < together[2] < 1


@pytest.mark.parametrize("rules", MIXES)
def test_a_figure_of_nothing_scores_next_to_nothing(rules: ScoreCurve) -> None:
    assert calibrate(np.zeros(1, dtype=np.float32), NO_LIFT[:1], rules)[0] < 0.01


@pytest.mark.parametrize("rules", MIXES)
def test_a_preferred_tag_raises_scores_equally_and_lowers_none(rules: ScoreCurve) -> None:
    figures = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    lift = np.array([0, SignalWeights().preferred, 0], dtype=np.float32)
    plain, lifted = calibrate(figures, NO_LIFT, rules), calibrate(figures, lift, rules)
    assert lifted[[0, 2]].tolist() == plain[[0, 2]].tolist()
    odds = (lifted[1] / (1 - lifted[1])) / (plain[1] / (1 - plain[1]))
    assert odds == pytest.approx(np.exp(SignalWeights().preferred))


def test_tags_alone_score_by_their_share() -> None:
    assert score_by_tags(np.array([0, 0.5, 1], dtype=np.float32)).tolist() == [0, 0.25, 0.5]


def test_the_weights_of_a_figure_add_up_to_one() -> None:
    weights = SignalWeights()
    assert weights.lexical + weights.network + weights.static + weights.coverage == pytest.approx(1)


def test_several_wishes_are_distinguished() -> None:
    asked = "Find flights to Lisbon, then book a quiet hotel room. Translate the invoice into German."
    assert split_clauses(asked) == (
        "Find flights to Lisbon",
        "book a quiet hotel room",
        "Translate the invoice into German",
    )


def test_a_comma_separates_independent_clauses() -> None:
    asked = "As a fan of tennis, I want to see a live match, if there is one"
    assert split_clauses(asked) == ("As a fan of tennis", "I want to see a live match")


@pytest.mark.parametrize("asked", ["Find flights to Lisbon", "Find flights to Lisbon. Can you do that for me?", ""])
def test_one_wish_has_no_clauses(asked: str) -> None:
    assert split_clauses(asked) == ()
