"""Vectors for very many texts in a bearable time: a text is the mean of its words, which the real model embeds once each.

For speed only. Lengths, angles and their spread are like the model's, so that an index works as hard; what is found by them
is not what the model would find. A single text, as a question is, goes to the real model and costs what it costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

_WORD = re.compile(r"\w+")
_WORDS = 50_000  # that are embedded by the model; any further word gets a direction of its own
_STEP = 2048
_STRANGE = 4096  # directions for words beyond those


class Composed:
    """As `search.embedding.Embedder` asks."""

    def __init__(self, encode: Encode, dims: int, words: Sequence[str] = ()) -> None:
        self._encode = encode
        self.name = f"composed-{dims}"
        self.dims = dims
        known = list(dict.fromkeys(words))[:_WORDS]
        strange = np.random.default_rng(7).standard_normal((_STRANGE, dims), dtype=np.float32)
        strange /= np.linalg.norm(strange, axis=1, keepdims=True)
        self._table = np.vstack([strange, encode(known)]) if known else strange
        self._row = {word: at for at, word in enumerate(known, _STRANGE)}

    def encode(self, texts: Sequence[str]) -> Vectors:
        if len(texts) == 1:
            return self._encode(texts)
        made = [self._means(texts[start : start + _STEP]) for start in range(0, len(texts), _STEP)]
        return np.vstack(made) if made else np.zeros((0, self.dims), np.float32)

    def _means(self, texts: Sequence[str]) -> Vectors:
        rows: list[int] = []
        starts: list[int] = []
        for text in texts:
            starts.append(len(rows))
            words = _WORD.findall(text.lower()) or [""]
            rows += [self._row.get(word) or hash(word) % _STRANGE for word in words]
        summed: Vectors = np.add.reduceat(self._table[rows], starts, axis=0)
        summed /= np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-9)
        return summed
