"""Recent texts and their vectors, in front of an embedder: the same question is asked often, and by many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from waypost import limits
from waypost.embedders.loading import LazyEmbedder
from waypost.search.embedding import Vectors

_Asked = str | tuple[str, ...]  # one text, or a text and its parts


class Remembering:
    """An embedder that keeps the vectors of texts that come few at a time. May be used by several threads."""

    def __init__(self, embedder: LazyEmbedder, size: int = limits.EMBEDDER_QUESTIONS) -> None:
        self._embedder = embedder
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[_Asked, Vectors] = OrderedDict()
        self._held = 0  # vectors

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

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        question = (text, *parts)
        if not parts or len(question) > limits.EMBEDDER_QUESTION_TEXTS:
            return self.encode(question)
        with self._lock:
            if question in self._known:
                return self._recalled(question)
        made = self._embedder.encode_parts(text, parts)
        self._keep({question: made})
        return made

    def _recalled(self, asked: _Asked) -> Vectors:
        self._known.move_to_end(asked)
        return self._known[asked]

    def _learned(self, texts: list[str]) -> dict[str, Vectors]:
        made = {text: vector.copy() for text, vector in zip(texts, self._embedder.encode(texts), strict=True)}
        self._keep(made)
        return made

    def _keep(self, made: Mapping[Any, Vectors]) -> None:
        with self._lock:
            for asked, vectors in made.items():
                if asked not in self._known:
                    self._held += vectors.size // self.dims
                self._known[asked] = vectors
            while self._held > self._size:
                self._held -= self._known.popitem(last=False)[1].size // self.dims
