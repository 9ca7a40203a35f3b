"""Vectors for very many texts: each text gets the model's vector of another generated text, moved by noise.

For measuring speed only. The model takes milliseconds for a text, which are hours for a million agents. Lists, angles and codes
are distributed like the model's, so an index does the same work, but the results are not those of the model. Queries have to be
embedded by the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

from bench.search.agents import agents

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

_LENT = 3000  # texts that the model does embed
_NOISES = 4093  # a prime, so that a text's vector and its noise are independent
_NOISE = 0.6  # its length: about as far from each other are texts of one subject
_FAR = 90_000_000  # agents that no run reaches


class Borrowed:
    """An `Embedder`: deterministic, and independent of the rest of a batch."""

    is_ready = True

    def __init__(self, encode: Encode, name: str, texts: Sequence[str]) -> None:
        """`texts` are like those that will be encoded."""
        self.name = name  # the model's own: it opens what was filled by this
        self._lent = encode(texts)
        self.dims = self._lent.shape[1]
        noise = np.random.default_rng(7).standard_normal((_NOISES, self.dims), dtype=np.float32)
        self._noise: Vectors = noise * (_NOISE / np.linalg.norm(noise, axis=1, keepdims=True))

    def encode(self, texts: Sequence[str]) -> Vectors:
        numbers = np.array([crc32(text.encode()) for text in texts], np.int64)
        made: Vectors = self._lent[numbers % len(self._lent)] + self._noise[numbers % _NOISES]
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made


def borrow_vectors(encode: Encode, name: str, size: int) -> Borrowed:
    """Vectors like those that `encode` would compute for this many generated agents."""
    lent = []
    for number, agent in enumerate(agents(min(_LENT, 4 * size), first=_FAR)):
        texts = [f"{agent.record.name}. {agent.record.description}", *(each.text for each in agent.record.examples)]
        lent.append(texts[number % len(texts)])
    return Borrowed(encode, name, lent)
