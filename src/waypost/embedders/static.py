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

try:
    from waypost.compiled.network import Means as Added
except ImportError:
    from waypost.embedders.plain_means import Means as Added  # type: ignore[assignment]

F32 = npt.NDArray[np.float32]

_COMMON: Final = 20_000  # pieces whose mean is taken away
_RARITY: Final = 1e-4  # the probability of a piece that weighs one half
_STEP: Final = 4096  # pieces at once, so that they stay in the cache


class Means:
    """May be used by several threads."""

    def __init__(self, table: Arrays) -> None:
        """`table` as `condense` makes it."""
        self._added = Added(table["codes"], table["scales"])

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of pieces, which must not be empty."""
        lines = [pieces[: limits.EMBEDDER_PIECES] for pieces in texts]
        ends = [*accumulate(map(len, lines))]
        numbers = np.fromiter(chain.from_iterable(lines), np.int64, ends[-1] if ends else 0)
        return self._added.sums(numbers, list(zip([0, *ends], ends, strict=False)))

    def encode_runs(self, pieces: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole, then of each run of its pieces (from, to)."""
        numbers = np.array(pieces[: limits.EMBEDDER_PIECES], np.int64)
        return self._added.sums(numbers, [(0, len(numbers)), *runs])


def condense(model: Model, projection: F32) -> Arrays:
    """What each piece adds to a mean, carried to fewer dimensions by `projection`: int8 with one scale each."""
    count = len(model.scores)
    chances = np.exp(model.scores.astype(np.float64))
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
