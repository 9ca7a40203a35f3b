"""All vectors of one space on one segment: which rows lie nearest to a query, and how near given rows lie.

A row has one vector of its context (place 0) and one per example (places 1 and up). A vector is kept as int8 with one
scale, and as a sketch of 256 signs, filed under the lists of the landmarks. A search reads the sketches of a few lists
(or of all), takes the visible ones that differ least, and measures those on their codes. Arrays in, arrays out: agents,
texts, models and files are unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.centroids import F32, Landmarks
from waypost.search.ordered import once
from waypost.search.sketch import Ids, Mask, Pieces, Seen, Sketch

Filing = dict[str, npt.NDArray[np.uint32]]
Arrays = Mapping[str, npt.NDArray[np.generic]]

VERSION = 2
"""Of the arrays; another number means that they are read otherwise."""

GONE = 0xFFFF_FFFF
"""In `merge`: the new number of a row that is dropped."""

SCAN_ROWS = 16_384
"""Up to this many visible rows every one of them is looked at; past it, only those in the probed lists."""

_PROBES = ((65_536, 52), (262_144, 32))
PROBES = 10
"""Lists looked at per query when the visible rows are many; fewer rows leave time for more."""

_SORTED_FROM = 65_536  # a smaller block is read as a whole faster than in pieces
_MEASURED = 4_096  # so few vectors are measured without looking at their sketches
_SHORTLIST = 1_440  # sketches whose vectors are measured: one stands in up to three lists
_STRIDE = 512  # rows of float32 that stay in the cache between conversion and product


def reach(visible_rows: int) -> int | None:
    """How many lists to probe, by the number of rows the caller may see: never by what is hidden."""
    if visible_rows <= SCAN_ROWS:
        return None
    return next((probes for most, probes in _PROBES if visible_rows <= most), PROBES)


class Block:
    """Immutable; its arrays may be memory maps. Vector i stands at codes[i], ordered by row, then by place."""

    __slots__ = (
        "_codes", "_is_filed", "_landmarks", "_list_starts", "_lists", "_members", "_places", "_row_starts", "_rows",
        "_scales", "_signs", "_spots", "arrays",
    )  # fmt: skip

    def __init__(self, arrays: Arrays, landmarks: Landmarks | None = None) -> None:
        """`landmarks` are those with which the block was built; a space that has none needs none."""
        self.arrays = arrays
        self._landmarks = landmarks or Landmarks.single(arrays["codes"].shape[1])
        self._codes = np.asarray(arrays["codes"], np.int8)
        self._scales = np.asarray(arrays["scales"], np.float32)
        self._places = np.asarray(arrays["places"], np.uint16)
        self._lists = np.asarray(arrays["lists"], np.uint16)
        self._rows = np.asarray(arrays["rows"], np.uint32)
        self._row_starts = np.asarray(arrays["row_starts"], np.uint32)
        self._signs = np.asarray(arrays["signs"], np.uint64)
        self._members = np.asarray(arrays["members"], np.uint32)
        self._spots = np.asarray(arrays["spots"], np.uint32)
        self._list_starts = np.asarray(arrays["list_starts"], np.uint32)
        self._is_filed = len(self._list_starts) > 0
        if self._is_filed and len(self._list_starts) != self._landmarks.lists + 1:
            raise ValueError("these vectors were filed under other landmarks")

    @property
    def size(self) -> int:
        """How many vectors there are."""
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
        cls,
        vectors: F32,
        rows: npt.NDArray[np.uint32],
        places: npt.NDArray[np.uint16],
        row_count: int,
        landmarks: Landmarks | None,
    ) -> Block:
        """Of unit vectors [n, dims], each with its row and its place."""
        landmarks = landmarks or Landmarks.single(vectors.shape[1])
        largest = np.abs(vectors).max(axis=1) if len(vectors) else np.zeros(0, np.float32)
        scales = (np.where(largest > 0, largest, 1) / 127).astype(np.float32)
        kept = {
            "codes": np.rint(vectors / scales[:, None]).astype(np.int8),
            "scales": scales,
            "rows": rows.astype(np.uint32),
            "places": places.astype(np.uint16),
            "lists": landmarks.lists_of(vectors),
            "signs": landmarks.signs_of(vectors),
        }
        return cls(_arranged(kept, row_count, landmarks.lists), landmarks)

    @classmethod
    def merge(cls, blocks: Sequence[Block], kept: Sequence[npt.NDArray[np.uint32]], row_count: int) -> Block:
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
        count = self.row_count if mask is None else int(np.count_nonzero(mask))
        few = self._vectors_of(np.flatnonzero(mask)) if mask is not None and count <= SCAN_ROWS else None
        shown = None if count == self.row_count else mask
        size = max(_SHORTLIST, 2 * k)
        while True:
            found = [self._shortlist(query, shown, few, size, probes) for query in queries]
            ids = once(np.concatenate([part for part, _ in found])) if len(found) > 1 else found[0][0]
            rows, similarities = self._best(ids, queries)
            if len(rows) >= k or all(is_all for _, is_all in found):
                order = np.argsort(-similarities, kind="stable")[: k + spare]
                return rows[order], similarities[order]
            size *= 4  # few rows with many vectors each filled the list

    def similarities(self, rows: npt.NDArray[np.uint32], queries: F32) -> tuple[F32, F32]:
        """[rows, queries]: similarity of the context and of the best example; 0 where there is none."""
        starts, sizes = self._runs(rows)
        if len(rows) and sizes.min() == sizes.max() == 1:  # as in a space without examples
            measured = self._measure(starts, queries)
            is_context = (self._places[starts] == 0)[:, None]
            return np.where(is_context, measured, 0), np.where(is_context, 0, measured)
        ids, owners = _spelled_out(starts, sizes)
        first, measured = self._places.take(ids) == 0, self._measure(ids, queries)
        context, example = np.zeros((2, len(rows), len(queries)), np.float32)
        context[owners[first]] = measured[first]
        owners, measured = owners[~first], measured[~first]
        if len(owners):
            begins = _firsts(owners)
            example[owners[begins]] = np.maximum.reduceat(measured, begins, axis=0)
        return context, example

    def best_example(self, row: int, queries: F32) -> tuple[float, int]:
        """Of one row: the highest similarity of an example to any query, and the place of that example (0: none)."""
        ids = np.arange(self._row_starts[row], self._row_starts[row + 1], dtype=np.intp)
        ids = ids[self._places[ids] > 0]
        if not len(ids):
            return 0.0, 0
        measured = self._measure(ids, queries).max(axis=1)
        best = int(measured.argmax())
        return float(measured[best]), int(self._places[ids[best]])

    def _part(self, numbers: npt.NDArray[np.uint32]) -> dict[str, npt.NDArray[np.generic]]:
        """What `merge` takes over of this block: its live vectors under their new rows."""
        rows = numbers[self._rows]
        ids = np.flatnonzero(rows != GONE)
        return {
            "codes": self._codes.take(ids, axis=0),
            "scales": self._scales[ids],
            "rows": rows[ids],
            "places": self._places[ids],
            "lists": self._lists[ids],
            "signs": self._signs.take(self._spots[ids], axis=0),
        }

    def _vectors_of(self, rows: npt.NDArray[np.integer]) -> Ids:
        """The vectors of these rows in order."""
        return _spelled_out(*self._runs(rows))[0]

    def _runs(self, rows: npt.NDArray[np.integer]) -> tuple[Ids, Ids]:
        """Where the vectors of each row begin, and how many they are."""
        starts = self._row_starts[rows].astype(np.intp)
        return starts, self._row_starts[np.add(rows, 1, dtype=np.intp)] - starts

    def _shortlist(
        self, query: F32, mask: Mask | None, few: Ids | None, size: int, probes: int | None
    ) -> tuple[Ids, bool]:
        """Some `size` visible vectors whose sketches lie nearest to the query, and whether these are all there are. `few`
        are the vectors of all visible rows, where so few that each can be fetched on its own."""
        sketch = Sketch(self._landmarks.sides_of(query[None])[0])
        if probes is None:
            return (
                self._among_all(sketch, mask, size) if few is None else self._among(sketch, few, few, size, _MEASURED)
            )
        lists = self._landmarks.closest(query, probes)
        if self._is_filed and few is None:
            return self._among_lists(sketch, lists, mask, size)
        flags = np.zeros(self._landmarks.lists, np.bool_)
        flags[lists] = True
        if few is None:
            few = np.arange(self.size) if mask is None else np.flatnonzero(mask[self._rows])
        flagged = flags[self._lists[few]]
        return self._among(sketch, few[flagged.any(axis=1)], few[np.nonzero(flagged)[0]], size, size)

    def _among(self, sketch: Sketch, ids: Ids, often: Ids, size: int, most: int) -> tuple[Ids, bool]:
        """Of these vectors. `often` has each as often as one of its lists is read: so often does its sketch count."""
        if len(ids) <= max(size, most):
            return ids, True
        signs = self._signs.take(self._spots[often], axis=0)
        return sketch.nearest(Pieces([signs], signs, members=often), size, None), False

    def _among_lists(self, sketch: Sketch, lists: Ids, mask: Mask | None, size: int) -> tuple[Ids, bool]:
        starts, ends = self._list_starts[lists].astype(np.intp), self._list_starts[lists + 1].astype(np.intp)
        pieces = [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        firsts = np.cumsum(ends - starts)
        if firsts[-1] <= size * self._lists.shape[1]:  # there may be no more vectors than wanted
            members = np.concatenate([self._members[piece] for piece in pieces])
            ids = once(members if mask is None else members[mask[self._rows[members]]]).astype(np.intp)
            if len(ids) <= size:
                return ids, True
        shifts = ends - firsts

        def filed(spots: Ids) -> Ids:
            """Where the spots of the joined lists are among all."""
            counts = spots.searchsorted(firsts)
            counts[1:] -= counts[:-1].copy()
            return np.asarray(spots + shifts.repeat(counts))

        joined = Pieces([self._signs[piece] for piece in pieces], self._signs, filed, self._members)
        return sketch.nearest(joined, size, self._seen(mask)), False

    def _among_all(self, sketch: Sketch, mask: Mask | None, size: int) -> tuple[Ids, bool]:
        if self.size <= size:
            return np.arange(self.size) if mask is None else np.flatnonzero(mask[self._rows]), True
        times = self._lists.shape[1] if self._is_filed else 1
        pieces = Pieces([self._signs], self._signs, members=self._members if self._is_filed else None)
        return sketch.nearest(pieces, times * size, self._seen(mask)), False

    def _seen(self, mask: Mask | None) -> Seen | None:
        """Whether vectors are of visible rows."""
        return None if mask is None else lambda ids: mask[self._rows[ids]]

    def _measure(self, ids: Ids, queries: F32) -> F32:
        """Similarities [ids, queries] on the stored codes."""
        found = np.empty((len(queries), len(ids)), np.float32)
        for start in range(0, len(ids), _STRIDE):
            piece = slice(start, start + _STRIDE)
            vectors = self._codes.take(ids[piece], axis=0).astype(np.float32)
            for number, query in enumerate(queries):
                np.dot(vectors, query, out=found[number, piece])
        found *= self._scales.take(ids)
        return found.T

    def _best(self, ids: Ids, queries: F32) -> tuple[npt.NDArray[np.uint32], F32]:
        """The rows of these vectors, ascending, and the highest similarity of each to any query."""
        if not len(ids):
            return np.zeros(0, np.uint32), np.zeros(0, np.float32)
        rows = self._rows.take(ids)
        starts = _firsts(rows)
        measured = self._measure(ids, queries)
        return rows[starts], np.maximum.reduceat(measured[:, 0] if len(queries) == 1 else measured.max(axis=1), starts)


def _firsts(ordered: npt.NDArray[np.integer]) -> Ids:
    """Where each number comes first."""
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def _spelled_out(starts: Ids, sizes: Ids) -> tuple[Ids, Ids]:
    """The numbers of all runs, one behind the other, and to which run each belongs."""
    owners = np.repeat(np.arange(len(starts)), sizes)
    before = np.cumsum(sizes) - sizes
    return (starts - before)[owners] + np.arange(len(owners)), owners


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
