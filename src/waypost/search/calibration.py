"""The score that is shown: how sure we are, on one scale for every question.

    score = sureness(best) · (fused / best fused) ** FALL

`sureness` is a logistic of absolute figures of the best few candidates (how much of the question their words say, how near
their vectors are, how much of their description is said): nothing in it is relative to the other candidates, so a question
that nobody answers scores low, whoever is best. Within an answer the score falls with the fused order. The coefficients
were fitted once, over two public sets together (docs/explanation/search.md tells how, and how well it holds).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from waypost.search.candidates import F32, Signals
from waypost.search.fusion import Names

FALL: Final = 4.0
_BEST: Final = 3  # candidates whose figures speak for the answer: the first may be so by luck

# Sentence vectors there or not: intercept, words, network, static, coverage.
_WITH_NETWORK: Final = (-7.0, 4.0, 4.0, 4.0, 2.0)
_WITHOUT: Final = (-7.0, 7.0, 0.0, 7.0, 2.5)
_WORDS_ALONE: Final = (-3.0, 7.0, 0.0, 0.0, 2.5)


def figures(signals: Signals, names: Names, mass: F32) -> F32:
    """[candidates, 4]: words, network, static, coverage; each of the unit that fits best. `mass` is Σ idf of each unit."""
    words = (signals.lexical / np.maximum(mass, np.float32(1e-6))).max(axis=1)
    columns = [words]
    for name in (names.network, names.static):
        if name is not None and name in signals.centres:
            columns.append(np.maximum(signals.centres[name], signals.examples[name]).max(axis=1))
        else:
            columns.append(np.zeros(len(words), dtype=np.float32))
    columns.append(signals.coverage.max(axis=1))
    return np.stack(columns, axis=1).astype(np.float32)


def scores(fused: F32, found: F32, names: Names) -> F32:
    """The score of each candidate, in the order given: best first. `found` are the figures of each."""
    if not len(fused) or fused[0] <= 0:
        return np.zeros(len(fused), dtype=np.float32)
    sure = max(sureness(row, names) for row in found[:_BEST])
    return np.asarray(sure * np.clip(fused / fused[0], 0, 1) ** FALL, dtype=np.float32)


def sureness(row: F32, names: Names) -> float:
    coefficients = _WITH_NETWORK if names.network else _WITHOUT if names.static else _WORDS_ALONE
    z = coefficients[0] + sum(c * float(x) for c, x in zip(coefficients[1:], row, strict=True))
    return 1.0 / (1.0 + math.exp(-z))
