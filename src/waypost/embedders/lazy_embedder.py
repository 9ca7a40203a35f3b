"""Lazily loaded embedders, with a cache for the vectors of queries.

A model is loaded once: in the background by `start`, else by its first user, while others wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import Unavailable, WaypostError
from waypost.search.vectors import Vectors, find_parts_embedder, find_word_embedder

log = logging.getLogger("waypost.embedders")

Encode = Callable[[Sequence[str]], Vectors]


def is_ending() -> bool:
    """Whether the process waits for its last threads."""
    return not threading.main_thread().is_alive()


def stop_at_exit() -> None:
    """Called between the steps of a load, so that the end of the process need not wait for all of them. Raises Unavailable."""
    if is_ending():
        raise Unavailable("The process ends.")


class ModelLoader:
    """Loads encoders by name, once; one model may serve several spaces."""

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
        """The error of the load, if it failed."""
        return None if self._failure is None else str(self._failure)

    def start(self) -> None:
        """Load in a thread. The process ends after it: onnxruntime aborts if the interpreter ends during one of its calls."""
        threading.Thread(target=self._try, name="waypost-embedder", daemon=False).start()

    def get(self) -> Mapping[str, Encode]:
        """Raises Unavailable if the model could not be loaded; there is no second attempt."""
        return self._loaded or self._try() or self._refuse()

    def _try(self) -> Mapping[str, Encode] | None:
        with self._lock:
            if self._loaded is None and self._failure is None:
                try:
                    self._loaded = self._load()
                except WaypostError as error:
                    self._failure = error
                    if not is_ending():
                        log.warning("results are by words and tags only: %s", error)
            return self._loaded

    def _refuse(self) -> Mapping[str, Encode]:
        raise Unavailable(f"The sentence model could not be loaded: {self.failure}") from self._failure


class LazyEmbedder:
    """An embedder with a known name and size before it is loaded. `encode` waits for the load; `is_ready` says whether it would.
    Caches the vectors of queries (`encode_parts`), but not those of agents (`encode`). Thread-safe."""

    def __init__(
        self, name: str, dims: int, loader: ModelLoader, part: str, cached: int = limits.EMBEDDER_VECTOR_CACHE
    ) -> None:
        """`cached` limits the number of cached vectors."""
        self.name = name
        self.dims = dims
        self._loader = loader
        self._part = part
        self._lock = threading.Lock()
        self._cache: LruCache[tuple[str, ...], Vectors] = LruCache(cached, len)  # by a text and its parts

    @property
    def is_ready(self) -> bool:
        return self._loader.is_ready

    def __len__(self) -> int:
        return len(self._cache)

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self._loader.get()[self._part](texts)

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        batch = (text, *parts)
        if len(batch) > limits.EMBEDDER_CACHED_BATCH:
            return self.encode(batch)
        with self._lock:
            cached = self._cache.get(batch)
        if cached is not None:
            return cached.copy()
        reader = find_parts_embedder(self._loader.get()[self._part]) if parts else None
        vectors = self.encode(batch) if reader is None else reader.encode_parts(text, parts)
        with self._lock:
            self._cache.put(batch, vectors.copy())
        return vectors

    def has_word(self, word: str) -> bool:
        encode = find_word_embedder(self._loader.get()[self._part])
        return encode is not None and encode.has_word(word)
