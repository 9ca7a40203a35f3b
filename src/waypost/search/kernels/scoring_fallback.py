"""The fallback of `scoring.pyx`, except for `rank_candidates` and `rank_by_scores`, which are in `ranking/scoring.py`."""

from __future__ import annotations

from collections.abc import Sequence

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
