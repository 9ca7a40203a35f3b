"""Quantization of a vector space: a coarse quantizer for the lists of an IVF index, and binary codes for Hamming distances.

The centres are trained once per space from generic texts, and never change. So the lists and the binary code of a vector depend
only on that vector.

Binary codes are compared in two passes: by Hamming distance over all, then, over a few thousand of the nearest, weighted by how
far the query is from each hyperplane, because a bit close to its threshold says little. A vector in several lists has a code in
each; duplicates are removed at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

CODE_BITS = 256
"""Bits of a binary code: four words of 64."""

SPILL = 3
"""Lists per vector. On text vectors, 32 probes with three lists find what 24 with four do, as fast, with less memory."""

_ROTATION_SEED = 20_260_101

_ROUNDS = 8

_CHUNK = 4096

_BATCH = 256  # vectors whose similarities to all centres stay in the CPU cache


class CoarseQuantizer:
    """Unit centres of the lists, the origin of the space, and the random rotation for binary codes."""

    __slots__ = ("_wide", "centres", "codes", "origin", "rotation", "shortening")

    def __init__(self, codes: npt.NDArray[np.int8]) -> None:
        """`codes` [lists, dims] are the centres, each up to a positive factor, as stored in a file."""
        self.codes = codes
        self._wide = codes.astype(np.float32)
        self.shortening = 1 / np.maximum(np.sqrt(np.square(codes, dtype=np.int64).sum(axis=1)), 1)  # to unit length
        self.centres = _unit(self._wide)
        self.origin: F32 = self.centres.mean(axis=0)
        self.rotation = _rotation(codes.shape[1])

    @classmethod
    def single(cls, dims: int) -> CoarseQuantizer:
        """One list, for a space without trained centres: every vector is searched."""
        return cls(np.zeros((1, dims), np.int8))

    @property
    def lists(self) -> int:
        return len(self.centres)

    @property
    def dims(self) -> int:
        return int(self.centres.shape[1])

    def lists_of(self, vectors: F32) -> npt.NDArray[np.uint16]:
        """The lists [n, spill] of the vectors, closest first."""
        spill = min(SPILL, self.lists)
        found = np.zeros((len(vectors), spill), np.uint16)
        for start in range(0, len(vectors) if self.lists > 1 else 0, _BATCH):
            found[start : start + _BATCH] = _highest(vectors[start : start + _BATCH] @ self.centres.T, spill)
        return found

    def binary_codes_of(self, vectors: F32) -> npt.NDArray[np.uint64]:
        """The binary codes [n, 4]: the side of each of 256 fixed hyperplanes through the origin."""
        found = np.empty((len(vectors), CODE_BITS // 64), np.uint64)
        for start in range(0, len(vectors), _CHUNK):
            found[start : start + _CHUNK] = pack_bits(self.projections_of(vectors[start : start + _CHUNK]) > 0)
        return found

    def projections_of(self, vectors: F32) -> F32:
        """Signed distances [n, 256] of the vectors from the hyperplanes."""
        return np.asarray((vectors - self.origin) @ self.rotation)

    def closest(self, query: F32, probes: int) -> npt.NDArray[np.intp]:
        """The `probes` closest lists, ascending; ties by number. For a query on an integer grid the products are integers, which
        add up to the same in any order."""
        if probes >= self.lists:
            return np.arange(self.lists)
        figures = (self._wide @ query) * self.shortening
        found = np.argsort(-figures, kind="stable")[:probes]
        found.sort()
        return found


def pack_bits(sides: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Rows of 256 booleans as four words each."""
    return np.packbits(sides, axis=-1, bitorder="little").view("<u8")


def train_quantizer(vectors: F32, lists: int, seed: int) -> CoarseQuantizer:
    """Spherical k-means over unit vectors of generic texts. Deterministic."""
    chance = np.random.RandomState(seed)  # its stream is frozen, that of a Generator is not
    centres = vectors[chance.permutation(len(vectors))[:lists]].astype(np.float32)
    for _ in range(_ROUNDS):
        centres = _kmeans_step(vectors, centres, chance)
    return CoarseQuantizer(np.rint(centres * (127 / _largest(centres))).astype(np.int8))


