"""From texts to vectors by way of pieces: cut the text, ask the model, give zeros for a text that says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

import numpy as np

from waypost import limits
from waypost.embedders import fitted, whole
from waypost.embedders.copies import kept
from waypost.embedders.loading import Encode
from waypost.embedders.package import Model, Package, load_model, load_tokenizer
from waypost.embedders.static import Means, condense
from waypost.embedders.tokenizer import Tokenizer
from waypost.embedders.use import Network
from waypost.search.embedding import Vectors

_Model = Callable[[Sequence[Sequence[int]]], Vectors]
_Runs = Callable[[Sequence[int], Sequence[tuple[int, int]]], Vectors]
_FIRST: Final = ("what can you do for me?", "find an agent")  # so that no question is the first to touch the weights
_loaded: dict[Package, dict[str, Encode]] = {}


class Cutter(Protocol):
    def encode(self, text: str, most: int) -> list[int]:
        """The ids of the first `most` pieces. The list is cached: do not change it."""
        ...


class _Cuts:
    """The pieces of the last texts: each is asked for by both spaces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode = lru_cache(maxsize=limits.EMBEDDER_CUTS)(tokenizer.encode)


class PieceEncoder:
    """As `Embedder.encode` asks, of any model that takes pieces."""

    def __init__(self, tokenizer: Cutter, model: _Model, dims: int, runs: _Runs | None = None) -> None:
        """`runs` gives the vectors of a list of pieces and of some runs of it; None: parts are texts of their own."""
        self._tokenizer = tokenizer
        self._model = model
        self._runs = runs
        self._dims: Final = dims

    def __call__(self, texts: Sequence[str]) -> Vectors:
        pieces = [self._cut(text) for text in texts]
        if all(pieces):
            return self._model(pieces)
        out = np.zeros((len(texts), self._dims), np.float32)
        said = [at for at, found in enumerate(pieces) if found]
        if said:
            out[said] = self._model([pieces[at] for at in said])
        return out

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        """As `PartsEmbedder` asks."""
        if self._runs is None:
            return self((text, *parts))
        pieces = self._cut(text)
        found = [_run_in(self._cut(part), pieces) for part in parts]
        runs = [run for run in found if run is not None]
        return self._runs(pieces, runs) if len(runs) == len(parts) and pieces else self((text, *parts))

    def _cut(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, limits.EMBEDDER_PIECES)


def _run_in(part: Sequence[int], pieces: Sequence[int]) -> tuple[int, int] | None:
    """Where a part stands in the whole, but perhaps for its first or last piece, which may be cut otherwise beside a stop."""
    most = limits.EMBEDDER_PIECES - 2
    for some in (part, part[:-1], part[1:], part[1:-1]):
        if (found := _run_of(some, pieces, most)) is not None:
            return found
    return None


def _run_of(part: Sequence[int], pieces: Sequence[int], most: int) -> tuple[int, int] | None:
    """Where a part stands in the first `most` of the whole (from, to); None: nowhere."""
    size = len(part)
    last = min(len(pieces), most) - size
    for start in range(last + 1 if size else 0):
        if pieces[start] == part[0] and pieces[start : start + size] == part:
            return start, start + size
    return None


def load_encoders(package: Package, copies: Path | None) -> dict[str, Encode]:
    """Both spaces of the package's one model; services in one process share it. Raises Unavailable."""
    if package not in _loaded:
        _loaded[package] = _load(package, copies)
    return _loaded[package]


def _load(package: Package, copies: Path | None) -> dict[str, Encode]:
    model = load_model(package, copies)
    tokenizer = _Cuts(load_tokenizer(package))
    means, network = _means(package, copies, model), _network(package, copies, model)
    encoders: dict[str, Encode] = {
        fitted.STATIC: PieceEncoder(tokenizer, means.encode, fitted.DIMS, means.encode_runs),
        fitted.NETWORK: PieceEncoder(tokenizer, network.encode, fitted.DIMS, network.encode_runs),
    }
    for encode in encoders.values():
        encode(_FIRST)
    return encoders


def _means(package: Package, copies: Path | None, model: Model) -> Means:
    projection = fitted.projection(fitted.STATIC)
    version = f"{package.print}-{crc32(projection.tobytes()):08x}"
    return Means(kept(copies, "means", version, lambda: condense(model, projection)))


def _network(package: Package, copies: Path | None, model: Model) -> Network:
    projection = fitted.projection(fitted.NETWORK)
    version = f"{package.print}-{whole.VERSION}-{crc32(projection.tobytes()):08x}"
    return Network(model, projection, kept(copies, "network", version, lambda: whole.layers_of(model, projection)))
