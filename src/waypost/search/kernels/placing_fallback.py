"""From signals to places, step by step: what `waypost.search.kernels.order` does in one call. The same answers, more slowly."""

from __future__ import annotations

import numpy as np

from waypost.search.index.segment_reader import Mask
from waypost.search.kernels.order_fallback import faded, ordered
from waypost.search.ranking.candidates import F32, F64, Signals
from waypost.search.ranking.scoring import ScoreCurve, SignalWeights, SpaceNames, calibrate, fuse_signals

Placed = tuple[bytes, bytes, bytes]


def placed(
    signals: Signals,
    names: SpaceNames,
    weights: SignalWeights,
    mass: float,
    foreign: Mask | None,
    doubtful: Mask | None,
    now: float,
    rules: ScoreCurve,
) -> Placed:
    """The places of the candidates, best first; the score of each, in that order; and the row of each. `mass` is Σ idf² of
    the question. Of `foreign` candidates words say nothing; of `doubtful` ones that is not plain."""
    if foreign is None:
        foreign = np.zeros(len(signals.rows), dtype=np.bool_)
    figures = fuse_signals(signals, names, weights, mass, foreign)
    if doubtful is not None and (doubtful := doubtful & ~foreign).any():
        # What speaks more for an agent counts: its words, or its meaning and what it shares in spite of the languages (names).
        meant = fuse_signals(signals, names, weights, mass, foreign | doubtful)
        shared: F32 = (rules.shared * signals.lexical[:, 0] / max(mass, 1e-6)).astype(np.float32)
        figures = np.where(doubtful, np.maximum(figures, meant + shared), figures)
    left = np.frombuffer(faded(figures, signals.updated, now, rules.half_life, rules.fresh), dtype=np.float32)
    return placed_by(calibrate(left, weights.preferred * signals.preferred, rules), signals, rules)


def placed_by(figures: F64, signals: Signals, rules: ScoreCurve) -> Placed:
    """The same by scores that are there."""
    deprecated = signals.deprecated.view(np.uint8)
    places, shown = ordered(figures, signals.worth, deprecated, signals.mark, rules.deprecated, rules.fine)
    return places, shown, signals.rows.take(np.frombuffer(places, dtype=np.int64)).tobytes()
