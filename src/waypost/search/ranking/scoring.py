"""Scores: a weighted sum of absolute signals in 0..1, then a logistic calibration.

    lexical   share of the query's weight (Σ idf²) in the record's words
    network   similarity of sentence vectors; static: of word vectors
    coverage  share of the description that the query covers

Nothing is normalised by the best candidate: a value means the same for every query. A query of several wishes is scored as a
whole and by its best clause; an agent of many topics as a whole or, if that is higher, by words and its best example. The
weights are round numbers in a flat region on two public sets (docs/explanation/search.md); a missing signal leaves its weight
to the others.

    score = 1 / (1 + exp(−(figure − middle) / slope − lift))

The figure is absolute, so the score is too: a query that no agent answers scores low, and a client's threshold means the same
everywhere. `middle` is where half of the results are right; both numbers were fitted once on two public sets. Each mix of
signals has its own curve, because figures without vectors are lower. `lift` is what preferred tags add.
"""

from __future__ import annotations

from math import exp, inf
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.ranking.candidates import F32, F64, Signals


class SignalWeights(NamedTuple):
    lexical: float = 0.5
    network: float = 0.3
    static: float = 0.1
    coverage: float = 0.1
    tags: float = 0.015  # tags found in the query text
    preferred: float = 1.5  # tags that the caller named: added to the log odds
    example: float = 0.25  # of a vector signal: the best example; the rest is the centre
    skills: float = 1.0  # of an agent of many topics: its best example, if it scores higher
    thinned: float = 1.5  # of its words then: one of many examples has little weight in the record
    clauses: float = 0.65  # of a query with very many clauses: the best one; the rest is the whole
    foreign: float = 0.7  # of sentence vectors of an agent in another language, in place of words


class SpaceNames(NamedTuple):
    """The vector spaces, if there are any."""

    network: str | None = None
    static: str | None = None


def fuse_signals(
    signals: Signals, names: SpaceNames, weights: SignalWeights, mass: float, foreign: npt.NDArray[np.bool_]
) -> F32:
    """[candidates]. `mass` is Σ idf² of the query. `foreign` candidates are in another language than the query."""
    parts = _parts(signals, names, weights, mass, foreign)
    whole = parts[:, 0]
    if (wishes := parts.shape[1] - 1) > 0:
        best = weights.clauses * (1 - 1 / wishes)  # two clauses often state one wish
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
        # An agent that has no sentence vectors yet is scored by its static vectors instead.
        sentence = np.where(signals.covered[names.network or ""][:, None], network, static)
        words = words + weights.static * static
    parts = _f32(np.where(foreign[:, None], weights.foreign * network, words + weights.network * sentence))
    if not signals.skills.any():
        return parts
    best = _best_skill(signals.examples[names.network or ""], lexical, weights, foreign)
    return _f32(parts + weights.skills * signals.skills[:, None] * np.maximum(best - parts, 0))


def _best_skill(example: F32, lexical: F32, weights: SignalWeights, foreign: npt.NDArray[np.bool_]) -> F32:
    """[candidates, units]: by words, and by the best example in place of all other signals."""
    others = weights.network + weights.static + weights.coverage
    words = weights.lexical * weights.thinned
    return _f32(np.where(foreign[:, None], weights.foreign * example, words * lexical + others * example))


def vector_similarity(signals: Signals, name: str | None, weights: SignalWeights) -> F32 | None:
    """The similarity in a space: of the centre, raised by a nearer example."""
    if name is None or name not in signals.centres:
        return None
    centre, example = signals.centres[name], signals.examples[name]
    return np.maximum(_f32(centre + weights.example * np.maximum(example - centre, 0)), 0)


def _f32(array: npt.NDArray[Any]) -> F32:
    return array.astype(np.float32, copy=False)


DEPRECATED_FACTOR: Final = 0.5  # of the score, for a deprecated agent

_TAGS_ALONE: Final = 0.5  # the score of an agent with all preferred tags, for a query without words


class ScoreCurve(NamedTuple):
    """Calibration and order for one mix of signals."""

    middle: float
    slope: float
    shared: float = 0.25  # weight of words that may be of another language: half of the usual
    half_life: float = 182 * 86_400.0  # of freshness
    fresh: float = 0.01  # share of freshness in the figure: orders near-ties
    deprecated: float = DEPRECATED_FACTOR
    fine: float = 1e9  # steps of a score in the order: finer differences are rounding noise


