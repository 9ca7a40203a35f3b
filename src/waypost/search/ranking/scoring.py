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

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.kernels.scoring_fallback import logistic
from waypost.search.ranking.candidates import F32, F64, Signals


class SignalWeights(NamedTuple):
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


class SpaceNames(NamedTuple):
    """The spaces, where there are any."""

    network: str | None = None
    static: str | None = None


def fuse_signals(
    signals: Signals, names: SpaceNames, weights: SignalWeights, mass: float, foreign: npt.NDArray[np.bool_]
) -> F32:
    """[candidates]. `mass` is Σ idf² of the question. `foreign` candidates are in another language than the question."""
    parts = _parts(signals, names, weights, mass, foreign)
    whole = parts[:, 0]
    if (wishes := parts.shape[1] - 1) > 0:
        best = weights.clauses * (1 - 1 / wishes)  # of two, one often only tells more of the other
        whole = (1 - best) * whole + best * parts[:, 1:].max(axis=1)
    return _f32(whole + weights.tags * signals.tags)


def _parts(
    signals: Signals, names: SpaceNames, weights: SignalWeights, mass: float, foreign: npt.NDArray[np.bool_]
) -> F32:
    """[candidates, units]."""
    lexical = signals.lexical / max(mass, 1e-6)
    words = weights.lexical * lexical + weights.coverage * signals.coverage
    static = vector_similarity(signals, names.static, weights)
    network = vector_similarity(signals, names.network, weights)
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


def _best_skill(example: F32, lexical: F32, weights: SignalWeights, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates, units]: by words, and by the best example in place of all other signals, which tell of the whole."""
    others = weights.network + weights.static + weights.coverage
    words = weights.lexical * weights.thinned
    return _f32(np.where(foreign[:, None], weights.foreign * example, words * lexical + others * example))


def vector_similarity(signals: Signals, name: str | None, weights: SignalWeights) -> F32 | None:
    """How near the vectors of a space are: the agent as a whole, lifted by an example that is nearer."""
    if name is None or name not in signals.centres:
        return None
    centre, example = signals.centres[name], signals.examples[name]
    return np.maximum(_f32(centre + weights.example * np.maximum(example - centre, 0)), 0)


def _f32(array: npt.NDArray[Any]) -> F32:
    return array.astype(np.float32, copy=False)


# ---- The score that is shown: a logistic of the fused figure, the same curve for every question.
#
#     score = 1 / (1 + exp(−(figure − MIDDLE) / SLOPE − LIFT))
#
# The figure is absolute, so the score is: a question that nobody answers scores low, whoever is best, and a floor that a client
# sets means the same everywhere on a service. MIDDLE is where half of the answers are right; the two numbers were fitted once,
# over two public sets together and questions of the one asked to the other (docs/explanation/search.md tells how well it holds).
# Each mix of signals has its own two, because figures without vectors lie elsewhere. LIFT is what the preferred tags that an
# agent carries add: the same in every mix, nothing for one that carries none.

DEPRECATED_FACTOR: Final = 0.5  # of its score, that such an agent keeps

_TAGS_ALONE: Final = 0.5  # without a word, carrying every tag that was named is worth this much


class ScoreCurve(NamedTuple):
    """From a figure to a score and a place, for one mix of signals."""

    middle: float
    slope: float
    shared: float = 0.25  # of words where they may be of another language: half of what they weigh otherwise
    half_life: float = 182 * 86_400.0  # of what is fresh
    fresh: float = 0.01  # of the figure: parts near equals
    deprecated: float = DEPRECATED_FACTOR
    fine: float = 1e9  # steps of a score that decide the order: a finer difference is noise of adding up


_WITH_NETWORK: Final = ScoreCurve(0.32, 0.04)

_WITH_STATIC: Final = ScoreCurve(0.33, 0.04)

_WORDS_ALONE: Final = ScoreCurve(0.2, 0.04)  # fitted: .13 and .02, which calls every match in a small registry certain


def curve_for(names: SpaceNames) -> ScoreCurve:
    return _WITH_NETWORK if names.network else _WITH_STATIC if names.static else _WORDS_ALONE


def calibrate(figures: F32, lift: F32, rules: ScoreCurve) -> F64:
    return np.frombuffer(logistic(figures, lift, rules.middle, rules.slope), dtype=np.float64)


def score_by_tags(preferred: F32) -> F64:
    return preferred.astype(np.float64) * _TAGS_ALONE
