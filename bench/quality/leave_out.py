"""Leave-one-family-out: how well weights do on data that they were not chosen on.

The signals of the candidates are measured once per question, by the product. Each variant of a grid of round weights then scores
the same candidates with the product's formula. For each family the variant is taken that is best on the sets of all other
families, and only its nDCG@10 on the family that was left out counts. A change of weights, signals or models is judged by the
mean of these figures over the sets: it says what to expect on a catalogue that nobody tuned for.

Candidates are ranked by score alone: the rules for near duplicates and floods, which reorder results, are not applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.measures import ndcg
from bench.quality.retrieval import Figures, MakeSearcher, Task, bootstrap, gains
from bench.rankers import quality_ranker, ranker_without_english
from bench.searchers import NOW, PUBLIC, InProcess
from bench.sets import FAMILIES, Question, family_of
from waypost.model.query import Query
from waypost.search.ranker import HybridRanker
from waypost.search.ranking.scoring import MEANING, MeaningWeights, ScoringInput, SignalWeights
from waypost.search.vectors import SpaceRole

F64 = npt.NDArray[np.float64]

QUESTIONS: Final = 100  # of each set, spread evenly: the grid is scored on every one
LEFT_OUT: Final = "left out"
SHIPPED: Final = "shipped weights"
RANKERS: Final = {"all models": quality_ranker, "without the English model": ranker_without_english}


class Variant(NamedTuple):
    """Weights that could be shipped."""

    weights: SignalWeights = SignalWeights()
    meaning: MeaningWeights = MEANING

    def __str__(self) -> str:
        """What differs from the shipped weights."""
        fields = zip(SignalWeights._fields, self.weights, SignalWeights(), strict=True)
        told = [f"{name} {value:g}" for name, value, shipped in fields if value != shipped]
        for spaces, by_role in self.meaning.items():
            if by_role != MEANING[spaces]:
                told += [f"{role.name.lower()} {weight:g}" for role, weight in by_role.items()]
        return ", ".join(told) or SHIPPED


_BOTH = frozenset({SpaceRole.MULTILINGUAL, SpaceRole.ENGLISH})
_MORE_MULTILINGUAL: Final[MeaningWeights] = {
    **MEANING,
    _BOTH: {SpaceRole.MULTILINGUAL: 7.0, SpaceRole.ENGLISH: 5.0},
}
# The shipped weights first: of equal variants the first is chosen.
GRID: Final = (
    Variant(),
    *(
        variant
        for words, spelling, factor, meaning in product(
            (2.0, 4.0, 6.0), (3.0, 5.0, 7.0), (0.5, 1.0, 2.0), (MEANING, _MORE_MULTILINGUAL)
        )
        if (variant := Variant(SignalWeights(words=words, spelling=spelling, meaning=factor), meaning)) != Variant()
    ),
)


class MeasuredQuestion(NamedTuple):
    """The candidates of a question, with all that their scores depend on but the weights."""

    relevant: frozenset[str]
    ids: Sequence[str]
    given: ScoringInput | None  # None: nothing was found

    def gain(self, variant: Variant) -> float:
        """nDCG@10 in percent."""
        if self.given is None:
            return 0.0
        weighed = self.given._replace(spaces=self.given.spaces._replace(meaning=variant.meaning))
        order = weighed.score(NOW, variant.weights).order(self.given.signals.mark)[:10]
        return 100 * ndcg([self.ids[at] for at in order], self.relevant)


def measure_questions(make: Callable[[], HybridRanker], task: Task) -> list[MeasuredQuestion]:
    ranker = make()
    searcher = InProcess(lambda: ranker)
    try:
        searcher.fill(task.agents)
        return [_measured(each, ranker.measure(Query(text=each.text, limit=10), PUBLIC)) for each in task.questions]
    finally:
        searcher.close()


def _measured(question: Question, found: tuple[list[str], ScoringInput] | None) -> MeasuredQuestion:
    ids, given = found or ([], None)
    return MeasuredQuestion(question.relevant, ids, given)


def grid_gains(questions: Sequence[MeasuredQuestion], grid: Sequence[Variant]) -> F64:
    """[variants, questions]: nDCG@10."""
    return np.array([[question.gain(variant) for question in questions] for variant in grid])


def choose_left_out(by_set: Mapping[str, F64], families: Mapping[str, Sequence[str]] = FAMILIES) -> dict[str, int]:
    """For each family, the number of the variant with the best mean over the sets of the other families."""
    return {family: _best_variant(_without(by_set, names)) for family, names in families.items()}


def _without(by_set: Mapping[str, F64], names: Sequence[str]) -> list[F64]:
    return [by_set[name] for name in by_set if name not in names]


def _best_variant(others: Sequence[F64]) -> int:
    return int(np.mean([of_set.mean(axis=1) for of_set in others], axis=0).argmax())


def judge(todo: Sequence[Task], baselines: Mapping[str, MakeSearcher]) -> dict[str, Any]:
    """The product with all its models and without the English one, beside the baselines on the same questions."""
    compared = {name: {task.name: np.array(gains(make, task)) for task in todo} for name, make in baselines.items()}
    return {
        **{name: judge_grid(make, todo) for name, make in RANKERS.items()},
        "baselines": {name: summarize(of_sets) for name, of_sets in compared.items()},
    }


def judge_grid(
    make: Callable[[], HybridRanker], todo: Sequence[Task], grid: Sequence[Variant] = GRID
) -> dict[str, Any]:
    """The variant that is chosen without each family, its figures on that family, and those of the shipped weights."""
    by_set = {task.name: grid_gains(measure_questions(make, task), grid) for task in todo}
    chosen = choose_left_out(by_set)
    left_out = {name: of_set[chosen[family_of(name)]] for name, of_set in by_set.items()}
    shipped = {name: of_set[grid.index(Variant())] for name, of_set in by_set.items()}
    return {
        "chosen": {family: str(grid[at]) for family, at in chosen.items()},
        LEFT_OUT: summarize(left_out),
        SHIPPED: summarize(shipped),
    }


def summarize(of_sets: Mapping[str, F64]) -> dict[str, Figures]:
    """The figures of each set, and of the mean over the sets."""
    each = {name: bootstrap([values]) for name, values in of_sets.items()}
    return each | {"mean": bootstrap([*of_sets.values()])}
