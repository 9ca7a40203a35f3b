"""Quantization of a vector space: binary codes for Hamming distances, and the lists of an inverted file (IVF).

The binary code of a vector is the side of each of 256 fixed hyperplanes on which it is. The centres of the lists are trained once
per space from generic texts, and never change. So code and lists of a vector depend only on that vector.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint64]

CODE_BITS = 256
"""Bits of a binary code: four words of 64."""

SPILL = 3
"""Lists per vector. On text vectors, 32 probes with three lists find what 24 with four do, as fast, with less memory."""

_ROTATION_SEED = 20_260_101
_CHUNK = 4096
_BATCH = 256  # vectors whose similarities to all centres stay in the CPU cache


class CoarseQuantizer:
    """Unit centres of the lists."""

    __slots__ = ("centres", "codes")

    def __init__(self, codes: npt.NDArray[np.int8]) -> None:
        """`codes` [lists, dims] are the centres, each up to a positive factor, as stored in a file."""
        self.codes = codes
        self.centres = _unit(codes.astype(np.float32))

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
        """The lists [n, spill] of the vectors, closest first; ties by number."""
        spill = min(SPILL, self.lists)
        found = np.zeros((len(vectors), spill), np.uint16)
        for start in range(0, len(vectors) if self.lists > 1 else 0, _BATCH):
            scores = vectors[start : start + _BATCH] @ self.centres.T
            for place in range(spill):
                best = scores.argmax(axis=1)
                found[start : start + _BATCH, place] = best
                scores[np.arange(len(scores)), best] = -np.inf
        return found

    def closest(self, query: F32, probes: int) -> list[int]:
        """The `probes` closest lists; ties by number."""
        found: list[int] = np.argsort(-(self.centres @ query), kind="stable")[:probes].tolist()
        return found


def binary_codes(vectors: F32) -> Codes:
    """The binary codes [n, 4] of vectors [n, dims]."""
    rotation, found = _rotation(vectors.shape[1]), np.empty((len(vectors), CODE_BITS // 64), np.uint64)
    for start in range(0, len(vectors), _CHUNK):
        sides = vectors[start : start + _CHUNK] @ rotation > 0
        found[start : start + _CHUNK] = np.packbits(sides, axis=-1, bitorder="little").view("<u8")
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
