"""Where the time of a query goes: CPU time by stage, over distinct queries.

    python -m bench.search.profile --size 100000 --work FOLDER [--questions 500] [--seed 7] [--passes 1]

FOLDER was filled by `bench.search --work FOLDER`. A stage is a function of the product; nested stages are counted separately.
With more passes the minimum time of each query counts, which removes noise and one-time costs of new words.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.measures import quantile
from bench.rankers import default_ranker, spaces
from bench.search.questions import distinct
from bench.searchers import ask
from waypost.embedders import use_encoder
from waypost.registry.ports import Ranker
from waypost.search import ranker
from waypost.search.ranking import candidates
from waypost.search.vectors import vector_block

_WARMING = 100  # questions before the first that counts, as in `bench.search`
_REST = "the rest"

STAGES: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("question: terms, clauses, tags", ranker, ("asked_of",)),
    ("question: how rare its words are", ranker, ("Rarity",)),
    ("vectors: cutting, keeping", ranker, ("_encoded",)),
    ("vectors: the sentence network", use_encoder.UseNetwork, ("encode", "encode_runs")),
    ("vectors: means of words", use_encoder.StaticEncoder, ("encode", "encode_runs")),
    ("near: the rest of the search", candidates, ("_near",)),
    ("near: lists, sketches, vectors", vector_block.VectorBlock, ("nearest",)),
    ("words: candidates", candidates.WeightedTerms, ("best", "__init__")),
    ("choice of candidates, crowds", ranker, ("chosen_rows", "find_crowd", "kin_of", "thinned", "is_flooded")),
    ("measuring: words, tags, traits", candidates.WeightedTerms, ("measured",)),
    ("measuring: vectors", candidates, ("_similarities",)),
    ("measuring: the rest", ranker, ("measure",)),
    ("order: scores", ranker._CandidateOrder, ("__init__",)),
    ("order: spread, ids", ranker._CandidateOrder, ("hits",)),
)

Spent = Counter[str]
"""Nanoseconds by stage."""


class Watch:
    """Counts the processor time of this thread for the innermost stage that runs."""

    def __init__(self) -> None:
        self.spent: Spent = Counter()
        self._stages = [_REST]
        self._since = 0

    def enter(self, stage: str) -> None:
        self._count()
        self._stages.append(stage)

    def leave(self) -> None:
        self._count()
        self._stages.pop()

    def over(self, work: Callable[[], object]) -> Spent:
        """What one question spent."""
        self.spent, self._since = Counter(), time.thread_time_ns()
        work()
        self._count()
        return self.spent

    def _count(self) -> None:
        now = time.thread_time_ns()
        self.spent[self._stages[-1]] += now - self._since
        self._since = now


def watched(watch: Watch, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
    def measured(*given: Any, **named: Any) -> Any:
        watch.enter(stage)
        try:
            return work(*given, **named)
        finally:
            watch.leave()

    return measured


def put_in_place(watch: Watch) -> None:
    """For the rest of this process."""
    for stage, place, names in STAGES:
        for name in names:
            setattr(place, name, watched(watch, stage, getattr(place, name)))


def spent_by(asked: Sequence[str], make: Callable[[], Ranker], passes: int) -> list[Spent]:
    """Of each question the pass that took least. Everything that remembers questions is made anew for each pass."""
    watch = Watch()
    put_in_place(watch)
    best: list[Spent] = []
    for _ in range(passes):
        spaces.cache_clear()
        ranker = make()
        ranker.open()
        gc.collect()
        for text in asked[:_WARMING]:
            ask(ranker, text)
        some = [watch.over(partial(ask, ranker, text)) for text in asked[_WARMING:]]
        ranker.close()
        best = [min(pair, key=Counter.total) for pair in zip(best or some, some, strict=True)]
    return best


def told(spent: Sequence[Spent]) -> str:
    """A table: the mean of each stage, its median, and its mean over the slowest two in a hundred questions."""
    slowest = sorted(spent, key=Counter.total)[-max(1, len(spent) // 50) :]
    lines = ["| stage, ms of processor time | mean | p50 | slowest 2 % |", "|---|---|---|---|"]
    for stage in [*(stage for stage, _, _ in STAGES), _REST]:
        lines.append(_line(stage, [each[stage] for each in spent], [each[stage] for each in slowest]))
    lines.append(_line("**all**", [each.total() for each in spent], [each.total() for each in slowest]))
    totals = [each.total() / 1e6 for each in spent]
    ends = ", ".join(f"p{share} {quantile(totals, share / 100):.2f}" for share in (50, 95, 99))
    return "\n".join([*lines, "", f"{len(spent)} questions: {ends} ms"])


def _line(stage: str, of_all: Sequence[int], of_slowest: Sequence[int]) -> str:
    figures = fmean(of_all), quantile(of_all, 0.5), fmean(of_slowest)
    return f"| {stage} | " + " | ".join(f"{figure / 1e6:.2f}" for figure in figures) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--passes", type=int, default=1)
    given = parser.parse_args()
    folder = given.work / f"index-{given.size}" / "index"
    asked = [question.text for question in distinct(given.size, _WARMING + given.questions, given.seed)]
    print(told(spent_by(asked, lambda: default_ranker(folder), given.passes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