def _kmeans_step(vectors: F32, centres: F32, chance: np.random.RandomState) -> F32:
    chunks = range(0, len(vectors), _CHUNK)
    nearest = np.concatenate([np.argmax(vectors[at : at + _CHUNK] @ centres.T, axis=1) for at in chunks])
    sizes = np.bincount(nearest, minlength=len(centres))
    filled = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[filled]
    sums = np.add.reduceat(vectors[np.argsort(nearest, kind="stable")], starts, axis=0)
    moved = vectors[chance.randint(len(vectors), size=len(centres))].astype(np.float32)  # for empty lists
    moved[filled] = sums
    return _unit(moved)


def _highest(scores: F32, count: int) -> npt.NDArray[np.intp]:
    """The columns of the highest scores, highest first; ties by column."""
    found = np.empty((len(scores), count), np.intp)
    rows = np.arange(len(scores))
    for place in range(count):
        found[:, place] = scores.argmax(axis=1)
        scores[rows, found[:, place]] = -np.inf
    return found


@lru_cache(maxsize=8)
def _rotation(dims: int) -> F32:
    """Orthonormal directions [dims, 256], the same on every machine: stored codes are compared with new ones."""
    side = max(dims, CODE_BITS)
    square = np.random.RandomState(_ROTATION_SEED).standard_normal((side, side))
    rotation, upper = np.linalg.qr(square)
    rotation *= np.sign(np.diag(upper))  # makes the decomposition unique
    return np.ascontiguousarray(rotation[:dims, :CODE_BITS], np.float32)


def _unit(vectors: F32) -> F32:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def _largest(vectors: F32) -> F32:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.asarray(np.where(largest > 0, largest, 1), np.float32)


# --- Binary codes ---

Ids = npt.NDArray[np.intp]

Mask = npt.NDArray[np.bool_]

Signs = npt.NDArray[np.uint64]

Members = npt.NDArray[np.uint32]

VisibleFilter = Callable[[Members | Ids], Mask]

SpotLookup = Callable[[Ids], Ids]
"""Sorted positions in some lists → positions among all codes."""

ROUGH_FACTOR = 2
"""Codes that the first pass keeps, for each that the second keeps."""

HEAVY_WEIGHT = 2
"""Extra weight of a differing bit if the query is far from the hyperplane, and again if it is very far."""

_WORDS = CODE_BITS // 64

_HEAVY = np.array([[0.7], [1.5]], np.float32)  # distances, relative to their mean, from which bits weigh more

_SAMPLE = 2_048

_MARGIN = 1.15  # a sample only estimates the cut

_STRIDE = 2_048  # codes compared at once: fewer are slow, more leave the CPU cache

_SPARE = 1 << 20  # codes whose buffer is kept between calls; larger ones are rare, and freed


class _Memory(threading.local):
    """Buffers per thread: allocating memory of this size costs more than the work itself."""

    def __init__(self) -> None:
        self.signs: Signs = np.empty((_STRIDE, _WORDS), np.uint64)
        self.query: Signs = np.empty((_STRIDE, _WORDS), np.uint64)
        self._counts: npt.NDArray[np.uint8] = np.empty((0, _WORDS), np.uint8)

    def counts(self, size: int) -> npt.NDArray[np.uint8]:
        if size > len(self._counts):
            counts = np.empty((2 * size, _WORDS), np.uint8)
            if size > _SPARE:
                return counts[:size]
            self._counts = counts
        return self._counts[:size]


_memory = _Memory()


class CodeLists(NamedTuple):
    """Lists of binary codes, searched as one."""

    signs: Sequence[Signs]
    whole: Signs  # the array that contains them
    filed: SpotLookup | None = None  # None: they are all codes
    members: Members | Ids | None = None  # the vector of each code; None: code i is of vector i

    def vectors_at(self, spots: Ids) -> Members | Ids:
        """The vectors of the codes at these sorted positions."""
        return self._members(spots if self.filed is None else self.filed(spots))

    def codes_at(self, spots: Ids) -> tuple[Signs, Members | Ids]:
        """The codes at these sorted positions, and their vectors."""
        places = spots if self.filed is None else self.filed(spots)
        return self.whole.take(places, axis=0), self._members(places)

    def _members(self, places: Ids) -> Members | Ids:
        return places if self.members is None else self.members.take(places)


