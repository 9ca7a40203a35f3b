"""The score that is shown: a logistic of the fused figure, the same curve for every question.

    score = 1 / (1 + exp(−(figure − MIDDLE) / SLOPE − LIFT))

The figure is absolute, so the score is: a question that nobody answers scores low, whoever is best, and a floor that a client
sets means the same everywhere on a service. MIDDLE is where half of the answers are right; the two numbers were fitted once,
over two public sets together and questions of the one asked to the other (docs/explanation/search.md tells how well it holds).
Each mix of signals has its own two, because figures without vectors lie elsewhere. LIFT is what the preferred tags that an
agent carries add: the same in every mix, nothing for one that carries none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from waypost.search.candidates import F32, F64
from waypost.search.fusion import Names
from waypost.search.plain_order import logistic

DEPRECATED: Final = 0.5  # of its score, that such an agent keeps
_TAGS_ALONE: Final = 0.5  # without a word, carrying every tag that was named is worth this much


class Rules(NamedTuple):
    """From a figure to a score and a place, for one mix of signals."""

    middle: float
    slope: float
    shared: float = 0.25  # of words where they may be of another language: half of what they weigh otherwise
    half_life: float = 182 * 86_400.0  # of what is fresh
    fresh: float = 0.01  # of the figure: parts near equals
    deprecated: float = DEPRECATED
    fine: float = 1e9  # steps of a score that decide the order: a finer difference is noise of adding up


_WITH_NETWORK: Final = Rules(0.32, 0.04)
_WITH_STATIC: Final = Rules(0.33, 0.04)
_WORDS_ALONE: Final = Rules(0.2, 0.04)  # fitted: .13 and .02, which calls every match in a small registry certain


def rules_of(names: Names) -> Rules:
    return _WITH_NETWORK if names.network else _WITH_STATIC if names.static else _WORDS_ALONE


def scores(figures: F32, lift: F32, rules: Rules) -> F64:
    return np.frombuffer(logistic(figures, lift, rules.middle, rules.slope), dtype=np.float64)


def by_tags_alone(preferred: F32) -> F64:
    return preferred.astype(np.float64) * _TAGS_ALONE
