"""The quality benchmark measures correctly, and the documentation shows its results."""

from __future__ import annotations

import json
from functools import partial

import pytest
from bench import saved_results
from bench.measures import auc, ndcg, recall, reciprocal_rank
from bench.quality import checks
from bench.quality.report import DOCUMENT, PLOT, RESULTS, TOLERANCES, documented, drawn
from bench.quality.retrieval import Task, measured
from bench.rankers import ABLATIONS, default_ranker
from bench.searchers import InProcess
from bench.sets import haystack, public_set, sampled

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
def test_a_part_of_a_set_is_measured_through_the_product_and_beats_chance() -> None:
    task = Task(public_set("metatool").agents, {"few": sampled(public_set("metatool").questions, 40)})
    found = measured(partial(InProcess, default_ranker), task.agents, task)["few"]
    assert 50 < found["ndcg10"] <= 100
    assert found["mrr"] <= found["recall5"] + 20


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
def test_agents_of_eight_skills_are_mostly_first_for_each_and_the_example_is_named() -> None:
    found = checks.many_skills(default_ranker, public_set("metatool").agents)
    assert found["first"] >= 85
    assert found["example_named"] >= 98


def test_measures_agree_with_values_computed_by_hand() -> None:
    assert ndcg(["b", "a"], {"a"}) == pytest.approx(0.6309, abs=1e-4)
    assert recall(["a", "x", "y", "z", "w", "b"], {"a", "b"}) == 0.5
    assert reciprocal_rank(["x", "a"], {"a"}) == 0.5
    assert auc([0.9, 0.5], [0.1, 0.5]) == 0.875


def test_a_figure_that_is_worse_beyond_its_tolerance_is_a_regression() -> None:
    before = {"retrieval": {"waypost": {"metatool": {"ndcg10": 80.0}}}}
    worse = {"retrieval": {"waypost": {"metatool": {"ndcg10": 79.4}}}}
    noise = {"retrieval": {"waypost": {"metatool": {"ndcg10": 79.6}}}}
    assert saved_results.regressions(worse, before, TOLERANCES) == [
        "retrieval / waypost / metatool / ndcg10: 79.4, was 80"
    ]
    assert saved_results.regressions(noise, before, TOLERANCES) == []
    assert saved_results.regressions(json.loads("{}"), before, TOLERANCES) == []
