"""From signals to one figure for each candidate: a weighted sum of absolute figures, each in 0..1.

    lexical   share of the question's weight (Σ idf²) that the record's words carry
    network   nearness of sentence vectors; static: of word vectors
    coverage  share of the description that the question says

Nothing is divided by the best candidate: a figure means the same for every question and whoever else is found. A question of
several wishes is weighed as a whole and by its best clause; an agent of many skills as a whole or, where that says more, by
words and its best example, which then stands for all that tells of the whole. The weights were chosen round, in a flat region
on two public sets (see docs/explanation/search.md); a signal that is not there leaves its weight to the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.candidates import F32, Signals


class Weights(NamedTuple):
    lexical: float = 0.5
    network: float = 0.3
    static: float = 0.1
    coverage: float = 0.1
    tags: float = 0.015  # tags that the words name
    preferred: float = 1.5  # tags that the caller named: added to the logarithm of the odds (see `calibration`)
    example: float = 0.25  # of a vector signal: the best example, the rest is the agent as a whole
    skills: float = 1.0  # of an agent of many skills: its best one, where it says more than the whole
    thinned: float = 1.5  # of its words then: in the record, what one example of many says is thinned out
    clauses: float = 0.65  # of a question with very many wishes: the best of them, the rest is the whole
    foreign: float = 0.7  # of sentence vectors where words say nothing: they stand for the words too


class Names(NamedTuple):
    """The spaces, where there are any."""

    network: str | None = None
    static: str | None = None


def fused(signals: Signals, names: Names, weights: Weights, mass: float, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates]. `mass` is Σ idf² of the question. `foreign` candidates are in another language than the question."""
    parts = _parts(signals, names, weights, mass, foreign)
    whole = parts[:, 0]
    if (wishes := parts.shape[1] - 1) > 0:
        best = weights.clauses * (1 - 1 / wishes)  # of two, one often only tells more of the other
        whole = (1 - best) * whole + best * parts[:, 1:].max(axis=1)
    return _f32(whole + weights.tags * signals.tags)


def _parts(signals: Signals, names: Names, weights: Weights, mass: float, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates, units]."""
    lexical = signals.lexical / max(mass, 1e-6)
    words = weights.lexical * lexical + weights.coverage * signals.coverage
    static = nearness(signals, names.static, weights)
    network = nearness(signals, names.network, weights)
    if network is None:
        return _f32(words if static is None else words + (weights.static + weights.network) * static)
    sentence = network
    if static is not None:
        # An agent that is too new to have sentence vectors is judged by the other vectors in their place.
        sentence = np.where(signals.covered[names.network or ""][:, None], network, static)
        words = words + weights.static * static
    parts = _f32(np.where(foreign[:, None], weights.foreign * network, words + weights.network * sentence))
    if not signals.skills.any():
        return parts
    best = _best_skill(signals.examples[names.network or ""], lexical, weights, foreign)
    return _f32(parts + weights.skills * signals.skills[:, None] * np.maximum(best - parts, 0))


def _best_skill(example: F32, lexical: F32, weights: Weights, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates, units]: by words, and by the best example in place of all other signals, which tell of the whole."""
    others = weights.network + weights.static + weights.coverage
    words = weights.lexical * weights.thinned
    return _f32(np.where(foreign[:, None], weights.foreign * example, words * lexical + others * example))


def nearness(signals: Signals, name: str | None, weights: Weights) -> F32 | None:
    """How near the vectors of a space are: the agent as a whole, lifted by an example that is nearer."""
    if name is None or name not in signals.centres:
        return None
    centre, example = signals.centres[name], signals.examples[name]
    return np.maximum(_f32(centre + weights.example * np.maximum(example - centre, 0)), 0)


def _f32(array: npt.NDArray[Any]) -> F32:
    return array.astype(np.float32, copy=False)
