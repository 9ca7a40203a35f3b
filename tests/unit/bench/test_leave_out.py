"""Leave-one-family-out: what is chosen for a family never depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from bench.quality import leave_out
from bench.quality.leave_out import F64, GRID, MeasuredQuestion, Variant, choose_left_out, grid_gains, summarize
from bench.quality.report import chosen_table, leave_out_table, own
from bench.quality.retrieval import Task
from bench.searchers import NOW, PUBLIC, settle
from bench.sets import FAMILIES, SETS, Question, registration

from waypost.model.query import Query
from waypost.search.ranker import HybridRanker
from waypost.search.ranking.scoring import SignalWeights

AGENTS = [
    registration("few", {"id": name, "name": name, "description": told, "tags": [], "examples": []})
    for name, told in (
        ("weather", "Forecasts rain and wind for a city."),
        ("invoices", "Translates invoices into another language."),
        ("rain", "Sells umbrellas."),
    )
]
QUESTION = "will there be rain and wind in the city"


def gains_by_set(seed: int = 0) -> dict[str, F64]:
    """Three variants, five questions a set."""
    dice = np.random.default_rng(seed)
    return {name: dice.uniform(0, 100, (3, 5)) for name in SETS}


class NotedReads(Mapping[str, F64]):
    """Gains that note which sets were read."""

    def __init__(self, gains: Mapping[str, F64]) -> None:
        self._gains = gains
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> F64:
        self.read.add(name)
        return self._gains[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._gains)

    def __len__(self) -> int:
        return len(self._gains)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_choice_for_a_family_never_reads_its_sets(family: str) -> None:
    gains = NotedReads(gains_by_set())
    choose_left_out(gains, {family: FAMILIES[family]})
    assert gains.read == set(SETS) - set(FAMILIES[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_a_family_says_its_own_choice_stays(family: str) -> None:
    gains = gains_by_set()
    before = choose_left_out(gains)
    for variant in range(3):
        praised = gains | {name: np.eye(3)[[variant]].T * np.full((3, 5), 1e6) for name in FAMILIES[family]}
        after = choose_left_out(praised)
        assert after[family] == before[family]
        assert {after[other] for other in FAMILIES if other != family} == {variant}


def test_the_best_of_the_other_families_is_chosen_and_of_equals_the_first() -> None:
    flat = {name: np.full((3, 4), 50.0) for name in SETS}
    assert set(choose_left_out(flat).values()) == {0}
    flat["bfcl"] = np.array([[50.0] * 4, [50.0] * 4, [60.0] * 4])
    assert choose_left_out(flat) == {family: 0 if family == "bfcl" else 2 for family in FAMILIES}


def test_every_set_counts_the_same_in_the_mean_and_the_interval_holds_it() -> None:
    found = summarize({"large": np.tile([80.0, 100.0], 50), "small": np.array([0.0, 20.0])})
    assert [found[name]["ndcg10"] for name in ("large", "small", "mean")] == [90.0, 10.0, 50.0]
    assert found["mean"]["low"] < 50.0 < found["mean"]["high"]


def test_the_shipped_weights_come_first_and_no_variant_twice() -> None:
    assert GRID[0] == Variant()
    assert len({str(variant) for variant in GRID}) == len(GRID)
    assert str(Variant(SignalWeights(words=6.0))) == "words 6"


def test_the_shipped_variant_scores_as_the_product_does() -> None:
    ranker = HybridRanker()
    ranker.index.open()
    for agent in AGENTS:
        ranker.index.put(agent)
    settle(ranker)
    query = Query(text=QUESTION, limit=10)
    hits = ranker.rank(query, PUBLIC, alive=lambda _: True, now=NOW).hits
    found = ranker.measure(query, PUBLIC)
    assert found is not None
    ids, given = found
    scores = given.score(NOW // 3600 * 3600, SignalWeights())
    assert [(ids[at], round(float(scores.total[at]), 4)) for at in scores.order(given.signals.mark)] == [
        (hit.id, hit.score) for hit in hits
    ]
    assert ranker.measure(Query(text="the", limit=10), PUBLIC) is None
    ranker.close()


def test_weights_change_the_gain_of_a_question() -> None:
    task = Task("few", AGENTS, [Question("rain in the city", frozenset({AGENTS[0].id}))])
    measured = leave_out.measure_questions(HybridRanker, task)
    only_name = Variant(SignalWeights(words=0.0, spelling=0.0, coverage=0.0, name=1.0, freshness=0.0))
    gains = grid_gains(measured, (Variant(), only_name))
    assert gains[0, 0] == 100
    assert gains[1, 0] == pytest.approx(63.09, abs=0.01)
    assert MeasuredQuestion(frozenset({"a"}), [], None).gain(Variant()) == 0


def test_families_are_judged_on_what_was_chosen_without_them_and_shown() -> None:
    tasks = [Task(name, AGENTS, [Question(QUESTION, frozenset({AGENTS[0].id}))]) for name in SETS]
    judged = leave_out.judge_grid(HybridRanker, tasks, GRID[:3])
    assert judged["chosen"] == dict.fromkeys(FAMILIES, leave_out.SHIPPED)
    assert judged[leave_out.LEFT_OUT] == judged[leave_out.SHIPPED]
    results = {"leave-out": {**dict.fromkeys(leave_out.RANKERS, judged), "baselines": {"BM25": judged["left out"]}}}
    assert "| mean | 100.0 (100.0–100.0) |" in leave_out_table(results)
    assert "| bfcl | shipped weights | shipped weights |" in chosen_table(results)
    assert own(results)["leave-out"]["all models"] == {"left out": judged["left out"]}
