"""Recent texts and their vectors, in front of an embedder: the same question is asked often, and by many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from waypost import limits
from waypost.embedders.loading import LazyEmbedder
from waypost.search.embedding import Vectors


class Remembering:
    """An embedder that keeps the vectors of texts that come few at a time. May be used by several threads."""

    def __init__(self, embedder: LazyEmbedder, size: int = limits.EMBEDDER_QUESTIONS) -> None:
        self._embedder = embedder
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Vectors] = OrderedDict()

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dims(self) -> int:
        return self._embedder.dims

    @property
    def is_ready(self) -> bool:
        return self._embedder.is_ready

    def __len__(self) -> int:
        return len(self._known)

    def encode(self, texts: Sequence[str]) -> Vectors:
        if not texts or len(texts) > limits.EMBEDDER_QUESTION_TEXTS:
            return self._embedder.encode(texts)
        with self._lock:
            known = {text: self._recalled(text) for text in texts if text in self._known}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(self._learned(new))
        return np.stack([known[text] for text in texts])

    def _recalled(self, text: str) -> Vectors:
        self._known.move_to_end(text)
        return self._known[text]

    def _learned(self, texts: list[str]) -> dict[str, Vectors]:
        made = {text: vector.copy() for text, vector in zip(texts, self._embedder.encode(texts), strict=True)}
        with self._lock:
            self._known.update(made)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return made
