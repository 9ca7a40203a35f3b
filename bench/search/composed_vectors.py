"""Synthetic vectors for very many texts: composed of the vectors of their words, which the model embeds once each.

For measuring speed only. A linear map, fitted to texts that the model did embed, maps the mean of the word vectors to the
model's vector; the residual is replaced by noise of the same size. Angles are then distributed like the model's, so an index
does the same work, but the results are not those of the model. Queries have to be embedded by the model itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

from bench.search.agents import agents

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

_WORD = re.compile(r"\w+")
_LONGEST = 32  # words of a text that count
_STEP = 2048
_STRANGE = 4096  # directions for words that the model was not asked for
_RIDGE = 0.5  # of the mean variance
_COMMON_WORDS = 4000
_SAMPLED = 3000
_FAR = 90_000_000  # agents that no run reaches


class Composed:
    """An `Embedder`. `words` are ordered by frequency; `samples` are texts like those that will be encoded."""

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
        """Fit the map from the mean of the words to the model's vector by least squares, and apply it to the table."""
        wanted, had = self._encode(samples), self._sums(samples)
        centre = wanted.mean(axis=0)
        square = had.T @ had
        square += _RIDGE * np.trace(square) / self.dims * np.eye(self.dims, dtype=np.float32)
        carried = np.linalg.solve(square, had.T @ (wanted - centre)).astype(np.float32)
        self._noise = wanted - centre - had @ carried
        self._table, self._offset = self._table @ carried, centre

    def encode(self, texts: Sequence[str]) -> Vectors:
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


def composed(encode: Encode, name: str, size: int) -> Composed:
    """Vectors like those that `encode` would compute for this many generated agents."""
    sampled = min(_SAMPLED, 4 * size)
    counted: Counter[str] = Counter()
    samples: list[str] = []
    for agent in agents(sampled, first=_FAR):
        texts = [f"{agent.record.name}. {agent.record.description}", *(each.text for each in agent.record.examples)]
        counted.update(word for text in texts for word in _WORD.findall(text.lower()))
        samples.append(texts[len(samples) % len(texts)])
    return Composed(encode, name, [word for word, _ in counted.most_common(min(_COMMON_WORDS, 2 * sampled))], samples)