_WITH_NETWORK: Final = ScoreCurve(0.32, 0.04)

_WITH_STATIC: Final = ScoreCurve(0.33, 0.04)

_WORDS_ALONE: Final = ScoreCurve(
    0.2, 0.04
)  # fitted: .13 and .02, by which every match in a small registry would be certain


def curve_for(names: SpaceNames) -> ScoreCurve:
    return _WITH_NETWORK if names.network else _WITH_STATIC if names.static else _WORDS_ALONE


def calibrate(figures: F32, lift: F32, rules: ScoreCurve) -> F64:
    return np.frombuffer(logistic(figures, lift, rules.middle, rules.slope), dtype=np.float64)


def score_by_tags(preferred: F32) -> F64:
    return preferred.astype(np.float64) * _TAGS_ALONE


# --- Calibration and order: the fallback of `kernels/scoring.pyx` ---
#
# `exp` and powers are those of Python, one by one: numpy's own differ in the last digit on some processors.


def decay(
    figures: npt.NDArray[np.float32], updated: npt.NDArray[np.float64], now: float, half_life: float, share: float
) -> bytes:
    """The figures, a share of which is halved by every half-life since the record was updated."""
    ages = np.maximum(0.0, now - updated) / half_life
    kept = np.array([0.5**age for age in ages.tolist()], dtype=np.float64)
    return (figures * (1.0 - share + share * kept).astype(np.float32)).tobytes()


def logistic(figures: npt.NDArray[np.float32], lift: npt.NDArray[np.float32], middle: float, slope: float) -> bytes:
    """A score in 0..1 for each figure; `lift` is added to the log odds."""
    odds = (figures.astype(np.float64) - middle) / slope + lift
    return np.array([1.0 / (1.0 + _exp(-each)) for each in odds.tolist()], dtype=np.float64).tobytes()


def _exp(power: float) -> float:
    try:
        return exp(power)
    except OverflowError:
        return inf


def order_by_score(
    scores: npt.NDArray[np.float64],
    worth: npt.NDArray[np.float32],
    deprecated: npt.NDArray[np.uint8],
    marks: npt.NDArray[np.uint64],
    kept: float,
    grid: float,
) -> tuple[bytes, bytes]:
    """The places of the candidates, best first, and their final scores: score times worth, of which a deprecated agent keeps a
    share. Scores are compared in steps of a grid, ties are broken by mark."""
    figures = scores * (worth * np.where(deprecated, kept, 1.0)).astype(np.float32)
    order = np.lexsort((marks, -np.rint(figures * grid)))
    return order.astype(np.int64).tobytes(), figures[order].tobytes()


RankedBytes = tuple[bytes, bytes, bytes]


def rank_candidates(
    signals: Signals,
    names: SpaceNames,
    weights: SignalWeights,
    mass: float,
    foreign: npt.NDArray[np.bool_] | None,
    doubtful: npt.NDArray[np.bool_] | None,
    now: float,
    rules: ScoreCurve,
) -> RankedBytes:
    """The places of the candidates, best first, with their scores and rows. `mass` is Σ idf² of the query. `foreign` candidates
    are in another language, so that words say nothing about them; of `doubtful` ones this is not certain."""
    if foreign is None:
        foreign = np.zeros(len(signals.rows), dtype=np.bool_)
    figures = fuse_signals(signals, names, weights, mass, foreign)
    if doubtful is not None and (doubtful := doubtful & ~foreign).any():
        # The higher score counts: by words, or by meaning plus shared words such as names.
        meant = fuse_signals(signals, names, weights, mass, foreign | doubtful)
        shared: F32 = (rules.shared * signals.lexical[:, 0] / max(mass, 1e-6)).astype(np.float32)
        figures = np.where(doubtful, np.maximum(figures, meant + shared), figures)
    left = np.frombuffer(decay(figures, signals.updated, now, rules.half_life, rules.fresh), dtype=np.float32)
    return rank_by_scores(calibrate(left, weights.preferred * signals.preferred, rules), signals, rules)


def rank_by_scores(figures: F64, signals: Signals, rules: ScoreCurve) -> RankedBytes:
    """The same for given scores."""
    deprecated = signals.deprecated.view(np.uint8)
    places, shown = order_by_score(figures, signals.worth, deprecated, signals.mark, rules.deprecated, rules.fine)
    return places, shown, signals.rows.take(np.frombuffer(places, dtype=np.int64)).tobytes()
