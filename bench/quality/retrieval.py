"""The two public sets, alone and in the haystack: every searcher is filled and gets every query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.measures import mean, ndcg, recall, reciprocal_rank
from bench.searchers import Searcher
from bench.sets import Question, haystack, public_set, sampled
from waypost.model.registration import Registration

SETS = ("metatool", "sealtools")
Figures = dict[str, float]


@dataclass(frozen=True)
class Task:
    """A corpus and its queries, by group."""

    agents: Sequence[Registration]
    questions: dict[str, tuple[Question, ...]]


def tasks(count: int | None = None, *, with_haystack: bool = True) -> list[Task]:
    """The sets alone, and together with the real servers as the haystack; `count` queries of each, or all."""
    asked = {name: sampled(public_set(name).questions, count) for name in SETS}
    alone = [Task(public_set(name).agents, {name: asked[name]}) for name in SETS]
    if not with_haystack:
        return alone
    return [*alone, Task(haystack(), {f"{name} in haystack": asked[name] for name in SETS})]


def measured(make: Callable[[], Searcher], agents: Sequence[Registration], task: Task) -> dict[str, Figures]:
    """Fill a new searcher with `agents` and run the queries of the task."""
    searcher = make()
    try:
        searcher.fill(agents)
        return {name: asked(searcher, questions) for name, questions in task.questions.items()}
    finally:
        searcher.close()


def asked(searcher: Searcher, questions: Sequence[Question]) -> Figures:
    answers = [([hit.id for hit in searcher.find(each.text, 10)], each.relevant) for each in questions]
    return {
        "ndcg10": round(100 * mean(ndcg(*answer) for answer in answers), 2),
        "recall5": round(100 * mean(recall(*answer) for answer in answers), 2),
        "mrr": round(100 * mean(reciprocal_rank(*answer) for answer in answers), 2),
    }
