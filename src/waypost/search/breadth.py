"""Whether an agent is of one piece or has many skills: by the breadth of its examples. It knows vectors, and no question.

Of n unit vectors with the sum S the breadth is n² / |S|²: 1 when all say the same, n when none has anything to do with
another. The vector of an agent as a whole is a mean, and a mean of unrelated things is near to none of them: an agent of many
skills is weighed by the one that fits (see `fusion`). Words that are put into every example make them alike, and no skills.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost import limits

F32 = npt.NDArray[np.float32]

FEWEST: Final = 6  # examples: fewer do not tell many skills from one that is told in many ways
BELIEVED: Final = 12.0  # examples: whoever claims more skills is believed less in each
ONE: Final = 2.5  # breadth up to which an agent is of one piece
MANY: Final = 3.5  # and from which on it is of many
_GRID: Final = 2.0**17  # of the scale of a vector, which is 1/127 at most; its codes are 127 at most, and 32 are added


def many_sided(arrays: Mapping[str, npt.NDArray[np.generic]], rows: npt.NDArray[np.uint32]) -> F32:
    """[rows] of the arrays of a block of vectors: 0 for an agent of one piece, 1 for one of many skills. The first vector of
    a row is the agent as a whole."""
    row_starts = np.asarray(arrays["row_starts"], np.uint32)
    starts = row_starts.take(rows)
    sizes = row_starts.take(np.add(rows, 1, dtype=np.intp)) - starts
    found = np.zeros(len(rows), dtype=np.float32)
    some = np.flatnonzero((sizes > FEWEST) & (sizes <= limits.EXAMPLES + 1))  # more are in no record: a damaged file
    if len(some):
        counts = sizes[some].astype(np.intp) - 1
        breadth = _breadths(arrays, starts[some].astype(np.intp) + 1, counts)
        found[some] = np.minimum(1.0, BELIEVED / counts) * np.clip((breadth - ONE) / (MANY - ONE), 0, 1)
    return found


def _breadths(
    arrays: Mapping[str, npt.NDArray[np.generic]], starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]
) -> npt.NDArray[np.float64]:
    """Of runs of vectors. Sums of whole numbers below 2**24: the same in any order."""
    scales, codes = np.asarray(arrays["scales"], np.float32), np.asarray(arrays["codes"], np.int8)
    found = np.ones(len(starts))
    for count in set(counts.tolist()):
        here = np.flatnonzero(counts == count)
        ids = starts[here, None] + np.arange(count)
        steps = np.rint(scales.take(ids) * np.float32(_GRID))
        sums = np.matmul(steps[:, None, :], codes.take(ids, axis=0).astype(np.float32))[:, 0].astype(np.float64)
        found[here] = count * count / np.maximum((sums * sums).sum(axis=1) / _GRID**2, 1e-9)
    return found
