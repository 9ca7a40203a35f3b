"""From signals to one order. Each signal is divided by its best among the candidates, so that none drowns the others; the
mix of the whole question and of its best clause decides.

The weights are the same for every question. They were chosen round, in the middle of a flat region on two public sets
(see docs/explanation/search.md); a signal that is not there leaves its weight to the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.candidates import F32, Signals


class Weights(NamedTuple):
    network: float = 0.45  # sentence vectors
    static: float = 0.30  # mean of word vectors
    lexical: float = 0.25
    coverage: float = 0.15  # how much of the description the question says
    tags: float = 0.03  # tags that the words name
    preferred: float = 0.25  # tags that the caller named
    example: float = 0.25  # of the vector signals: the best example, the rest is the agent as a whole
    clauses: float = 0.5  # of a question with several wishes: the best of them, the rest is the whole


class Names(NamedTuple):
    """The spaces, where there are any."""

    network: str | None = None
    static: str | None = None


def fused(signals: Signals, names: Names, weights: Weights, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates]. `foreign` candidates are in another language than the question: words say nothing of them."""
    parts = _parts(signals, names, weights, foreign)
    whole = parts[:, 0]
    if parts.shape[1] > 1:
        whole = (1 - weights.clauses) * whole + weights.clauses * parts[:, 1:].max(axis=1)
    return np.asarray(whole + weights.tags * signals.tags + weights.preferred * signals.preferred, dtype=np.float32)


def _parts(signals: Signals, names: Names, weights: Weights, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates, units]."""
    lexical = _normed(signals.lexical)
    static = _space(signals, names.static, weights)
    network = _space(signals, names.network, weights)
    if static is None and network is None:
        return _f32(weights.lexical * lexical + weights.coverage * signals.coverage)
    if network is None:
        near = static if static is not None else lexical
        words = (weights.lexical + weights.network / 2) * lexical + (weights.static + weights.network / 2) * near
        return _f32(words + weights.coverage * signals.coverage)
    near = static if static is not None else network
    # An agent that is too new to have sentence vectors is judged by the other vectors in their place.
    sentence = np.where(signals.covered[names.network or ""][:, None], network, near)
    words = weights.lexical * lexical + weights.static * near + weights.coverage * signals.coverage
    alone = (weights.lexical + weights.static) * sentence
    return _f32(weights.network * sentence + np.where(foreign[:, None], alone, words))


def _f32(array: npt.NDArray[Any]) -> F32:
    return array.astype(np.float32, copy=False)


def _space(signals: Signals, name: str | None, weights: Weights) -> F32 | None:
    if name is None or name not in signals.centres:
        return None
    centre, example = signals.centres[name], signals.examples[name]
    return _normed(np.where(example > centre, (1 - weights.example) * centre + weights.example * example, centre))


def _normed(scores: F32) -> F32:
    clipped = np.maximum(scores, 0)
    best = clipped.max(axis=0, keepdims=True) if len(clipped) else np.ones((1, scores.shape[1]), np.float32)
    return np.asarray(clipped / np.maximum(best, np.float32(1e-9)), dtype=np.float32)
