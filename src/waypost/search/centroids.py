"""The fixed points of one vector space, by which its vectors are filed and sketched.

Landmarks are made once per space, from generic texts, and never change. In which lists a vector stands and which signs
sketch it is therefore a function of that vector alone: no record can move another. Which model makes the vectors, and
where the landmarks are kept, is unknown here.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

SKETCH_BITS = 256
"""Signs kept per vector; four words of 64 are counted in one pass."""

SPILL = 3
"""Lists in which one vector stands. On text vectors 32 probes of three find what 24 of four do, as quickly, in less memory."""

_TURN_SEED = 20_260_101
_ROUNDS = 8
_CHUNK = 4096
_FEW = 256  # vectors whose nearness to all centres stays in the cache


class Landmarks:
    """Unit centres of the lists, the origin of the space, and the turn that spreads its dimensions over the signs."""

    __slots__ = ("_wide", "centres", "codes", "origin", "shortening", "turn")

    def __init__(self, codes: npt.NDArray[np.int8]) -> None:
        """`codes` [lists, dims] are the centres up to a positive factor each: what is kept in a file."""
        self.codes = codes
        self._wide = codes.astype(np.float32)
        self.shortening = 1 / np.maximum(np.sqrt(np.square(codes, dtype=np.int64).sum(axis=1)), 1)  # to unit length
        self.centres = _unit(self._wide)
        self.origin: F32 = self.centres.mean(axis=0)
        self.turn = _turn(codes.shape[1])

    @classmethod
    def single(cls, dims: int) -> Landmarks:
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

    def signs_of(self, vectors: F32) -> npt.NDArray[np.uint64]:
        """The sketches [n, 4]: on which side of 256 fixed planes through the origin each vector lies."""
        found = np.empty((len(vectors), SKETCH_BITS // 64), np.uint64)
        for start in range(0, len(vectors), _CHUNK):
            found[start : start + _CHUNK] = packed(self.sides_of(vectors[start : start + _CHUNK]) > 0)
        return found

    def sides_of(self, vectors: F32) -> F32:
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


def packed(sides: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Rows of 256 booleans as four words each."""
    return np.packbits(sides, axis=-1, bitorder="little").view("<u8")


def train(vectors: F32, lists: int, seed: int) -> Landmarks:
    """Spherical k-means over unit vectors of generic texts; the same arguments give the same landmarks."""
    chance = np.random.RandomState(seed)  # its stream is frozen, that of a Generator is not
    centres = vectors[chance.permutation(len(vectors))[:lists]].astype(np.float32)
    for _ in range(_ROUNDS):
        centres = _moved(vectors, centres, chance)
    return Landmarks(np.rint(centres * (127 / _largest(centres))).astype(np.int8))


def _moved(vectors: F32, centres: F32, chance: np.random.RandomState) -> F32:
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
def _turn(dims: int) -> F32:
    """Orthonormal directions [dims, 256]: the same on every machine, as stored sketches are compared with new ones."""
    side = max(dims, SKETCH_BITS)
    square = np.random.RandomState(_TURN_SEED).standard_normal((side, side))
    turn, upper = np.linalg.qr(square)
    turn *= np.sign(np.diag(upper))  # makes the decomposition unique
    return np.ascontiguousarray(turn[:dims, :SKETCH_BITS], np.float32)


def _unit(vectors: F32) -> F32:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def _largest(vectors: F32) -> F32:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.asarray(np.where(largest > 0, largest, 1), np.float32)
