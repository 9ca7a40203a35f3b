"""What `waypost.compiled.order` does, where it was not compiled: the same answers, more slowly.

Powers are those of Python's own mathematics, one by one: numpy has its own on some processors, which end on another digit.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np
import numpy.typing as npt


def faded(
    figures: npt.NDArray[np.float32], updated: npt.NDArray[np.float64], now: float, half_life: float, share: float
) -> bytes:
    """The figures, of each of which a share is halved by every half-life since its record was updated."""
    ages = np.maximum(0.0, now - updated) / half_life
    kept = np.array([0.5**age for age in ages.tolist()], dtype=np.float64)
    return (figures * (1.0 - share + share * kept).astype(np.float32)).tobytes()


def logistic(figures: npt.NDArray[np.float32], lift: npt.NDArray[np.float32], middle: float, slope: float) -> bytes:
    """A score in 0..1 for each figure, and what lifts its odds."""
    odds = (figures.astype(np.float64) - middle) / slope + lift
    return np.array([1.0 / (1.0 + _exp(-each)) for each in odds.tolist()], dtype=np.float64).tobytes()


def _exp(power: float) -> float:
    try:
        return exp(power)
    except OverflowError:
        return inf


def ordered(
    scores: npt.NDArray[np.float64],
    worth: npt.NDArray[np.float32],
    deprecated: npt.NDArray[np.uint8],
    marks: npt.NDArray[np.uint64],
    kept: float,
    grid: float,
) -> tuple[bytes, bytes]:
    """The places of the candidates, best first, and the score of each, in that order: what it scored times what it is worth,
    of which a deprecated one keeps some. Scores are told apart by steps of a grid, equals by their marks."""
    figures = scores * (worth * np.where(deprecated, kept, 1.0)).astype(np.float32)
    order = np.lexsort((marks, -np.rint(figures * grid)))
    return order.tobytes(), figures[order].tobytes()


def texts(written: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.uint32]) -> list[str]:
    """The texts of some rows, which stand one behind the other."""
    return [written[int(starts[row]) : int(starts[row + 1])].tobytes().decode() for row in rows.tolist()]