class BinaryCode:
    __slots__ = ("_heavy", "_signs", "words")

    def __init__(self, sides: F32) -> None:
        """`sides` [256] are the query's `CoarseQuantizer.projections_of`."""
        far, flags = np.abs(sides), np.empty((1 + len(_HEAVY), len(sides)), np.bool_)
        np.greater(sides, 0, out=flags[0])
        np.greater(far, float(np.add.reduce(far) / len(far)) * _HEAVY, out=flags[1:])
        self.words = pack_bits(flags)  # the code; bits far from their threshold; very far
        self._signs, *self._heavy = self.words

    def nearest(self, pieces: CodeLists, size: int, is_visible: VisibleFilter | None) -> Ids:
        """The vectors of the `size` nearest visible codes, distinct and ascending; with ties of the last, up to twice as many, so
        that the order of codes does not matter."""
        differences = self._distances(pieces.signs)
        spots = _nearest_visible(differences, pieces, ROUGH_FACTOR * size, is_visible)
        if len(spots) <= size:
            return _unique_ids(pieces.vectors_at(spots))
        signs, ids = pieces.codes_at(spots)
        weights = self._weighted(signs, differences.take(spots).astype(np.uint16))
        last = np.partition(weights, size - 1)[size - 1]
        return _unique_ids(np.concatenate((ids[weights < last], _unique_ids(ids[weights == last])[:size])))

    def _distances(self, pieces: Sequence[Signs]) -> npt.NDArray[np.uint32]:
        """The Hamming distance of each code, in steps that stay in the CPU cache."""
        counts, differing, query, done = _memory.counts(sum(map(len, pieces))), _memory.signs, _memory.query, 0
        query[:] = self._signs
        for piece in pieces:
            for at in range(0, len(piece), _STRIDE):
                part = piece[at : at + _STRIDE]
                size = len(part)
                np.bitwise_xor(part, query[:size], out=differing[:size])
                np.bitwise_count(differing[:size], out=counts[done : done + size])
                done += size
        return _sum_words(counts)

    def _weighted(self, signs: Signs, weights: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """A differing bit weighs 1; far from its threshold 3, very far 5."""
        differing = signs ^ self._signs
        for heavy in self._heavy:
            weights += HEAVY_WEIGHT * _sum_words(np.bitwise_count(differing & heavy)).astype(np.uint16)
        return weights


def _sum_words(counts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The sum of the four counts of each code, which it overwrites. A distance of 256 becomes 0, which measuring corrects."""
    sums = counts.view(np.uint32).reshape(-1)
    sums *= np.uint32(0x0101_0101)  # the highest byte becomes the sum of the four
    sums >>= np.uint32(24)
    return sums


def _nearest_visible(
    differences: npt.NDArray[np.uint32], pieces: CodeLists, size: int, is_visible: VisibleFilter | None
) -> Ids:
    """The positions of the `size` visible codes of the smallest distance, with ties of the last.

    A sample estimates the cut, so that visibility is checked for few; it does not change the result.
    """
    cut = _first_cut(differences, pieces, size, is_visible)
    while True:
        spots = (differences <= np.uint32(cut)).nonzero()[0]
        if is_visible is not None:
            spots = spots[is_visible(pieces.vectors_at(spots))]
        if len(spots) >= size:
            found = differences.take(spots)
            kept: Ids = spots[found <= np.partition(found, size - 1)[size - 1]]
            return kept
        if cut >= CODE_BITS:
            return spots
        cut = min(CODE_BITS, cut + 4)


def _first_cut(
    differences: npt.NDArray[np.uint32], pieces: CodeLists, size: int, is_visible: VisibleFilter | None
) -> int:
    step = max(1, len(differences) // _SAMPLE)
    shown = differences[::step]
    wanted = int(_MARGIN * size / step) + 4
    if is_visible is not None:
        spots = np.arange(0, len(differences), step)
        shown = shown[is_visible(pieces.vectors_at(spots))]
    return int(np.partition(shown, wanted)[wanted]) if wanted < len(shown) else CODE_BITS


def _unique_ids(ids: Members | Ids) -> Ids:
    """Distinct ids, ascending."""
    ordered = ids.astype(np.intp)
    ordered.sort()
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
