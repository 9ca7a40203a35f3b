"""What `waypost.search.kernels.order` does, where it was not compiled: the same answers, more slowly.

Powers are those of Python's own mathematics, one by one: numpy has its own on some processors, which end on another digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique

Rows = npt.NDArray[np.uint32]
Marks = npt.NDArray[np.uint64]
Found = tuple[Rows, npt.NDArray[np.float32]]


def chosen(signals: Sequence[tuple[Sequence[Found], int]], marks: Sequence[Marks]) -> list[bytes]:
    """For each segment the rows, each once and in order, that are among the best of all segments together by any signal: what
    it found in each of them, rows with figures, and how many of these are kept. Among equals the marks decide."""
    kept: list[list[Rows]] = [[np.zeros(0, dtype=np.uint32)] for _ in marks]
    for found, count in signals:
        for some, rows in zip(kept, _best(found, marks, count), strict=True):
            some.append(rows)
    return [sorted_unique(np.concatenate(rows)).tobytes() for rows in kept]


def _best(found: Sequence[Found], marks: Sequence[Marks], count: int) -> list[Rows]:
    figures = np.concatenate([some for _, some in found])
    if len(figures) <= count:
        return [rows for rows, _ in found]
    all_marks = np.concatenate([mark[rows] for (rows, _), mark in zip(found, marks, strict=True)])
    is_kept = np.zeros(len(figures), dtype=np.bool_)
    is_kept[np.lexsort((all_marks, -figures))[:count]] = True
    ends = np.cumsum([len(rows) for rows, _ in found])[:-1]
    return [rows[kept] for (rows, _), kept in zip(found, np.split(is_kept, ends), strict=True)]


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
    marks: Marks,
    kept: float,
    grid: float,
) -> tuple[bytes, bytes]:
    """The places of the candidates, best first, and the score of each, in that order: what it scored times what it is worth,
    of which a deprecated one keeps some. Scores are told apart by steps of a grid, equals by their marks."""
    figures = scores * (worth * np.where(deprecated, kept, 1.0)).astype(np.float32)
    order = np.lexsort((marks, -np.rint(figures * grid)))
    return order.astype(np.int64).tobytes(), figures[order].tobytes()


def called(
    written: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scores: npt.NDArray[np.float64],
    some: Sequence[int],
    grid: float,
) -> tuple[list[str], list[float]]:
    """The ids of some places, which stand one behind the other, by row; and their scores in steps of a grid."""
    held = [int(rows[place]) for place in some]
    ids = [written[int(starts[row]) : int(starts[row + 1])].tobytes().decode() for row in held]
    return ids, in_steps(scores[list(some)], grid)


def in_steps(scores: npt.NDArray[np.float64], grid: float) -> list[float]:
    """Halves go to the even step. With a power of ten these are the numbers that a reader writes."""
    steps: list[float] = (np.rint(scores * grid) / grid).tolist()
    return steps
