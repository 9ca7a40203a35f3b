"""The score: absolute, the sum of its components, and lifted by exact names and preferred tags; and the clauses of a query."""

from __future__ import annotations

import numpy as np
import pytest

from support.agents import agent, ask, opened
from waypost.model.query import Hit
from waypost.search.ranking.candidates import Signals
from waypost.search.ranking.scoring import (
    EXACT_LIFT,
    MEANING,
    QueryMass,
    Scores,
    SignalWeights,
    Spaces,
    score_by_tags,
    score_candidates,
)
from waypost.search.text.analyzer import split_clauses
from waypost.search.vectors import SpaceRole

COUNT = 4
DICE = np.random.default_rng(5)
SPACES = Spaces({SpaceRole.MULTILINGUAL: "use", SpaceRole.ENGLISH: "minilm", SpaceRole.STATIC: "static"})
HOME = np.zeros(COUNT, dtype=np.bool_)


def f32(*shape: int) -> np.ndarray:
    return DICE.random(shape, dtype=np.float32)


def signals(**changed: object) -> Signals:
    similar = {name: f32(COUNT, 3) for name in ("use", "minilm", "static")}
    made = Signals(
        place=np.zeros(COUNT, dtype=np.int64),
        rows=np.arange(COUNT, dtype=np.uint32),
        mark=np.arange(COUNT, dtype=np.uint64),
        deprecated=np.zeros(COUNT, dtype=np.bool_),
        worth=np.ones(COUNT, dtype=np.float32),
        updated=np.zeros(COUNT),
        language=np.ones(COUNT, dtype=np.uint8),
        words=20 * f32(COUNT),
        coverage=f32(COUNT),
        spelling=100 * f32(COUNT),
        name=f32(COUNT),
        ruled_out=np.zeros(COUNT, dtype=np.bool_),
        exact=np.zeros(COUNT, dtype=np.bool_),
        preferred=np.zeros(COUNT, dtype=np.float32),
        centres=similar,
        examples={name: f32(COUNT, 3) for name in similar},
        covered={name: np.ones(COUNT, dtype=np.bool_) for name in similar},
    )
    return made._replace(**changed)


def score(given: Signals, foreign: np.ndarray = HOME) -> Scores:
    return score_candidates(given, QueryMass(25.0, 140.0), SPACES, foreign, 1e9, SignalWeights())


def test_the_components_add_up_to_the_score() -> None:
    given = signals(
        exact=np.array([True, False, False, True]),
        deprecated=np.array([False, True, False, True]),
        worth=np.array([1.0, 1.0, 0.9, 0.5], dtype=np.float32),
        preferred=np.array([0.0, 0.5, 1.0, 0.0], dtype=np.float32),
    )
    for found in (score(given), score_by_tags(given), score(given, ~HOME)):
        assert np.allclose(sum(found.components.values()), found.total)
        assert ((found.total >= 0) & (found.total <= 1)).all()


def test_a_score_does_not_depend_on_the_other_candidates() -> None:
    given = signals()
    reversed_ = Signals(*(_reverse(column) for column in given))
    assert score(reversed_).total[::-1].tolist() == score(given).total.tolist()


def _reverse(column: object) -> object:
    if isinstance(column, dict):
        return {name: each[::-1] for name, each in column.items()}
    return column[::-1]  # type: ignore[index]


def test_an_exact_name_scores_high_whatever_else_matches() -> None:
    found = score(signals(exact=np.ones(COUNT, dtype=np.bool_)))
    assert (found.total >= EXACT_LIFT).all()


def test_half_of_the_score_is_left_to_a_deprecated_agent() -> None:
    given = signals()
    halved = score(given._replace(deprecated=~HOME))
    assert halved.total.tolist() == (score(given).total / 2).tolist()


def test_english_vectors_do_not_count_abroad() -> None:
    given = signals()
    other = given._replace(centres={**given.centres, "minilm": f32(COUNT, 3)})
    assert score(given, ~HOME).total.tolist() == score(other, ~HOME).total.tolist()
    assert score(given).total.tolist() != score(other).total.tolist()


def test_multilingual_vectors_make_up_for_words_abroad() -> None:
    """Words of another language match nothing, so the same similarity is worth more."""
    nothing = np.zeros(COUNT, dtype=np.float32)
    similar = {name: np.full((COUNT, 1), 0.5, dtype=np.float32) for name in ("use", "minilm", "static")}
    given = signals(words=nothing, coverage=nothing, spelling=nothing, name=nothing, centres=similar, examples=similar)
    assert (score(given, ~HOME).total > 1.25 * score(given).total).all()


def test_the_components_add_up_if_everything_matches_abroad() -> None:
    whole = np.ones(COUNT, dtype=np.float32)
    similar = {name: np.ones((COUNT, 1), dtype=np.float32) for name in ("use", "minilm", "static")}
    given = signals(
        words=25 * whole, coverage=whole, spelling=140 * whole, name=whole, centres=similar, examples=similar
    )
    found = score(given, ~HOME)
    assert np.allclose(found.total, 1.0)
    assert np.allclose(sum(found.components.values()), found.total)


def test_rows_without_sentence_vectors_are_scored_by_their_stand_in() -> None:
    given = signals()
    given = given._replace(covered={**given.covered, "use": HOME, "minilm": HOME})
    other = given._replace(centres={**given.centres, "use": f32(COUNT, 3)})
    assert score(given).total.tolist() == score(other).total.tolist()


@pytest.mark.parametrize("roles", MEANING)
def test_every_mix_of_models_has_weights(roles: frozenset[SpaceRole]) -> None:
    spaces = Spaces({role: role.value for role in roles})
    assert spaces.weights(1.0).keys() == roles


def best(query: str) -> Hit:
    agents = (
        agent("x/invoice-translator", "Invoice Translator", "Translates.", tags=("finance", "what")),
        agent("x/postgres", "Postgres", "Queries a database with SQL.", tags=("sql",)),
        agent("x/database", "Database", "Queries every database with SQL: finance, invoices, people.", tags=("data",)),
    )
    return ask(opened(*agents), query)[0]


@pytest.mark.parametrize("query", ["finance", "FINANCE", "invoice translator", "invoice-translator", "what"])
def test_an_exact_tag_name_or_id_is_first_with_a_high_score(query: str) -> None:
    assert best(query).id == "x/invoice-translator"
    assert best(query).score >= EXACT_LIFT


def test_a_name_that_is_ruled_out_earns_no_credit() -> None:
    assert best("a database for SQL like postgres").id == "x/postgres"
    assert best("a database for SQL but not postgres").id == "x/database"


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


def test_a_name_that_is_ruled_out_keeps_half_of_the_score_and_the_parts_add_up() -> None:
    given = signals()
    out = np.zeros(COUNT, dtype=np.bool_)
    out[0] = True
    before, after = score(given), score(given._replace(ruled_out=out))
    assert after.total[0] == before.total[0] / 2
    assert np.array_equal(after.total[1:], before.total[1:])
    assert np.allclose(sum(after.components.values()), after.total)
