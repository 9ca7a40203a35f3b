"""The vectors of one space in one segment: nearest rows of a query, and similarities of given rows.

A row has one vector of its context (place 0) and one per example (places 1 and up). A vector is stored as int8 with one scale,
and as a binary code in the lists of the coarse quantizer. The search itself is `IvfIndex` (kernels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.kernels.ivf_index_fallback import SCAN_ROWS
from waypost.search.kernels.ivf_index_fallback import IvfIndex as IvfIndexFallback
from waypost.search.vectors.quantizer import F32, CoarseQuantizer, Mask

try:
    from waypost.search.kernels.ivf_index import IvfIndex
except ImportError:
    IvfIndex = None  # type: ignore[assignment,misc]

Filing = dict[str, npt.NDArray[np.uint32]]
Arrays = Mapping[str, npt.NDArray[np.generic]]
CodedVectors = dict[str, npt.NDArray[np.generic]]
"""What is stored of each vector of an agent (`CODED`). It depends on that vector alone."""

VERSION = 2
"""Of the arrays: raise it when their meaning changes."""

DROPPED = 0xFFFF_FFFF
"""In `merge`: the new number of a dropped row."""

_PROBES = ((65_536, 52), (262_144, 32))
MIN_PROBES = 10
"""Lists per query if there are many visible rows; with fewer rows there is time for more."""

_KINDS: Mapping[str, type[np.generic]] = {
    "codes": np.int8,
    "scales": np.float32,
    "rows": np.uint32,
    "places": np.uint16,
    "lists": np.uint16,
    "signs": np.uint64,
    "members": np.uint32,
    "spots": np.uint32,
    "list_starts": np.uint32,
    "row_starts": np.uint32,
}

CODED = ("codes", "scales", "lists", "signs")

_MIN_IVF_VECTORS = 65_536  # a smaller block is scanned faster than its lists


def code_vectors(vectors: F32, quantizer: CoarseQuantizer) -> CodedVectors:
    """Code unit vectors [n, dims]."""
    largest = np.abs(vectors).max(axis=1) if len(vectors) else np.zeros(0, np.float32)
    scales = (np.where(largest > 0, largest, 1) / 127).astype(np.float32)
    return {
        "codes": np.rint(vectors / scales[:, None]).astype(np.int8),
        "scales": scales,
        "lists": quantizer.lists_of(vectors),
        "signs": quantizer.binary_codes_of(vectors),
    }


def probe_count(visible_rows: int) -> int | None:
    """The number of lists to probe, by the number of rows that the caller may see."""
    if visible_rows <= SCAN_ROWS:
        return None
    return next((probes for most, probes in _PROBES if visible_rows <= most), MIN_PROBES)


class VectorBlock:
    """Immutable; its arrays may be memory maps. Vector i is codes[i], ordered by row, then by place."""

    __slots__ = ("_codes", "_index", "_most", "_quantizer", "_row_starts", "_signs", "_spots", "arrays")

    def __init__(self, arrays: Arrays, quantizer: CoarseQuantizer | None = None) -> None:
        """`quantizer` is the one that the block was built with; None for a space without centres."""
        self.arrays = arrays
        self._most: int | None = None
        self._quantizer = quantizer or CoarseQuantizer.single(arrays["codes"].shape[1])
        typed = {name: np.asarray(arrays[name], kind) for name, kind in _KINDS.items()}
        self._codes, self._row_starts = typed["codes"], typed["row_starts"]
        self._signs, self._spots = typed["signs"], typed["spots"].astype(np.uint32, copy=False)
        list_starts = typed["list_starts"]
        if len(list_starts) and len(list_starts) != self._quantizer.lists + 1:
            raise ValueError("these vectors were built with another quantizer")
        fallback = IvfIndexFallback(typed, self._quantizer)
        self._index = fallback if IvfIndex is None else IvfIndex(fallback)

    @property
    def size(self) -> int:
        """The number of vectors."""
        return len(self._codes)

    @property
    def covered(self) -> Mask:
        """The rows that have vectors."""
        return np.diff(self._row_starts) > 0

    @property
    def max_vectors_per_row(self) -> int:
        """The largest number of vectors of one row; computed once."""
        if self._most is None:
            self._most = int(np.diff(self._row_starts).max(initial=0))
        return self._most

    @property
    def row_count(self) -> int:
        return len(self._row_starts) - 1

    @classmethod
    def build(
        cls,
        vectors: F32,
        rows: npt.NDArray[np.uint32],
        places: npt.NDArray[np.uint16],
        row_count: int,
        quantizer: CoarseQuantizer | None,
    ) -> VectorBlock:
        """Build a block of unit vectors [n, dims], each with its row and place."""
        quantizer = quantizer or CoarseQuantizer.single(vectors.shape[1])
        kept = {**code_vectors(vectors, quantizer), "rows": rows.astype(np.uint32), "places": places.astype(np.uint16)}
        return cls(_arrange(kept, row_count, quantizer.lists), quantizer)

    @classmethod
    def of_coded(
        cls,
        coded: Sequence[CodedVectors],
        rows: npt.NDArray[np.uint32],
        row_count: int,
        quantizer: CoarseQuantizer | None,
    ) -> VectorBlock:
        """Build a block of the coded vectors of rows, in the order of their places."""
        sizes = [len(each["scales"]) for each in coded]
        quantizer = quantizer or CoarseQuantizer.single(coded[0]["codes"].shape[1])
        kept = {
            **{name: np.concatenate([each[name] for each in coded]) for name in CODED},
            "rows": np.repeat(rows, sizes).astype(np.uint32),
            "places": np.concatenate([np.arange(size, dtype=np.uint16) for size in sizes]),
        }
        return cls(_arrange(kept, row_count, quantizer.lists), quantizer)

    @classmethod
    def merge(
        cls, blocks: Sequence[VectorBlock], kept: Sequence[npt.NDArray[np.uint32]], row_count: int
    ) -> VectorBlock:
        """Merge blocks of the same space. `kept[b][row]` is the new number of a row, or DROPPED."""
        parts = [block._part(numbers) for block, numbers in zip(blocks, kept, strict=True)]
        quantizer = blocks[0]._quantizer
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(_arrange(joined, row_count, quantizer.lists), quantizer)

    def nearest(
        self, queries: F32, mask: Mask | None, k: int, probes: int | None, spare: int = 0
    ) -> tuple[npt.NDArray[np.uint32], F32]:
        """The k nearest visible rows over all queries and places, best first, ties by row; then up to `spare` more that were
        measured anyway. `probes` is the number of lists to search; None searches all.
        """
        return self._index.nearest(queries, mask, k, probes, spare)

    def similarities(self, rows: npt.NDArray[np.uint32], queries: F32) -> tuple[F32, F32]:
        """[rows, queries]: similarity of the context and of the best example; 0 if there is none."""
        return self._index.similarities(rows, queries)

    def best_example(self, row: int, queries: F32) -> tuple[float, int]:
        """The highest similarity of an example of a row to any query, and its place (0: none)."""
        return self._index.best_example(row, queries)

    def _part(self, numbers: npt.NDArray[np.uint32]) -> dict[str, npt.NDArray[np.generic]]:
        """The live vectors of this block under their new rows."""
        rows = numbers[self.arrays["rows"]]
        ids = np.flatnonzero(rows != DROPPED)
        kept = {name: self.arrays[name].take(ids, axis=0) for name in ("codes", "scales", "places", "lists")}
        return {**kept, "rows": rows[ids], "signs": self._signs.take(self._spots[ids], axis=0)}


def _arrange(
    kept: dict[str, npt.NDArray[np.generic]], row_count: int, lists: int
) -> dict[str, npt.NDArray[np.generic]]:
    """All arrays of a block, from those with one entry per vector, in any order."""
    rows = kept["rows"]
    order = np.lexsort((kept["places"], rows))
    if not np.array_equal(order, np.arange(len(order))):
        kept = {name: array.take(order, axis=0) for name, array in kept.items()}
    row_starts = np.searchsorted(kept["rows"], np.arange(row_count + 1)).astype(np.uint32)
    filed = _filed(kept["lists"], lists) if len(rows) > _MIN_IVF_VECTORS and lists > 1 else _unfiled(len(rows))
    signs = kept["signs"].take(filed["members"], axis=0) if len(filed["list_starts"]) else kept["signs"]
    return {**kept, **filed, "signs": signs, "row_starts": row_starts}


def _filed(lists_of: npt.NDArray[np.generic], lists: int) -> Filing:
    """The order of binary codes: by list, within a list by vector."""
    flat = lists_of.reshape(-1)
    order = np.argsort(flat, kind="stable")
    where = np.empty(len(flat), np.uint32)
    where[order] = np.arange(len(flat), dtype=np.uint32)
    starts = np.searchsorted(flat[order], np.arange(lists + 1))
    spill = lists_of.shape[1]
    return {
        "members": (order // spill).astype(np.uint32),
        "spots": where[::spill].copy(),
        "list_starts": starts.astype(np.uint32),
    }


def _unfiled(count: int) -> Filing:
    numbers = np.arange(count, dtype=np.uint32)
    return {"members": numbers, "spots": numbers, "list_starts": np.zeros(0, np.uint32)}
