"""The fallback of `scoring.pyx`: the same results, more slowly.

`exp` and powers are those of Python, one by one: numpy's own differ in the last digit on some processors.
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


def select_rows(signals: Sequence[tuple[Sequence[Found], int]], marks: Sequence[Marks]) -> list[bytes]:
    """For each segment the distinct rows, sorted, that are among the best of all segments by any signal. A signal is its hits per
    segment (rows and scores) and how many of them to keep. Ties are broken by mark (the hash of the id)."""
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
    marks: Marks,
    kept: float,
    grid: float,
) -> tuple[bytes, bytes]:
    """The places of the candidates, best first, and their final scores: score times worth, of which a deprecated agent keeps a
    share. Scores are compared in steps of a grid, ties are broken by mark."""
    figures = scores * (worth * np.where(deprecated, kept, 1.0)).astype(np.float32)
    order = np.lexsort((marks, -np.rint(figures * grid)))
    return order.astype(np.int64).tobytes(), figures[order].tobytes()


def read_ids(
    written: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scores: npt.NDArray[np.float64],
    some: Sequence[int],
    grid: float,
) -> tuple[list[str], list[float]]:
    """The ids of some places, from the concatenated UTF-8 ids of all rows; and their scores in steps of a grid."""
    found = [int(rows[place]) for place in some]
    ids = [written[int(starts[row]) : int(starts[row + 1])].tobytes().decode() for row in found]
    return ids, round_scores(scores[list(some)], grid)


def round_scores(scores: npt.NDArray[np.float64], grid: float) -> list[float]:
    """Round half to even. With a power of ten as grid, the results have short decimal forms."""
    steps: list[float] = (np.rint(scores * grid) / grid).tolist()
    return steps
