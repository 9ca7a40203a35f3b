"""A cache of vectors on disk for benchmarks: a text is embedded once per model, whatever is measured with it.

The folder is outside the repository: `BENCH_CACHE`, by default `waypost-bench` among the temporary files.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from waypost.search.vectors import Embedder, Vectors, find_parts_embedder, find_word_embedder


def cache_folder() -> Path:
    folder = Path(os.environ.get("BENCH_CACHE") or Path(tempfile.gettempdir()) / "waypost-bench")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class CachedEmbedder:
    """An embedder that looks its texts up first."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._memory: dict[str, Vectors] = {}
        name = "".join(char if char.isalnum() or char in "-." else "-" for char in embedder.name)
        self._database = sqlite3.connect(
            cache_folder() / f"{name}.sqlite", isolation_level=None, timeout=60, check_same_thread=False
        )
        self._database.execute("PRAGMA synchronous=OFF")  # a lost cache is computed again
        self._database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dims(self) -> int:
        return self._embedder.dims

    @property
    def is_ready(self) -> bool:
        return True

    def encode(self, texts: Sequence[str]) -> Vectors:
        for text in dict.fromkeys(texts):
            if text not in self._memory:
                self._memory[text] = self._find(text, lambda text=text: self._embedder.encode([text]))[0]
        return np.stack([self._memory[text] for text in texts])

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        """As the embedder does it: in one pass, or each by itself."""
        own = find_parts_embedder(self._embedder)
        if own is None:
            return self.encode((text, *parts))
        return self._find("\0".join((text, *parts)), lambda: own.encode_parts(text, parts))

    def has_word(self, word: str) -> bool:
        own = find_word_embedder(self._embedder)
        return own is not None and own.has_word(word)

    def _find(self, texts: str, make: Callable[[], Vectors]) -> Vectors:
        key = blake2b(texts.encode(errors="replace"), digest_size=16).digest()
        row = self._database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        if row is not None:
            return np.frombuffer(row[0], dtype=np.float32).reshape(-1, self.dims)
        vectors = np.asarray(make(), dtype=np.float32)
        self._database.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (key, vectors.tobytes()))
        return vectors
