"""Recent texts and their vectors, in front of an embedder: the same question is asked often, and by many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from waypost import limits
from waypost.embedders.loading import LazyEmbedder
from waypost.search.embedding import Vectors

_Asked = str | tuple[str, ...]  # one text, or a text and its parts


class Remembering:
    """An embedder that keeps the vectors of questions: texts that come alone, and texts with their parts. Texts that come
    together are an agent's, and nothing that was made with others takes their place. May be used by several threads."""

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
        if len(texts) != 1:
            return self._embedder.encode(texts)
        return self._recalled(texts[0], lambda: self._embedder.encode(texts))

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        question = (text, *parts)
        if not parts or len(question) > limits.EMBEDDER_QUESTION_TEXTS:
            return self.encode(question)
        return self._recalled(question, lambda: self._embedder.encode_parts(text, parts))

    def _recalled(self, asked: _Asked, make: Callable[[], Vectors]) -> Vectors:
        with self._lock:
            if asked in self._known:
                self._known.move_to_end(asked)
                return self._known[asked].copy()
        made = make()
        self._keep(asked, made.copy())
        return made

    def _keep(self, asked: _Asked, made: Vectors) -> None:
        with self._lock:
            if asked not in self._known:
                self._held += len(made)
            self._known[asked] = made
            while self._held > self._size:
                self._held -= len(self._known.popitem(last=False)[1])
