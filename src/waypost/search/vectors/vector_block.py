"""All vectors of one space on one segment: which rows lie nearest to a query, and how near given rows lie.

A row has one vector of its context (place 0) and one per example (places 1 and up). A vector is kept as int8 with one
scale, and as a sketch of 256 signs, filed under the lists of the landmarks. How they are looked through is said in
`plain_near`, and done by compiled code where there is any. Arrays in, arrays out: agents, texts, models and files are unknown
here.
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

VERSION = 2
"""Of the arrays; another number means that they are read otherwise."""

DROPPED = 0xFFFF_FFFF
"""In `merge`: the new number of a row that is dropped."""

_PROBES = ((65_536, 52), (262_144, 32))
MIN_PROBES = 10
"""Lists looked at per query when the visible rows are many; fewer rows leave time for more."""

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

_SORTED_FROM = 65_536  # a smaller block is read as a whole faster than in pieces


def probe_count(visible_rows: int) -> int | None:
    """How many lists to probe, by the number of rows the caller may see: never by what is hidden."""
    if visible_rows <= SCAN_ROWS:
        return None
    return next((probes for most, probes in _PROBES if visible_rows <= most), MIN_PROBES)


class VectorBlock:
    """Immutable; its arrays may be memory maps. Vector i stands at codes[i], ordered by row, then by place."""

    __slots__ = ("_codes", "_landmarks", "_most", "_near", "_row_starts", "_signs", "_spots", "arrays")

    def __init__(self, arrays: Arrays, landmarks: CoarseQuantizer | None = None) -> None:
        """`landmarks` are those with which the block was built; a space that has none needs none."""
        self.arrays = arrays
        self._most: int | None = None
        self._landmarks = landmarks or CoarseQuantizer.single(arrays["codes"].shape[1])
        typed = {name: np.asarray(arrays[name], kind) for name, kind in _KINDS.items()}
        self._codes, self._row_starts = typed["codes"], typed["row_starts"]
        self._signs, self._spots = typed["signs"], typed["spots"].astype(np.uint32, copy=False)
        list_starts = typed["list_starts"]
        if len(list_starts) and len(list_starts) != self._landmarks.lists + 1:
            raise ValueError("these vectors were filed under other landmarks")
        fallback = IvfIndexFallback(typed, self._landmarks)
        self._near = fallback if IvfIndex is None else IvfIndex(fallback)

    @property
    def size(self) -> int:
        """How many vectors there are."""
        return len(self._codes)

    @property
    def covered(self) -> Mask:
        """The rows that have vectors."""
        return np.diff(self._row_starts) > 0

    @property
    def max_vectors_per_row(self) -> int:
        """Vectors that the row with the most has; looked for once."""
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
        landmarks: CoarseQuantizer | None,
    ) -> VectorBlock:
        """Of unit vectors [n, dims], each with its row and its place."""
        landmarks = landmarks or CoarseQuantizer.single(vectors.shape[1])
        largest = np.abs(vectors).max(axis=1) if len(vectors) else np.zeros(0, np.float32)
        scales = (np.where(largest > 0, largest, 1) / 127).astype(np.float32)
        kept = {
            "codes": np.rint(vectors / scales[:, None]).astype(np.int8),
            "scales": scales,
            "rows": rows.astype(np.uint32),
            "places": places.astype(np.uint16),
            "lists": landmarks.lists_of(vectors),
            "signs": landmarks.binary_codes_of(vectors),
        }
        return cls(_arranged(kept, row_count, landmarks.lists), landmarks)

    @classmethod
    def merge(
        cls, blocks: Sequence[VectorBlock], kept: Sequence[npt.NDArray[np.uint32]], row_count: int
    ) -> VectorBlock:
        """One block of several of the same space. `kept[b][row]` is the new number of a row, or GONE."""
        parts = [block._part(numbers) for block, numbers in zip(blocks, kept, strict=True)]
        landmarks = blocks[0]._landmarks
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(_arranged(joined, row_count, landmarks.lists), landmarks)

    def nearest(
        self, queries: F32, mask: Mask | None, k: int, probes: int | None, spare: int = 0
    ) -> tuple[npt.NDArray[np.uint32], F32]:
        """The best k visible rows over any query and any place, best first, of equal ones the lower row; and behind them up
        to `spare` more, as far as they were measured anyway.

        With `probes`, only vectors in that many lists closest to each query count; None looks at all.
        """
        return self._near.nearest(queries, mask, k, probes, spare)

    def similarities(self, rows: npt.NDArray[np.uint32], queries: F32) -> tuple[F32, F32]:
        """[rows, queries]: similarity of the context and of the best example; 0 where there is none."""
        return self._near.similarities(rows, queries)

    def best_example(self, row: int, queries: F32) -> tuple[float, int]:
        """Of one row: the highest similarity of an example to any query, and the place of that example (0: none)."""
        return self._near.best_example(row, queries)

    def _part(self, numbers: npt.NDArray[np.uint32]) -> dict[str, npt.NDArray[np.generic]]:
        """What `merge` takes over of this block: its live vectors under their new rows."""
        rows = numbers[self.arrays["rows"]]
        ids = np.flatnonzero(rows != DROPPED)
        kept = {name: self.arrays[name].take(ids, axis=0) for name in ("codes", "scales", "places", "lists")}
        return {**kept, "rows": rows[ids], "signs": self._signs.take(self._spots[ids], axis=0)}


def _arranged(
    kept: dict[str, npt.NDArray[np.generic]], row_count: int, lists: int
) -> dict[str, npt.NDArray[np.generic]]:
    """All arrays of a block, from those with one entry per vector in any order."""
    rows = kept["rows"]
    order = np.lexsort((kept["places"], rows))
    if not np.array_equal(order, np.arange(len(order))):
        kept = {name: array.take(order, axis=0) for name, array in kept.items()}
    row_starts = np.searchsorted(kept["rows"], np.arange(row_count + 1)).astype(np.uint32)
    filed = _filed(kept["lists"], lists) if len(rows) > _SORTED_FROM and lists > 1 else _unfiled(len(rows))
    signs = kept["signs"].take(filed["members"], axis=0) if len(filed["list_starts"]) else kept["signs"]
    return {**kept, **filed, "signs": signs, "row_starts": row_starts}


def _filed(lists_of: npt.NDArray[np.generic], lists: int) -> Filing:
    """Where each sketch stands: under every list of its vector, within a list by vector."""
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
