"""The score that is shown: a logistic of the fused figure, the same curve for every question.

    score = 1 / (1 + exp(−(figure − MIDDLE) / SLOPE − LIFT))

The figure is absolute, so the score is: a question that nobody answers scores low, whoever is best, and a floor that a client
sets means the same everywhere on a service. MIDDLE is where half of the answers are right; the two numbers were fitted once,
over two public sets together and questions of the one asked to the other (docs/explanation/search.md tells how well it holds).
Each mix of signals has its own two, because figures without vectors lie elsewhere. LIFT is what the preferred tags that an
agent carries add: the same in every mix, nothing for one that carries none.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from waypost.search.candidates import F32, F64
from waypost.search.fusion import Names

try:
    from waypost.compiled.order import logistic
except ImportError:
    from waypost.search.plain_order import logistic

_WITH_NETWORK: Final = (0.32, 0.04)
_WITH_STATIC: Final = (0.33, 0.04)
_WORDS_ALONE: Final = (0.2, 0.04)  # fitted: .13 and .02, which calls every match in a small registry certain
_TAGS_ALONE: Final = 0.5  # without a word, carrying every tag that was named is worth this much


def scores(figures: F32, lift: F32, names: Names) -> F64:
    middle, slope = _WITH_NETWORK if names.network else _WITH_STATIC if names.static else _WORDS_ALONE
    return np.frombuffer(logistic(figures, lift, middle, slope), dtype=np.float64)


def by_tags_alone(preferred: F32) -> F64:
    return preferred.astype(np.float64) * _TAGS_ALONE
