"""The loops of `loops.pyx` in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def add_impacts(
    totals: npt.NDArray[np.int32], rows: npt.NDArray[np.uint32], impacts: npt.NDArray[np.uint16], weight: int
) -> None:
    """Add `weight` times the low byte of each impact to the total of its row. Rows are distinct."""
    totals[rows] += np.int32(weight) * (impacts & np.uint16(0xFF)).astype(np.int32)


def hamming_distances(
    codes: npt.NDArray[np.uint64], query: npt.NDArray[np.uint64], ids: npt.NDArray[np.uint32] | None = None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The Hamming distances (255 at most) of codes [n, words] to the code of a query, and how many codes have each. `ids` chooses
    the codes; None: all."""
    ones = np.bitwise_count((codes if ids is None else codes[ids]) ^ query)
    distances = np.minimum(ones.sum(axis=1, dtype=np.uint16), 255).astype(np.uint8)
    return distances, np.bincount(distances, minlength=256)
