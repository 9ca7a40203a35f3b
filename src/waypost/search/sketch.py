"""The sketch of a query, held against the sketches of many vectors: which of them are worth measuring.

Two looks. The first counts the signs that differ, over all. The second, over the few thousand that differ least, weighs
each sign by how far the query lies from its plane: a sign that the query itself hardly has says little. A vector that
stands in several lists has a sketch in each; it is taken for one only at the end, where few are left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.centroids import F32, SKETCH_BITS, packed

Ids = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Signs = npt.NDArray[np.uint64]
Members = npt.NDArray[np.uint32]
Seen = Callable[[Ids], Mask]

_WORDS = SKETCH_BITS // 64
_ROUGH = 6  # sketches that the first look leaves, for each that the second keeps
_HEAVY = np.array([[0.7], [1.5]], np.float32)  # how far the query lies, by the mean, from planes that weigh more
_SAMPLE = 2_048
_MARGIN = 1.15  # more than wanted are looked for: a sample is no count
_ABREAST = 64  # sketches compared in one inner loop: short loops are slow
_SPARE = 1 << 20  # sketches for which memory is kept between calls; more is rare, and given back


class _Memory(threading.local):
    """Room to work in, per thread: fresh memory of this size costs more than the work itself."""

    signs: Signs = np.empty((0, _WORDS), np.uint64)
    counts: npt.NDArray[np.uint8] = np.empty((0, _WORDS), np.uint8)

    def room(self, size: int) -> tuple[Signs, npt.NDArray[np.uint8]]:
        if size > len(self.signs):
            signs, counts = np.empty((2 * size, _WORDS), np.uint64), np.empty((2 * size, _WORDS), np.uint8)
            if size > _SPARE:
                return signs[:size], counts[:size]
            self.signs, self.counts = signs, counts
        return self.signs[:size], self.counts[:size]


_memory = _Memory()


class Sketch:
    __slots__ = ("_heavy", "_signs")

    def __init__(self, sides: F32) -> None:
        """`sides` [256] as `Landmarks.sides_of` says of the query."""
        far = np.abs(sides)
        bounds = float(far.mean()) * _HEAVY
        many = np.tile(packed(np.concatenate([sides[None] > 0, far > bounds])), _ABREAST)
        self._signs, self._heavy = many[0], many[1:]

    def nearest(self, pieces: Sequence[Signs], members: Members | None, size: int, seen: Seen | None) -> Ids:
        """The vectors of the `size` sketches that lie nearest and are seen, each once, ascending; of equally near sketches
        the first. All that are seen, if their sketches are no more than `size`.

        `members[spot]` is the vector whose sketch stands there in the joined pieces [n, 4]; None: the spot itself.
        """
        signs, differences = self._compared(pieces)
        spots = _least_seen(differences, members, _ROUGH * size, seen)
        if len(spots) > size:
            weights = self._weighed(signs.take(spots, axis=0), differences[spots].astype(np.uint16))
            spots = spots[_least(weights, size)]
        return spots if members is None else np.unique(members[spots]).astype(np.intp)

    def roughly_nearest(self, signs: Signs, size: int) -> Ids:
        """The `size` spots of the first look."""
        return _least(self._compared([signs])[1].astype(np.uint16), size)

    def _compared(self, pieces: Sequence[Signs]) -> tuple[Signs, npt.NDArray[np.uint32]]:
        signs, counts = _memory.room(sum(map(len, pieces)))
        np.concatenate(pieces, out=signs)
        _combine(np.bitwise_xor, signs, self._signs)
        return signs, _counted(signs, counts)

    def _weighed(self, differing: Signs, weights: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """A sign weighs 1; one that the query has clearly 3, very clearly 5."""
        counts, part = np.empty(differing.shape, np.uint8), np.empty_like(differing)
        for heavy in self._heavy:
            part[:] = differing
            _combine(np.bitwise_and, part, heavy)
            weights += 2 * _counted(part, counts).astype(np.uint16)
        return weights


def _combine(operation: np.ufunc, signs: Signs, many: Signs) -> None:
    """In place: the operation on every sketch and one that stands in `many` over and over."""
    whole = len(signs) - len(signs) % _ABREAST
    abreast = signs[:whole].reshape(-1, many.size)
    rest = signs[whole:].reshape(-1)
    operation(abreast, many, out=abreast)
    operation(rest, many[: rest.size], out=rest)


def _counted(signs: Signs, counts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """How many of the 256 signs are set. All of them count as none, which measuring corrects."""
    np.bitwise_count(signs, out=counts)
    sums = counts.view(np.uint32).reshape(-1)
    sums *= np.uint32(0x0101_0101)  # the highest byte becomes the sum of the four
    sums >>= np.uint32(24)
    return sums


def _least_seen(
    differences: npt.NDArray[np.uint32], members: Members | None, size: int, seen: Seen | None
) -> Ids:
    """The `size` spots of the least differences among those seen, ascending; of equal ones the first.

    A sample says where to cut, so that few are asked whether they are seen; it never decides which are taken.
    """
    cut = _first_cut(differences, members, size, seen)
    while True:
        spots = np.flatnonzero(differences <= cut)
        if seen is not None:
            spots = spots[seen(spots if members is None else members[spots].astype(np.intp))]
        if len(spots) >= size or cut >= SKETCH_BITS:
            return spots[_least(differences[spots].astype(np.uint16), size)]
        cut = min(SKETCH_BITS, cut + 4)


def _first_cut(differences: npt.NDArray[np.uint32], members: Members | None, size: int, seen: Seen | None) -> int:
    sample = np.arange(0, len(differences), max(1, len(differences) // _SAMPLE))
    shown = differences[sample]
    if seen is not None:
        shown = shown[seen(sample if members is None else members[sample].astype(np.intp))]
    wanted = int(_MARGIN * size * len(sample) / max(1, len(differences))) + 4
    return int(np.partition(shown, wanted)[wanted]) if wanted < len(shown) else SKETCH_BITS


def _least(values: npt.NDArray[np.uint16], size: int) -> Ids:
    """Where the `size` least values stand, ascending; of equal ones the first."""
    if len(values) <= size:
        return np.arange(len(values))
    last = np.partition(values, size - 1)[size - 1]
    taken = values < last
    ties = np.flatnonzero(values == last)
    taken[ties[: size - int(np.count_nonzero(taken))]] = True
    return np.flatnonzero(taken)
