"""The quality benchmark measures correctly, and the documentation shows its results."""

from __future__ import annotations

import json
from functools import partial

import pytest
from bench import saved_results
from bench.measures import auc, ndcg, recall, reciprocal_rank
from bench.quality import checks
from bench.quality.baselines import Bm25, BruteForce, Rrf
from bench.quality.report import DOCUMENT, PLOT, RESULTS, TOLERANCES, documented, drawn
from bench.quality.retrieval import Task, measure
from bench.quality.robustness import with_typo
from bench.rankers import ABLATIONS, default_ranker, sentence_space
from bench.searchers import InProcess
from bench.sets import (
    FAMILIES,
    SETS,
    Question,
    family_of,
    haystack,
    public_set,
    questions_without_agent,
    sampled,
)

needs_data = pytest.mark.usefixtures("retrieval_data")


def test_the_documentation_shows_the_saved_results() -> None:
    results = saved_results.load(RESULTS)
    text = DOCUMENT.read_text(encoding="utf-8")
    assert documented(text, results) == text
    assert drawn(results) == PLOT.read_text(encoding="utf-8")


@needs_data
def test_the_sets_are_those_that_were_published() -> None:
    sizes = {
        name: (len(public_set(name).agents), len(public_set(name).questions)) for name in ("metatool", "sealtools")
    }
    assert sizes == {"metatool": (199, 1194), "sealtools": (4076, 1354)}
    assert len({agent.id for agent in haystack()}) == len(haystack()) == 8086


@needs_data
def test_every_question_has_an_agent_in_its_set() -> None:
    for name in ("metatool", "sealtools"):
        known = {agent.id for agent in public_set(name).agents}
        assert [each for each in public_set(name).questions if not each.relevant <= known] == []


@needs_data
def test_families_are_left_out_whole() -> None:
    assert len(SETS) == len(set(SETS)) == 9
    assert {family_of(name) for name in SETS} == set(FAMILIES)
    assert family_of("livemcp_tool") == family_of("livemcp_server")
    assert len(questions_without_agent()) == 400


@needs_data
def test_a_part_of_a_set_is_measured_through_the_product_and_beats_chance() -> None:
    task = Task("few", public_set("metatool").agents, sampled(public_set("metatool").questions, 40))
    found = measure(partial(InProcess, default_ranker), task)
    assert 50 < found["low"] <= found["ndcg10"] <= found["high"] <= 100


@needs_data
def test_the_baselines_find_the_agent_that_was_asked_for() -> None:
    agents = public_set("metatool").agents[:50]
    for make in (Bm25, lambda: Rrf(Bm25(), BruteForce(sentence_space().embedder.encode))):
        searcher = make()
        searcher.fill(agents)
        assert agents[3].id in [hit.id for hit in searcher.find(agents[3].record.description, 3)]
        searcher.close()


def test_a_typo_changes_one_word_and_the_same_seed_makes_the_same_one() -> None:
    question = Question("translate an invoice", frozenset({"a"}))
    typo = with_typo(question, 1)
    assert typo == with_typo(question, 1)
    assert sum(a != b for a, b in zip(typo.text.split(), question.text.split(), strict=True)) == 1
    assert with_typo(Question("a b", frozenset({"a"})), 1).text == "a b"


@needs_data
@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda each: each.name)
def test_every_ablation_can_be_run(ablation: object) -> None:
    agents = [ablation.shown(agent) for agent in public_set("metatool").agents[:30]]  # type: ignore[attr-defined]
    searcher = InProcess(ablation.make)  # type: ignore[attr-defined]
    searcher.fill(agents)
    assert len(searcher.find("weather forecast for a city", 3)) <= 3
    searcher.close()


@needs_data
def test_clones_and_cheats_leave_no_trace_in_the_corpus() -> None:
    found = checks.clones(default_ranker, targets=1, count=5)
    assert set(found) == {"before", "copies", "variants", "rival"}
    cheated = checks.cheats(default_ranker, agents=1)
    assert all(figures["of"] == 50 for figures in cheated.values())


@needs_data
def test_agents_of_eight_skills_are_among_the_first_for_each_and_the_example_is_named() -> None:
    found = checks.many_skills(default_ranker, public_set("metatool").agents)
    assert found["in_top5"] >= 90
    assert found["example_named"] >= 98


def test_measures_agree_with_values_computed_by_hand() -> None:
    assert ndcg(["b", "a"], {"a"}) == pytest.approx(0.6309, abs=1e-4)
    assert recall(["a", "x", "y", "z", "w", "b"], {"a", "b"}) == 0.5
    assert reciprocal_rank(["x", "a"], {"a"}) == 0.5
    assert auc([0.9, 0.5], [0.1, 0.5]) == 0.875


def test_a_figure_that_is_worse_beyond_its_tolerance_is_a_regression() -> None:
    before = {"sets": {"waypost": {"metatool": {"ndcg10": 80.0}}}}
    worse = {"sets": {"waypost": {"metatool": {"ndcg10": 79.4}}}}
    noise = {"sets": {"waypost": {"metatool": {"ndcg10": 79.6}}}}
    assert saved_results.regressions(worse, before, TOLERANCES) == ["sets / waypost / metatool / ndcg10: 79.4, was 80"]
    assert saved_results.regressions(noise, before, TOLERANCES) == []
    assert saved_results.regressions(json.loads("{}"), before, TOLERANCES) == []
