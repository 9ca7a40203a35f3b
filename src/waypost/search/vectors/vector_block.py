"""The vectors of one space in one segment: nearest rows of a query, and similarities of given rows.

A row has one vector of its context (place 0) and one per example (places 1 and up). A vector is stored as int8 with one scale,
and as a binary code. A search compares the binary codes of all visible vectors, and measures those of the smallest Hamming
distance with their int8 codes. If very many rows are visible, it compares only the vectors in the lists closest to the query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique
from waypost.search.vectors.quantizer import F32, CoarseQuantizer, Codes, binary_codes

try:
    from waypost.search.kernels.loops import hamming_distances
except ImportError:
    from waypost.search.kernels.loops_fallback import hamming_distances

Ids = npt.NDArray[np.intp]
Rows = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Arrays = Mapping[str, npt.NDArray[np.generic]]
CodedVectors = dict[str, npt.NDArray[np.generic]]
"""What is stored of each vector of an agent (`CODED`). It depends on that vector alone."""

VERSION = 3
"""Of the arrays: raise it when their meaning changes."""

DROPPED = 0xFFFF_FFFF
"""In `merge`: the new number of a dropped row."""

QUERY_GRID = 4096.0
"""Steps of a query's vector: with codes up to 127 in 1024 dimensions, sums of products stay below 2**24, so that they are the
same in any order of addition."""

CODED = ("codes", "scales", "lists", "signs")
SCANNED_ROWS = 262_144
"""Up to this many visible rows all are compared; beyond it, only the vectors in `PROBES` lists."""

PROBES = 16
_SHORTLIST = 1_440  # vectors that are measured; with ties of the last, a few more


def code_vectors(vectors: F32, quantizer: CoarseQuantizer) -> CodedVectors:
    """Code unit vectors [n, dims]."""
    largest = np.abs(vectors).max(axis=1) if len(vectors) else np.zeros(0, np.float32)
    scales = (np.where(largest > 0, largest, 1) / 127).astype(np.float32)
    return {
        "codes": np.rint(vectors / scales[:, None]).astype(np.int8),
        "scales": scales,
        "lists": quantizer.lists_of(vectors),
        "signs": binary_codes(vectors),
    }


class VectorBlock:
    """Immutable; its arrays may be memory maps. Vector i is codes[i], ordered by row, then by place."""

    __slots__ = (
        "_codes", "_list_starts", "_members", "_places", "_quantizer", "_row_starts", "_rows", "_scales", "_signs",
        "arrays",
    )  # fmt: skip

    def __init__(self, arrays: Arrays, quantizer: CoarseQuantizer) -> None:
        """`quantizer` is the one that the block was built with."""
        self.arrays = arrays
        self._quantizer = quantizer
        self._codes = np.asarray(arrays["codes"], np.int8)
        self._scales = np.asarray(arrays["scales"], np.float32)
        self._signs: Codes = np.asarray(arrays["signs"], np.uint64)
        self._rows: Rows = np.asarray(arrays["rows"], np.uint32)
        self._places = np.asarray(arrays["places"], np.uint16)
        self._row_starts = np.asarray(arrays["row_starts"], np.uint32)
        self._members: Rows = np.asarray(arrays["members"], np.uint32)
        self._list_starts = np.asarray(arrays["list_starts"], np.uint32)
        if len(self._list_starts) != self._quantizer.lists + 1:
            raise ValueError("these vectors were built with another quantizer")

    @property
    def size(self) -> int:
        """The number of vectors."""
        return len(self._codes)

    @property
    def covered(self) -> Mask:
        """The rows that have vectors."""
        return np.diff(self._row_starts) > 0

    @property
    def row_count(self) -> int:
        return len(self._row_starts) - 1

    @classmethod
    def build(
        cls, coded: CodedVectors, sizes: Sequence[int], rows: Rows, row_count: int, quantizer: CoarseQuantizer
    ) -> VectorBlock:
        """A block of the coded vectors of these rows, row by row in the order of their places: so many for each."""
        places = np.concatenate([np.arange(size, dtype=np.uint16) for size in (0, *sizes)])
        kept = {**coded, "rows": np.repeat(rows, sizes).astype(np.uint32), "places": places}
        return cls(_arrange(kept, row_count, quantizer.lists), quantizer)

    @classmethod
    def merge(cls, blocks: Sequence[VectorBlock], kept: Sequence[Rows], row_count: int) -> VectorBlock:
        """Merge blocks of the same space. `kept[b][row]` is the new number of a row, or DROPPED."""
        parts = [block._renumbered(numbers) for block, numbers in zip(blocks, kept, strict=True)]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        quantizer = blocks[0]._quantizer
        return cls(_arrange(joined, row_count, quantizer.lists), quantizer)

    def _renumbered(self, numbers: Rows) -> dict[str, npt.NDArray[np.generic]]:
        """The live vectors of this block under their new rows."""
        rows = numbers[self._rows]
        ids = np.flatnonzero(rows != DROPPED)
        return {**{name: self.arrays[name].take(ids, axis=0) for name in (*CODED, "places")}, "rows": rows[ids]}

    # --- Nearest rows ---

    def nearest(self, query: F32, mask: Mask, k: int, scanned: int = SCANNED_ROWS) -> tuple[Rows, F32]:
        """The rows of the mask that are nearest to a query by any place, best first, ties by row: k, and more that were
        measured anyway. Beyond `scanned` visible rows, only vectors in the closest lists are compared."""
        visible = int(np.count_nonzero(mask))
        size = max(_SHORTLIST, 2 * k)
        candidates = self._in_lists(query, mask) if visible > scanned and self._quantizer.lists > 1 else None
        code = binary_codes(query[None])[0]
        while True:
            ids, is_all = self._shortlist(code, mask, visible, candidates, size)
            rows, similarities = self._best(ids, query)
            if len(rows) >= k or is_all:
                order = np.argsort(-similarities, kind="stable")
                return rows[order], similarities[order]
            size *= 4  # rows with many vectors filled the shortlist

    def _in_lists(self, query: F32, mask: Mask) -> Rows:
        """The visible vectors in the lists closest to the query."""
        starts = self._list_starts
        lists = [self._members[starts[at] : starts[at + 1]] for at in self._quantizer.closest(query, PROBES)]
        ids = sorted_unique(np.concatenate(lists))
        return ids[mask[self._rows[ids]]]

    def _shortlist(
        self, code: Codes, mask: Mask, visible: int, candidates: Rows | None, size: int
    ) -> tuple[Ids | Rows, bool]:
        """About `size` visible vectors whose binary codes are nearest, ascending; and whether these are all."""
        if candidates is None and 2 * visible <= self.row_count:  # hidden vectors take no time
            candidates = self._vectors_of(np.flatnonzero(mask))[0].astype(np.uint32)
        distances, counts = hamming_distances(self._signs, code, candidates)
        if candidates is None and visible < self.row_count:
            hidden, _ = self._vectors_of(np.flatnonzero(~mask))
            counts -= np.bincount(distances[hidden], minlength=len(counts))
            distances[hidden] = 255
        found = counts.cumsum()
        if found[-1] <= size and candidates is not None:
            return candidates, True
        cut = int(found.searchsorted(min(size, found[-1])))
        chosen = np.flatnonzero(distances <= cut)
        if candidates is not None:
            return candidates[chosen], False
        if cut == 255:  # not those that were hidden above
            chosen = chosen[mask[self._rows[chosen]]]
        return chosen, bool(found[-1] <= size)

    def _best(self, ids: Ids | Rows, query: F32) -> tuple[Rows, F32]:
        """The rows of these vectors, ascending, with the highest similarity of each."""
        if not len(ids):
            return np.zeros(0, np.uint32), np.zeros(0, np.float32)
        rows = self._rows.take(ids)
        starts = np.flatnonzero(np.diff(rows, prepend=rows[:1] + np.uint32(1)))
        return rows[starts], np.maximum.reduceat(self._measure(ids, query[None])[:, 0], starts)

    # --- Similarities ---

    def similarities(self, rows: Rows, queries: F32) -> tuple[F32, F32]:
        """[rows, queries]: similarity of the context and of the best example; 0 if there is none."""
        ids, owners = self._vectors_of(rows)
        is_context, measured = self._places.take(ids) == 0, self._measure(ids, queries)
        context, example = np.zeros((2, len(rows), len(queries)), np.float32)
        context[owners[is_context]] = measured[is_context]
        owners, measured = owners[~is_context], measured[~is_context]
        if len(owners):
            starts = np.flatnonzero(np.diff(owners, prepend=-1))
            example[owners[starts]] = np.maximum.reduceat(measured, starts, axis=0)
        return context, example

    def best_example(self, row: int, queries: F32) -> tuple[float, int]:
        """The highest similarity of an example of a row to any query, and its place (0: none)."""
        ids = np.arange(self._row_starts[row], self._row_starts[row + 1], dtype=np.intp)
        ids = ids[self._places[ids] > 0]
        if not len(ids):
            return 0.0, 0
        measured = self._measure(ids, queries).max(axis=1)
        best = int(measured.argmax())
        return float(measured[best]), int(self._places[ids[best]])

    def _vectors_of(self, rows: npt.NDArray[np.integer]) -> tuple[Ids, Ids]:
        """The vectors of these rows, and for each of them which of the rows has it."""
        starts = self._row_starts[rows].astype(np.intp)
        sizes = self._row_starts[np.add(rows, 1, dtype=np.intp)] - starts
        owners = np.repeat(np.arange(len(rows)), sizes)
        return (starts - (np.cumsum(sizes) - sizes))[owners] + np.arange(len(owners)), owners

    def _measure(self, ids: Ids | Rows, queries: F32) -> F32:
        """Similarities [ids, queries] by the stored codes. Exact for queries on the grid, so that the number of vectors shows
        in no digit."""
        measured: F32 = self._codes.take(ids, axis=0).astype(np.float32) @ queries.T
        measured *= self._scales.take(ids)[:, None]
        return measured


def _arrange(
    kept: dict[str, npt.NDArray[np.generic]], row_count: int, lists: int
) -> dict[str, npt.NDArray[np.generic]]:
    """All arrays of a block, from those with one entry per vector, in any order."""
    order = np.lexsort((kept["places"], kept["rows"]))
    if not np.array_equal(order, np.arange(len(order))):
        kept = {name: array.take(order, axis=0) for name, array in kept.items()}
    flat, spill = kept["lists"].reshape(-1), kept["lists"].shape[1]
    by_list = np.argsort(flat, kind="stable") if lists > 1 else np.zeros(0, np.intp)
    return {
        **kept,
        "row_starts": np.searchsorted(kept["rows"], np.arange(row_count + 1)).astype(np.uint32),
        "members": (by_list // spill).astype(np.uint32),  # the vectors of each list
        "list_starts": np.searchsorted(flat[by_list], np.arange(lists + 1)).astype(np.uint32),
    }
