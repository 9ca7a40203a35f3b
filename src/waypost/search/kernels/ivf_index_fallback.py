"""An inverted file index (IVF) of vectors in numpy: the fallback of `ivf_index.pyx`.

A search compares the binary codes of a few lists (or of all), takes the visible ones of the smallest Hamming distance, and
measures these with their int8 codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique
from waypost.search.vectors.quantizer import (
    F32,
    HEAVY_WEIGHT,
    ROUGH_FACTOR,
    BinaryCode,
    CoarseQuantizer,
    CodeLists,
    Ids,
    Mask,
    VisibleFilter,
)

SCAN_ROWS: Final = 16_384
"""Up to this many visible rows all are searched; beyond it, only the probed lists."""

QUERY_GRID: Final = 4096.0
"""Steps of a query's vector: with codes up to 127 in 1024 dimensions, sums of products stay below 2**24, so that they are the
same in any order of addition."""

_MEASURED: Final = 4_096  # up to this many vectors are measured without comparing binary codes
_SHORTLIST: Final = 1_440  # codes whose vectors are measured; a vector has one in up to three lists
_STRIDE: Final = 512  # float32 rows that stay in the CPU cache between conversion and product


class IvfRules(NamedTuple):
    """How far a search goes; the kernel uses the same."""

    scan_rows: int = SCAN_ROWS
    grid: float = QUERY_GRID
    measured: int = _MEASURED
    shortlist: int = _SHORTLIST
    rough: int = ROUGH_FACTOR
    heavier: int = HEAVY_WEIGHT


IVF_RULES: Final = IvfRules()


class IvfIndex:
    """Vector i is codes[i], ordered by row, then by place. The arrays may be memory maps."""

    __slots__ = (
        "_codes", "_is_filed", "_list_starts", "_lists", "_members", "_places", "_row_count", "_row_starts", "_rows",
        "_scales", "_signs", "_spots", "arrays", "quantizer", "rules",
    )  # fmt: skip

    def __init__(
        self, arrays: Mapping[str, npt.NDArray[Any]], quantizer: CoarseQuantizer, rules: IvfRules = IVF_RULES
    ) -> None:
        self.arrays = arrays
        self.quantizer = quantizer
        self.rules = rules
        self._codes = arrays["codes"]
        self._scales = arrays["scales"]
        self._places = arrays["places"]
        self._lists = arrays["lists"]
        self._rows = arrays["rows"]
        self._row_starts = arrays["row_starts"]
        self._row_count = len(self._row_starts) - 1
        self._signs = arrays["signs"]
        self._members = arrays["members"]
        self._spots = arrays["spots"]
        self._list_starts = arrays["list_starts"]
        self._is_filed = len(self._list_starts) > 0

    def nearest(
        self, queries: F32, mask: Mask | None, k: int, probes: int | None, spare: int
    ) -> tuple[npt.NDArray[np.uint32], F32]:
        """The k nearest visible rows over all queries and places, best first, ties by row; then up to `spare` more that were
        measured anyway. `probes` is the number of lists to search; None searches all.
        """
        count = self._row_count if mask is None else int(np.count_nonzero(mask))
        few = self._vectors_of(np.flatnonzero(mask)) if mask is not None and count <= self.rules.scan_rows else None
        shown = None if count == self._row_count else mask
        size = max(self.rules.shortlist, 2 * k)
        while True:
            found = [self._shortlist(query, shown, few, size, probes) for query in queries]
            ids = sorted_unique(np.concatenate([part for part, _ in found])) if len(found) > 1 else found[0][0]
            rows, similarities = self._best(ids, queries)
            if len(rows) >= k or all(is_all for _, is_all in found):
                order = np.argsort(-similarities, kind="stable")[: k + spare]
                return rows[order], similarities[order]
            size *= 4  # rows with many vectors filled the shortlist

    def similarities(self, rows: npt.NDArray[np.uint32], queries: F32) -> tuple[F32, F32]:
        """[rows, queries]: similarity of the context and of the best example; 0 if there is none."""
        starts, sizes = self._runs(rows)
        if len(rows) and sizes.min() == sizes.max() == 1:  # as in a space without examples
            measured = self._measure(starts, queries)
            is_context = (self._places[starts] == 0)[:, None]
            return np.where(is_context, measured, 0), np.where(is_context, 0, measured)
        ids, owners = _expand_runs(starts, sizes)
        first, measured = self._places.take(ids) == 0, self._measure(ids, queries)
        context, example = np.zeros((2, len(rows), len(queries)), np.float32)
        context[owners[first]] = measured[first]
        owners, measured = owners[~first], measured[~first]
        if len(owners):
            begins = _firsts(owners)
            example[owners[begins]] = np.maximum.reduceat(measured, begins, axis=0)
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

    def binary_code(self, query: F32) -> BinaryCode:
        return BinaryCode(self.quantizer.projections_of(query[None])[0])

    def _vectors_of(self, rows: npt.NDArray[np.integer]) -> Ids:
        """The vectors of these rows, in order."""
        return _expand_runs(*self._runs(rows))[0]

    def _runs(self, rows: npt.NDArray[np.integer]) -> tuple[Ids, Ids]:
        """The first vector of each row, and the number of its vectors."""
        starts = self._row_starts[rows].astype(np.intp)
        return starts, self._row_starts[np.add(rows, 1, dtype=np.intp)] - starts

    def _shortlist(
        self, query: F32, mask: Mask | None, few: Ids | None, size: int, probes: int | None
    ) -> tuple[Ids, bool]:
        """About `size` visible vectors whose binary codes are nearest to the query, and whether these are all. `few` are the
        vectors of all visible rows, if they are few."""
        code = self.binary_code(query)
        if probes is None:
            return (
                self._among_all(code, mask, size)
                if few is None
                else self._among(code, few, few, size, self.rules.measured)
            )
        lists = self.quantizer.closest(query, probes)
        if self._is_filed and few is None:
            return self._among_lists(code, lists, mask, size)
        flags = np.zeros(self.quantizer.lists, np.bool_)
        flags[lists] = True
        if few is None:
            few = np.arange(len(self._codes)) if mask is None else np.flatnonzero(mask[self._rows])
        flagged = flags[self._lists[few]]
        return self._among(code, few[flagged.any(axis=1)], few[np.nonzero(flagged)[0]], size, size)

    def _among(self, code: BinaryCode, ids: Ids, often: Ids, size: int, most: int) -> tuple[Ids, bool]:
        """Among these vectors. `often` has each once per probed list."""
        if len(ids) <= max(size, most):
            return ids, True
        signs = self._signs.take(self._spots[often], axis=0)
        return code.nearest(CodeLists([signs], signs, members=often), size, None), False

    def _among_lists(self, code: BinaryCode, lists: Ids, mask: Mask | None, size: int) -> tuple[Ids, bool]:
        starts, ends = self._list_starts[lists].astype(np.intp), self._list_starts[lists + 1].astype(np.intp)
        pieces = [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        firsts = np.cumsum(ends - starts)
        if firsts[-1] <= size * self._lists.shape[1]:  # perhaps no more vectors than wanted
            members = np.concatenate([self._members[piece] for piece in pieces])
            ids = sorted_unique(members if mask is None else members[mask[self._rows[members]]]).astype(np.intp)
            if len(ids) <= size:
                return ids, True
        shifts = ends - firsts

        def filed(spots: Ids) -> Ids:
            """Positions in the joined lists → positions among all codes."""
            counts = spots.searchsorted(firsts)
            counts[1:] -= counts[:-1].copy()
            return np.asarray(spots + shifts.repeat(counts))

        joined = CodeLists([self._signs[piece] for piece in pieces], self._signs, filed, self._members)
        return code.nearest(joined, size, self._visibility(mask)), False

    def _among_all(self, code: BinaryCode, mask: Mask | None, size: int) -> tuple[Ids, bool]:
        if len(self._codes) <= size:
            return np.arange(len(self._codes)) if mask is None else np.flatnonzero(mask[self._rows]), True
        times = self._lists.shape[1] if self._is_filed else 1
        pieces = CodeLists([self._signs], self._signs, members=self._members if self._is_filed else None)
        return code.nearest(pieces, times * size, self._visibility(mask)), False

    def _visibility(self, mask: Mask | None) -> VisibleFilter | None:
        """A filter for vectors of visible rows."""
        return None if mask is None else lambda ids: mask[self._rows[ids]]

    def _measure(self, ids: Ids, queries: F32) -> F32:
        """Similarities [ids, queries] by the stored codes."""
        found = np.empty((len(queries), len(ids)), np.float32)
        for start in range(0, len(ids), _STRIDE):
            piece = slice(start, start + _STRIDE)
            vectors = self._codes.take(ids[piece], axis=0).astype(np.float32)
            for number, query in enumerate(queries):
                np.dot(vectors, query, out=found[number, piece])
        found *= self._scales.take(ids)
        return found.T

    def _best(self, ids: Ids, queries: F32) -> tuple[npt.NDArray[np.uint32], F32]:
        """The rows of these vectors, ascending, with the highest similarity of each to any query."""
        if not len(ids):
            return np.zeros(0, np.uint32), np.zeros(0, np.float32)
        rows = self._rows.take(ids)
        starts = _firsts(rows)
        measured = self._measure(ids, queries)
        return rows[starts], np.maximum.reduceat(measured[:, 0] if len(queries) == 1 else measured.max(axis=1), starts)


def _firsts(ordered: npt.NDArray[np.integer]) -> Ids:
    """The first position of each number."""
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def _expand_runs(starts: Ids, sizes: Ids) -> tuple[Ids, Ids]:
    """The concatenated runs, and the run of each element."""
    owners = np.repeat(np.arange(len(starts)), sizes)
    before = np.cumsum(sizes) - sizes
    return (starts - before)[owners] + np.arange(len(owners)), owners
