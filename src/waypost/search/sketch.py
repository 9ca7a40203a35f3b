"""The sketch of a query, held against the sketches of many vectors: which of them are worth measuring.

Two looks. The first counts the signs that differ, over all. The second, over the few thousand that differ least, weighs
each sign by how far the query lies from its plane: a sign that the query itself hardly has says little.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from waypost.search.centroids import F32, packed

Ids = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Signs = npt.NDArray[np.uint64]
Seen = Callable[[Ids], Mask]

_ROUGH = 6  # sketches of the first look for each that the second keeps
_LEVELS = 3  # binary digits of a weight
_SAMPLE = 2_048
_ABREAST = 64  # sketches compared in one inner loop
_MOST = 256


class Sketch:
    __slots__ = ("_digits", "_signs")

    def __init__(self, sides: F32) -> None:
        """`sides` [256] as `Landmarks.sides_of` says of the query."""
        self._signs = packed(sides > 0)
        top = float(np.abs(sides).max()) or 1.0
        weights = np.minimum(np.abs(sides) * (1.25 * 2**_LEVELS / top), 2**_LEVELS - 1).astype(np.uint8)
        self._digits = packed((weights >> np.arange(_LEVELS, dtype=np.uint8)[:, None]) & 1 > 0)

    def nearest(self, signs: Signs, size: int, seen: Seen | None) -> Ids:
        """The `size` spots among `signs` [n, 4] that lie nearest and are seen; of equal ones the first."""
        mixed = self._mixed(signs)
        spots = _least(_counted(mixed), _ROUGH * size, seen)
        if len(spots) <= size:
            return spots
        spots.sort()
        differing = mixed.take(spots, axis=0)
        weights = np.zeros(len(spots), np.uint32)
        for level, digit in enumerate(self._digits):
            weights += _counted(_apart(differing, digit, np.bitwise_and)) << np.uint32(level)
        return spots[np.argsort(weights, kind="stable")[:size]]

    def _mixed(self, signs: Signs) -> Signs:
        return _apart(signs, self._signs, np.bitwise_xor)


def _apart(signs: Signs, word: Signs, operation: np.ufunc) -> Signs:
    """The operation on every sketch and one: over many abreast, as short inner loops are slow."""
    found = np.empty(signs.shape, np.uint64)
    many, whole = np.tile(word, _ABREAST), len(signs) - len(signs) % _ABREAST
    operation(signs[:whole].reshape(-1, many.size), many, out=found[:whole].reshape(-1, many.size))
    operation(signs[whole:], word, out=found[whole:])
    return found


def _counted(signs: Signs) -> npt.NDArray[np.uint32]:
    """How many of the 256 signs are set. All of them count as none, which measuring corrects."""
    counts = np.bitwise_count(signs).view(np.uint32).reshape(-1)
    counts *= np.uint32(0x0101_0101)  # the highest byte becomes the sum of the four
    counts >>= np.uint32(24)
    return counts


def _least(differences: npt.NDArray[np.uint32], size: int, seen: Seen | None) -> Ids:
    """The `size` spots of the least differences among those seen, of equal ones the first.

    A sample says where to cut, so that few spots are asked whether they are seen; it never decides which are taken.
    """
    sample = np.arange(0, len(differences), max(1, len(differences) // _SAMPLE))
    shown = differences[sample if seen is None else sample[seen(sample)]]
    wanted = int(1.2 * size * len(sample) / max(1, len(differences))) + 4
    cut = int(np.partition(shown, wanted)[wanted]) if wanted < len(shown) else _MOST
    while True:
        spots = np.flatnonzero(differences <= cut)
        if seen is not None:
            spots = spots[seen(spots)]
        if len(spots) >= size or cut >= _MOST:
            return spots[np.argsort(differences[spots].astype(np.uint16), kind="stable")[:size]]
        cut = min(_MOST, cut + 4)
