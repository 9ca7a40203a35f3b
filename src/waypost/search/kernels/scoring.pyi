from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.ranking.candidates import Signals
from waypost.search.ranking.scoring import ScoreCurve, SignalWeights, SpaceNames

def select_rows(
    signals: Sequence[tuple[Sequence[tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]], int]],
    marks: Sequence[npt.NDArray[np.uint64]],
) -> list[bytes]: ...
def rank_candidates(
    signals: Signals,
    names: SpaceNames,
    weights: SignalWeights,
    mass: float,
    foreign: npt.NDArray[np.bool_] | None,
    doubtful: npt.NDArray[np.bool_] | None,
    now: float,
    rules: ScoreCurve,
) -> tuple[bytes, bytes, bytes]: ...
def rank_by_scores(
    figures: npt.NDArray[np.float64], signals: Signals, rules: ScoreCurve
) -> tuple[bytes, bytes, bytes]: ...
def read_ids(
    written: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scores: npt.NDArray[np.float64],
    some: Sequence[int],
    grid: float,
) -> tuple[list[str], list[float]]: ...
