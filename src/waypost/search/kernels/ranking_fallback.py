"""The fallback of `rank_candidates` and `rank_by_scores` in `scoring.pyx`: fusion, calibration and order, step by step."""

from __future__ import annotations

import numpy as np

from waypost.search.index.segment_reader import Mask
from waypost.search.kernels.scoring_fallback import decay, order_by_score
from waypost.search.ranking.candidates import F32, F64, Signals
from waypost.search.ranking.scoring import ScoreCurve, SignalWeights, SpaceNames, calibrate, fuse_signals

RankedBytes = tuple[bytes, bytes, bytes]


def rank_candidates(
    signals: Signals,
    names: SpaceNames,
    weights: SignalWeights,
    mass: float,
    foreign: Mask | None,
    doubtful: Mask | None,
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
