"""What `waypost.compiled.order` does, where it was not compiled: the same answers, more slowly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


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
