"""The sketch of a query, held against the sketches of many vectors: which of them are worth measuring.

Two looks. The first counts the signs that differ, over all. The second, over the few thousand that differ least, weighs
each sign by how far the query lies from its plane: a sign that the query itself hardly has says little. A vector that
stands in several lists has a sketch in each; it is taken for one only at the end, where few are left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.centroids import F32, SKETCH_BITS, packed

Ids = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Signs = npt.NDArray[np.uint64]
Members = npt.NDArray[np.uint32]
Seen = Callable[[Members | Ids], Mask]
Filed = Callable[[Ids], Ids]
"""Where the spots of some pieces, which come in order, are among all sketches."""

ROUGH = 2
"""Sketches that the first look leaves, for each that the second keeps."""

HEAVIER = 2
"""What a sign that differs weighs more when the query has it clearly, and again when it has it very clearly."""

_WORDS = SKETCH_BITS // 64
_HEAVY = np.array([[0.7], [1.5]], np.float32)  # how far the query lies, by the mean, from planes that weigh more
_SAMPLE = 2_048
_MARGIN = 1.15  # more than wanted are looked for: a sample is no count
_ABREAST = 2_048  # sketches compared at once: short loops are slow, long ones leave the cache
_SPARE = 1 << 20  # sketches for which memory is kept between calls; more is rare, and given back


class _Memory(threading.local):
    """Room to work in, per thread: fresh memory of this size costs more than the work itself."""

    def __init__(self) -> None:
        self.signs: Signs = np.empty((_ABREAST, _WORDS), np.uint64)
        self.asked: Signs = np.empty((_ABREAST, _WORDS), np.uint64)
        self._counts: npt.NDArray[np.uint8] = np.empty((0, _WORDS), np.uint8)

    def counts(self, size: int) -> npt.NDArray[np.uint8]:
        if size > len(self._counts):
            counts = np.empty((2 * size, _WORDS), np.uint8)
            if size > _SPARE:
                return counts[:size]
            self._counts = counts
        return self._counts[:size]


_memory = _Memory()


class Pieces(NamedTuple):
    """Sketches that are looked through as if they stood one behind the other."""

    signs: Sequence[Signs]
    whole: Signs  # what they are pieces of
    filed: Filed | None = None  # None: they are the whole
    members: Members | Ids | None = None  # whose sketches stand in the whole; None: each is that of the vector there

    def standing(self, spots: Ids) -> Members | Ids:
        """Whose sketches stand at these spots, which come in order."""
        return self._members(spots if self.filed is None else self.filed(spots))

    def found(self, spots: Ids) -> tuple[Signs, Members | Ids]:
        """The sketches at these spots, which come in order, and whose they are."""
        places = spots if self.filed is None else self.filed(spots)
        return self.whole.take(places, axis=0), self._members(places)

    def _members(self, places: Ids) -> Members | Ids:
        return places if self.members is None else self.members.take(places)


class Sketch:
    __slots__ = ("_heavy", "_signs", "words")

    def __init__(self, sides: F32) -> None:
        """`sides` [256] as `Landmarks.sides_of` says of the query."""
        far, flags = np.abs(sides), np.empty((1 + len(_HEAVY), len(sides)), np.bool_)
        np.greater(sides, 0, out=flags[0])
        np.greater(far, float(np.add.reduce(far) / len(far)) * _HEAVY, out=flags[1:])
        self.words = packed(flags)  # the signs; those that the query has clearly; very clearly
        self._signs, *self._heavy = self.words

    def nearest(self, pieces: Pieces, size: int, seen: Seen | None) -> Ids:
        """The vectors of the `size` sketches that lie nearest and are seen, each once, ascending; with those that lie as near
        as the last, up to twice as many. So the order in which sketches stand does not show."""
        differences = self._compared(pieces.signs)
        spots = _least_seen(differences, pieces, ROUGH * size, seen)
        if len(spots) <= size:
            return _once(pieces.standing(spots))
        signs, ids = pieces.found(spots)
        weights = self._weighed(signs, differences.take(spots).astype(np.uint16))
        last = np.partition(weights, size - 1)[size - 1]
        return _once(np.concatenate((ids[weights < last], _once(ids[weights == last])[:size])))

    def _compared(self, pieces: Sequence[Signs]) -> npt.NDArray[np.uint32]:
        """How many signs differ, of each sketch. In steps that stay in the cache."""
        counts, differing, asked, done = _memory.counts(sum(map(len, pieces))), _memory.signs, _memory.asked, 0
        asked[:] = self._signs
        for piece in pieces:
            for at in range(0, len(piece), _ABREAST):
                part = piece[at : at + _ABREAST]
                size = len(part)
                np.bitwise_xor(part, asked[:size], out=differing[:size])
                np.bitwise_count(differing[:size], out=counts[done : done + size])
                done += size
        return _summed(counts)

    def _weighed(self, signs: Signs, weights: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """A sign that differs weighs 1; one that the query has clearly 3, very clearly 5."""
        differing = signs ^ self._signs
        for heavy in self._heavy:
            weights += HEAVIER * _summed(np.bitwise_count(differing & heavy)).astype(np.uint16)
        return weights


def _summed(counts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """How many of the 256 signs are set, out of four counts, which it overwrites. All of them count as none, which measuring
    corrects."""
    sums = counts.view(np.uint32).reshape(-1)
    sums *= np.uint32(0x0101_0101)  # the highest byte becomes the sum of the four
    sums >>= np.uint32(24)
    return sums


def _least_seen(differences: npt.NDArray[np.uint32], pieces: Pieces, size: int, seen: Seen | None) -> Ids:
    """The `size` spots of the least differences among those seen, and those that differ as little as the last.

    A sample says where to cut, so that few are asked whether they are seen; it never decides which are taken.
    """
    cut = _first_cut(differences, pieces, size, seen)
    while True:
        spots = (differences <= np.uint32(cut)).nonzero()[0]
        if seen is not None:
            spots = spots[seen(pieces.standing(spots))]
        if len(spots) >= size:
            found = differences.take(spots)
            kept: Ids = spots[found <= np.partition(found, size - 1)[size - 1]]
            return kept
        if cut >= SKETCH_BITS:
            return spots
        cut = min(SKETCH_BITS, cut + 4)


def _first_cut(differences: npt.NDArray[np.uint32], pieces: Pieces, size: int, seen: Seen | None) -> int:
    step = max(1, len(differences) // _SAMPLE)
    shown = differences[::step]
    wanted = int(_MARGIN * size / step) + 4
    if seen is not None:
        spots = np.arange(0, len(differences), step)
        shown = shown[seen(pieces.standing(spots))]
    return int(np.partition(shown, wanted)[wanted]) if wanted < len(shown) else SKETCH_BITS


def _once(ids: Members | Ids) -> Ids:
    """Ascending."""
    ordered = ids.astype(np.intp)
    ordered.sort()
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
