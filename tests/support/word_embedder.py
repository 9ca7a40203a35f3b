"""A small deterministic embedder: each word has its own direction, synonyms share one.

So a test knows which texts are near: those that share words or synonyms.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b

import numpy as np

from waypost.search.vectors import SpaceRole, Vectors, VectorSpace
from waypost.search.vectors.quantizer import CoarseQuantizer

DIMS = 64
_WORD = re.compile(r"\w+")
_SAME = {"regen": "rain", "lluvia": "rain", "rechnung": "invoice", "factura": "invoice", "musik": "music"}


class BagOfWords:
    """Ready from the start by default. `during` is called while texts are encoded."""

    def __init__(self, name: str = "bag-1", *, is_ready: bool = True) -> None:
        self.name = name
        self.dims = DIMS
        self.is_ready = is_ready
        self.encoded: list[str] = []
        self.during: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> Vectors:
        assert self.is_ready
        with self._lock:
            self.encoded += texts
            during, self.during = self.during, None
        if during is not None:
            during()
        return np.array([_vector(text) for text in texts], dtype=np.float32).reshape(len(texts), DIMS)


def _vector(text: str) -> Vectors:
    total = np.zeros(DIMS, dtype=np.float64)
    for word in _WORD.findall(text.lower()):
        total += _direction(_SAME.get(word, word))
    length = float(np.linalg.norm(total))
    return (total / length if length else total).astype(np.float32)


@cache
def _direction(word: str) -> Vectors:
    seed = int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "little")
    return np.random.RandomState(seed).standard_normal(DIMS).astype(np.float32)


def slow_space(embedder: BagOfWords) -> VectorSpace:
    """Vectors of the text and of each example, computed in the background."""
    return VectorSpace(embedder, CoarseQuantizer.single(DIMS), is_quick=False)


def quick_space(embedder: BagOfWords) -> VectorSpace:
    """One vector of the text, computed when an agent is first used."""
    return VectorSpace(embedder, CoarseQuantizer.single(DIMS), is_quick=True, examples_from=None, role=SpaceRole.STATIC)
