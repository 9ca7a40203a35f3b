"""Weighted means of word vectors: the twin of `compiled.network.Means`, for where nothing was compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from waypost.embedders.plain_network import in_order, sums

F32 = npt.NDArray[np.float32]


class Means:
    """`codes` of each piece, worth `scales` each. May be used by several threads."""

    def __init__(self, codes: npt.NDArray[np.int8], scales: F32) -> None:
        self._codes, self._scales = codes, scales

    def sums(self, numbers: npt.NDArray[np.int64], runs: Sequence[tuple[int, int]]) -> F32:
        """The unit vector of each run of pieces (from, to), added up one after the other; zeros for none."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self._codes):
            raise IndexError("no such piece")
        rows = self._codes[numbers] * self._scales[numbers, None]
        out = np.zeros((len(runs), self._codes.shape[1]), np.float32)
        for made, (start, stop) in zip(out, runs, strict=True):
            if not 0 <= start <= stop <= len(numbers):
                raise IndexError("no such place")
            if stop > start:
                made[:] = in_order(rows[start:stop])
        out /= np.maximum(np.sqrt(sums(out * out)), np.float32(1e-12))[:, None]
        return out
