"""Vectors for very many texts in a bearable time: made of the vectors of their words, which the real model embeds once each.

For speed only. A linear map, fitted to texts that the model did embed, carries the mean of the words to where the model puts
such a text; what it cannot explain is replaced by chance of the same size. So angles spread as the model's do and an index
works as hard; what is found by them is not what the model would find. A single text, as a question is, goes to the model itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

_WORD = re.compile(r"\w+")
_LONGEST = 32  # words of a text that count
_STEP = 2048
_STRANGE = 4096  # directions for words that the model was not asked for
_RIDGE = 0.5  # of the mean variance


class Composed:
    """As `search.embedding.Embedder` asks. `words` come by their frequency; `samples` are texts like those to come."""

    is_ready = True

    def __init__(self, encode: Encode, name: str, words: Sequence[str], samples: Sequence[str]) -> None:
        self._encode = encode
        self.name = name  # the model's own: it opens what was filled by this
        known = encode(words)
        self.dims = dims = known.shape[1]
        self._row = {word: at for at, word in enumerate(words, 1 + _STRANGE)}
        chance = np.random.default_rng(7).standard_normal((_STRANGE, dims), dtype=np.float32) / np.float32(dims**0.5)
        rarity = np.log(np.arange(2, len(words) + 2, dtype=np.float32))[:, None] / np.log(len(words) + 2)
        known = (known - known.mean(axis=0)) * rarity
        self._table: Vectors = np.vstack([np.zeros((1, dims), np.float32), chance, known]).astype(np.float32)
        self._offset = np.zeros(dims, np.float32)
        self._noise: Vectors = np.zeros((1, dims), np.float32)
        self._fit(samples)

    def _fit(self, samples: Sequence[str]) -> None:
        """Least squares from the words' mean to the model's vector; then the table itself is carried over."""
        wanted, had = self._encode(samples), self._sums(samples)
        centre = wanted.mean(axis=0)
        square = had.T @ had
        square += _RIDGE * np.trace(square) / self.dims * np.eye(self.dims, dtype=np.float32)
        carried = np.linalg.solve(square, had.T @ (wanted - centre)).astype(np.float32)
        self._noise = wanted - centre - had @ carried
        self._table, self._offset = self._table @ carried, centre

    def encode(self, texts: Sequence[str]) -> Vectors:
        if len(texts) == 1:
            return self._encode(texts)
        made = [self._made(texts[start : start + _STEP]) for start in range(0, len(texts), _STEP)]
        return np.vstack(made) if made else np.zeros((0, self.dims), np.float32)

    def _made(self, texts: Sequence[str]) -> Vectors:
        chance = self._noise[[crc32(text.encode()) % len(self._noise) for text in texts]]
        made = self._sums(texts) + self._offset + chance
        made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)
        return made

    def _sums(self, texts: Sequence[str]) -> Vectors:
        """The mean of the words of each text."""
        summed = np.zeros((len(texts), self.dims), np.float32)
        for at, text in enumerate(texts):
            words = _WORD.findall(text.lower())[:_LONGEST]
            if words:
                rows = [self._row.get(word) or 1 + crc32(word.encode()) % _STRANGE for word in words]
                np.add.reduce(self._table.take(rows, 0), 0, out=summed[at])
                summed[at] /= len(words)
        return summed
