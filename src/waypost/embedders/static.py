"""A text as the weighted mean of its pieces' vectors: no network, no order of words, and therefore very quick.

The vectors are those of the network's own first layer. Frequent pieces weigh less (a / (a + p), p by the vocabulary's own
probabilities), and what all frequent pieces have in common is taken away, so that a mean is about what is said. Weight,
offset and projection are the same for every text, so they are put into one table of a few bytes for each piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders.copies import Arrays
from waypost.embedders.package import SHARDS, Model

F32 = npt.NDArray[np.float32]

_COMMON: Final = 20_000  # pieces whose mean is taken away
_RARITY: Final = 1e-4  # the probability of a piece that weighs one half
_STEP: Final = 4096  # pieces at once, so that they stay in the cache


class Means:
    """May be used by several threads."""

    def __init__(self, table: Arrays) -> None:
        """`table` as `condense` makes it."""
        self._codes: npt.NDArray[np.int8] = table["codes"]
        self._scales: F32 = table["scales"]

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of pieces, which must not be empty."""
        lines = [pieces[: limits.EMBEDDER_PIECES] for pieces in texts]
        out = np.empty((len(lines), self._codes.shape[1]), np.float32)
        first = total = 0
        for at, line in enumerate(lines):
            if at > first and total + len(line) > _STEP:
                self._add(lines[first:at], out[first:at])
                first, total = at, 0
            total += len(line)
        self._add(lines[first:], out[first:])
        return _unit(out)

    def encode_runs(self, pieces: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole, then of each run of its pieces (from, to)."""
        numbers = np.array(pieces[: limits.EMBEDDER_PIECES], np.int64)
        members: F32 = np.zeros((len(runs) + 1, len(numbers)), np.float32)
        members[0] = 1
        for member, (start, stop) in zip(members[1:], runs, strict=True):
            member[start:stop] = 1
        members *= self._scales.take(numbers)
        return _unit(members @ self._codes.take(numbers, 0).astype(np.float32))

    def _add(self, lines: Sequence[Sequence[int]], out: F32) -> None:
        if not lines:
            return
        starts = [0, *accumulate(map(len, lines))]
        numbers = np.fromiter(chain.from_iterable(lines), np.int64, starts.pop())
        rows = self._codes.take(numbers, 0).astype(np.float32)
        scales = self._scales.take(numbers)
        if len(lines) == 1:
            np.matmul(scales, rows, out=out[0])
        else:
            rows *= scales[:, None]
            np.add.reduceat(rows, starts, 0, out=out)


def _unit(sums: F32) -> F32:
    sums /= np.maximum(np.sqrt(np.einsum("ij,ij->i", sums, sums)), 1e-12)[:, None]
    return sums


def condense(model: Model, projection: F32) -> Arrays:
    """What each piece adds to a mean, carried to fewer dimensions by `projection`: int8 with one scale each."""
    count = len(model.vocabulary.scores)
    chances = np.exp(model.vocabulary.scores.astype(np.float64))
    weights = (_RARITY / (_RARITY + chances)).astype(np.float32)
    common = np.argsort(-chances, kind="stable")[:_COMMON]
    mean = _vectors(model, common).mean(0, dtype=np.float64).astype(np.float32)
    codes = np.empty((count, projection.shape[1]), np.int8)
    scales = np.empty(count, np.float32)
    for start in range(0, count, _STEP):
        numbers = np.arange(start, min(start + _STEP, count))
        made = (_vectors(model, numbers) - mean) @ projection * weights[numbers, None]
        scales[numbers] = np.maximum(np.abs(made).max(1), 1e-12) / 127
        codes[numbers] = np.rint(made / scales[numbers, None])
    return {"codes": codes, "scales": scales}


def _vectors(model: Model, numbers: npt.NDArray[np.int64]) -> F32:
    shards = numbers % SHARDS
    return np.asarray(model.table[numbers] * model.scale[shards, None] + model.low[shards, None])
