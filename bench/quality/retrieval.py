"""The nine labelled sets, alone and in the haystack: a searcher is filled and gets every question.

Figures are means of nDCG@10 with a 95 % interval by bootstrap over the questions; seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.measures import mean, ndcg
from bench.searchers import Searcher
from bench.sets import SETS, Question, public_set, real_servers, sampled
from waypost.model.registration import Registration

QUESTIONS = 500  # of each set, spread evenly
_RESAMPLES = 1000
_SEED = 1

Figures = dict[str, float]
MakeSearcher = Callable[[], Searcher]


@dataclass(frozen=True)
class Task:
    """A corpus and its questions."""

    name: str
    agents: Sequence[Registration]
    questions: Sequence[Question]


def tasks(count: int | None = QUESTIONS, *, in_haystack: bool = False) -> list[Task]:
    hay = real_servers() if in_haystack else ()
    return [Task(name, (*public_set(name).agents, *hay), sampled(public_set(name).questions, count)) for name in SETS]


def measure(make: MakeSearcher, task: Task) -> Figures:
    """Fill a new searcher with the agents of the task and ask its questions."""
    return interval(gains(make, task))


def gains(make: MakeSearcher, task: Task) -> list[float]:
    """nDCG@10 of each question."""
    searcher = make()
    try:
        searcher.fill(task.agents)
        return ask(searcher, task.questions)
    finally:
        searcher.close()


def ask(searcher: Searcher, questions: Sequence[Question]) -> list[float]:
    return [100 * ndcg([hit.id for hit in searcher.find(each.text, 10)], each.relevant) for each in questions]


def interval(values: Sequence[float]) -> Figures:
    """The mean, and its 95 % interval by bootstrap."""
    return bootstrap([np.array(values)])


def bootstrap(sets: Sequence[npt.NDArray[np.float64]]) -> Figures:
    """The mean over sets of the mean over their questions, and its 95 % interval: questions are drawn anew within each set."""
    dice = np.random.default_rng(_SEED)
    drawn = [numbers[dice.integers(0, len(numbers), (_RESAMPLES, len(numbers)))].mean(axis=1) for numbers in sets]
    low, high = np.percentile(np.mean(drawn, axis=0), (2.5, 97.5))
    middle = mean(mean(numbers.tolist()) for numbers in sets)
    return {"ndcg10": round(middle, 2), "low": round(float(low), 2), "high": round(float(high), 2)}
