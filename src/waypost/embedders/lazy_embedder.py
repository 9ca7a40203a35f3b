"""A model that is loaded once: in the background when told to, else by whoever needs it first. Others wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import Unavailable, WaypostError
from waypost.search.vectors.embedding import Vectors, find_parts_embedder

log = logging.getLogger("waypost.embedders")

Encode = Callable[[Sequence[str]], Vectors]


class ModelLoader:
    """What `load` gives by name; one model may serve several spaces."""

    def __init__(self, load: Callable[[], Mapping[str, Encode]]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: Mapping[str, Encode] | None = None
        self._failure: WaypostError | None = None

    @property
    def is_ready(self) -> bool:
        return self._loaded is not None

    @property
    def failure(self) -> str | None:
        """Why there will be no vectors."""
        return None if self._failure is None else str(self._failure)

    def start(self) -> None:
        """Load in the background. An end of the process does not wait for it."""
        threading.Thread(target=self._try, name="waypost-embedder", daemon=True).start()

    def get(self) -> Mapping[str, Encode]:
        """Raises Unavailable when the model could not be loaded; it is not tried again."""
        return self._loaded or self._try() or self._refuse()

    def _try(self) -> Mapping[str, Encode] | None:
        with self._lock:
            if self._loaded is None and self._failure is None:
                try:
                    self._loaded = self._load()
                except WaypostError as error:
                    self._failure = error
                    log.warning("answers come from words and tags alone: %s", error)
            return self._loaded

    def _refuse(self) -> Mapping[str, Encode]:
        raise Unavailable(f"There are no vectors: {self.failure}") from self._failure


class LazyEmbedder:
    """An embedder whose name and size are known before it is loaded. `encode` waits; `is_ready` says whether it would."""

    def __init__(self, name: str, dims: int, loading: ModelLoader, part: str) -> None:
        self.name = name
        self.dims = dims
        self._loading = loading
        self._part = part

    @property
    def is_ready(self) -> bool:
        return self._loading.is_ready

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self._loading.get()[self._part](texts)

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        encode = self._loading.get()[self._part]
        reader = find_parts_embedder(encode)
        return encode((text, *parts)) if reader is None else reader.encode_parts(text, parts)


# ---- Recent texts and their vectors, in front of an embedder: the same question is asked often, and by many.

_CacheKey = str | tuple[str, ...]  # one text, or a text and its parts


class CachingEmbedder:
    """An embedder that keeps the vectors of questions: texts that come alone, and texts with their parts. Texts that come
    together are an agent's, and nothing that was made with others takes their place. May be used by several threads."""

    def __init__(self, embedder: LazyEmbedder, size: int = limits.EMBEDDER_VECTOR_CACHE) -> None:
        """`size` limits the number of vectors."""
        self._embedder = embedder
        self._lock = threading.Lock()
        self._cache: LruCache[_CacheKey, Vectors] = LruCache(size, len)

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
        return len(self._cache)

    def encode(self, texts: Sequence[str]) -> Vectors:
        if len(texts) != 1:
            return self._embedder.encode(texts)
        return self._recalled(texts[0], lambda: self._embedder.encode(texts))

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        question = (text, *parts)
        if not parts or len(question) > limits.EMBEDDER_CACHED_BATCH:
            return self.encode(question)
        return self._recalled(question, lambda: self._embedder.encode_parts(text, parts))

    def _recalled(self, key: _CacheKey, make: Callable[[], Vectors]) -> Vectors:
        with self._lock:
            cached = self._cache.get(key)
        if cached is not None:
            return cached.copy()
        made = make()
        with self._lock:
            self._cache.put(key, made.copy())
        return made
