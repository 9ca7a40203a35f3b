from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.candidates import Signals
from waypost.search.fusion import Names, Weights

def chosen(
    signals: Sequence[tuple[Sequence[tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]], int]],
    marks: Sequence[npt.NDArray[np.uint64]],
) -> list[bytes]: ...
def fused(
    signals: Signals, names: Names, weights: Weights, mass: float, foreign: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]: ...
def faded(
    figures: npt.NDArray[np.float32], updated: npt.NDArray[np.float64], now: float, half_life: float, share: float
) -> bytes: ...
def logistic(figures: npt.NDArray[np.float32], lift: npt.NDArray[np.float32], middle: float, slope: float) -> bytes: ...
def ordered(
    scores: npt.NDArray[np.float64],
    worth: npt.NDArray[np.float32],
    deprecated: npt.NDArray[np.uint8],
    marks: npt.NDArray[np.uint64],
    kept: float,
    grid: float,
) -> tuple[bytes, bytes]: ...
def texts(written: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.uint32]) -> list[str]: ...
