"""The fixed points of one vector space, by which its vectors are filed and sketched.

Landmarks are made once per space, from generic texts, and never change. In which lists a vector stands and which signs
sketch it is therefore a function of that vector alone: no record can move another. Which model makes the vectors, and
where the landmarks are kept, is unknown here.
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

"""Signs kept per vector; four words of 64 are counted in one pass."""

SPILL = 3

"""Lists in which one vector stands. On text vectors 32 probes of three find what 24 of four do, as quickly, in less memory."""

_ROTATION_SEED = 20_260_101

_ROUNDS = 8

_CHUNK = 4096

_FEW = 256  # vectors whose nearness to all centres stays in the cache


class CoarseQuantizer:
    """Unit centres of the lists, the origin of the space, and the turn that spreads its dimensions over the signs."""

    __slots__ = ("_wide", "centres", "codes", "origin", "shortening", "turn")

    def __init__(self, codes: npt.NDArray[np.int8]) -> None:
        """`codes` [lists, dims] are the centres up to a positive factor each: what is kept in a file."""
        self.codes = codes
        self._wide = codes.astype(np.float32)
        self.shortening = 1 / np.maximum(np.sqrt(np.square(codes, dtype=np.int64).sum(axis=1)), 1)  # to unit length
        self.centres = _unit(self._wide)
        self.origin: F32 = self.centres.mean(axis=0)
        self.turn = _rotation(codes.shape[1])

    @classmethod
    def single(cls, dims: int) -> CoarseQuantizer:
        """One list for a space of which nothing is known: every vector is looked at."""
        return cls(np.zeros((1, dims), np.int8))

    @property
    def lists(self) -> int:
        return len(self.centres)

    @property
    def dims(self) -> int:
        return int(self.centres.shape[1])

    def lists_of(self, vectors: F32) -> npt.NDArray[np.uint16]:
        """The lists [n, spill] in which the vectors stand, closest first."""
        spill = min(SPILL, self.lists)
        found = np.zeros((len(vectors), spill), np.uint16)
        for start in range(0, len(vectors) if self.lists > 1 else 0, _FEW):
            found[start : start + _FEW] = _highest(vectors[start : start + _FEW] @ self.centres.T, spill)
        return found

    def binary_codes_of(self, vectors: F32) -> npt.NDArray[np.uint64]:
        """The sketches [n, 4]: on which side of 256 fixed planes through the origin each vector lies."""
        found = np.empty((len(vectors), CODE_BITS // 64), np.uint64)
        for start in range(0, len(vectors), _CHUNK):
            found[start : start + _CHUNK] = pack_bits(self.projections_of(vectors[start : start + _CHUNK]) > 0)
        return found

    def projections_of(self, vectors: F32) -> F32:
        """How far [n, 256] the vectors lie on either side of the planes."""
        return np.asarray((vectors - self.origin) @ self.turn)

    def closest(self, query: F32, probes: int) -> npt.NDArray[np.intp]:
        """The `probes` lists closest to the query, ascending; of equally close ones the first. For a query on a grid of whole
        numbers the products are whole numbers too, and add up to the same in any order."""
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
    """Spherical k-means over unit vectors of generic texts; the same arguments give the same landmarks."""
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
    moved = vectors[chance.randint(len(vectors), size=len(centres))].astype(np.float32)  # an empty list starts anew
    moved[filled] = sums
    return _unit(moved)


def _highest(scores: F32, count: int) -> npt.NDArray[np.intp]:
    """The columns of the highest scores, highest first; of equal ones the first column."""
    found = np.empty((len(scores), count), np.intp)
    rows = np.arange(len(scores))
    for place in range(count):
        found[:, place] = scores.argmax(axis=1)
        scores[rows, found[:, place]] = -np.inf
    return found


@lru_cache(maxsize=8)
def _rotation(dims: int) -> F32:
    """Orthonormal directions [dims, 256]: the same on every machine, as stored sketches are compared with new ones."""
    side = max(dims, CODE_BITS)
    square = np.random.RandomState(_ROTATION_SEED).standard_normal((side, side))
    turn, upper = np.linalg.qr(square)
    turn *= np.sign(np.diag(upper))  # makes the decomposition unique
    return np.ascontiguousarray(turn[:dims, :CODE_BITS], np.float32)


def _unit(vectors: F32) -> F32:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def _largest(vectors: F32) -> F32:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.asarray(np.where(largest > 0, largest, 1), np.float32)


# ---- The sketch of a query, held against the sketches of many vectors: which of them are worth measuring.
#
# Two looks. The first counts the signs that differ, over all. The second, over the few thousand that differ least, weighs
# each sign by how far the query lies from its plane: a sign that the query itself hardly has says little. A vector that
# stands in several lists has a sketch in each; it is taken for one only at the end, where few are left.

Ids = npt.NDArray[np.intp]

Mask = npt.NDArray[np.bool_]

Signs = npt.NDArray[np.uint64]

Members = npt.NDArray[np.uint32]

VisibleFilter = Callable[[Members | Ids], Mask]

SpotLookup = Callable[[Ids], Ids]

"""Where the spots of some pieces, which come in order, are among all sketches."""

ROUGH_FACTOR = 2

"""Sketches that the first look leaves, for each that the second keeps."""

HEAVY_WEIGHT = 2

"""What a sign that differs weighs more when the query has it clearly, and again when it has it very clearly."""

_WORDS = CODE_BITS // 64

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


class CodeLists(NamedTuple):
    """Sketches that are looked through as if they stood one behind the other."""

    signs: Sequence[Signs]
    whole: Signs  # what they are pieces of
    filed: SpotLookup | None = None  # None: they are the whole
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


class BinaryCode:
    __slots__ = ("_heavy", "_signs", "words")

    def __init__(self, sides: F32) -> None:
        """`sides` [256] as `Landmarks.sides_of` says of the query."""
        far, flags = np.abs(sides), np.empty((1 + len(_HEAVY), len(sides)), np.bool_)
        np.greater(sides, 0, out=flags[0])
        np.greater(far, float(np.add.reduce(far) / len(far)) * _HEAVY, out=flags[1:])
        self.words = pack_bits(flags)  # the signs; those that the query has clearly; very clearly
        self._signs, *self._heavy = self.words

    def nearest(self, pieces: CodeLists, size: int, seen: VisibleFilter | None) -> Ids:
        """The vectors of the `size` sketches that lie nearest and are seen, each once, ascending; with those that lie as near
        as the last, up to twice as many. So the order in which sketches stand does not show."""
        differences = self._compared(pieces.signs)
        spots = _least_seen(differences, pieces, ROUGH_FACTOR * size, seen)
        if len(spots) <= size:
            return _unique_ids(pieces.standing(spots))
        signs, ids = pieces.found(spots)
        weights = self._weighed(signs, differences.take(spots).astype(np.uint16))
        last = np.partition(weights, size - 1)[size - 1]
        return _unique_ids(np.concatenate((ids[weights < last], _unique_ids(ids[weights == last])[:size])))

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
        return _sum_words(counts)

    def _weighed(self, signs: Signs, weights: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """A sign that differs weighs 1; one that the query has clearly 3, very clearly 5."""
        differing = signs ^ self._signs
        for heavy in self._heavy:
            weights += HEAVY_WEIGHT * _sum_words(np.bitwise_count(differing & heavy)).astype(np.uint16)
        return weights


def _sum_words(counts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """How many of the 256 signs are set, out of four counts, which it overwrites. All of them count as none, which measuring
    corrects."""
    sums = counts.view(np.uint32).reshape(-1)
    sums *= np.uint32(0x0101_0101)  # the highest byte becomes the sum of the four
    sums >>= np.uint32(24)
    return sums


def _least_seen(differences: npt.NDArray[np.uint32], pieces: CodeLists, size: int, seen: VisibleFilter | None) -> Ids:
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
        if cut >= CODE_BITS:
            return spots
        cut = min(CODE_BITS, cut + 4)


def _first_cut(differences: npt.NDArray[np.uint32], pieces: CodeLists, size: int, seen: VisibleFilter | None) -> int:
    step = max(1, len(differences) // _SAMPLE)
    shown = differences[::step]
    wanted = int(_MARGIN * size / step) + 4
    if seen is not None:
        spots = np.arange(0, len(differences), step)
        shown = shown[seen(pieces.standing(spots))]
    return int(np.partition(shown, wanted)[wanted]) if wanted < len(shown) else CODE_BITS


def _unique_ids(ids: Members | Ids) -> Ids:
    """Ascending."""
    ordered = ids.astype(np.intp)
    ordered.sort()
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
