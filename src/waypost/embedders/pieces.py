"""From texts to vectors by way of pieces: cut the text, ask the model, give zeros for a text that says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np

from waypost import limits
from waypost.embedders import fitted
from waypost.embedders.copies import kept
from waypost.embedders.loading import Encode
from waypost.embedders.package import Package, load_model
from waypost.embedders.sentencepiece import Tokenizer
from waypost.embedders.static import Means, condense
from waypost.embedders.use import Network
from waypost.search.embedding import Vectors

_Model = Callable[[Sequence[Sequence[int]]], Vectors]
_FIRST: Final = ("what can you do for me?", "find an agent")  # so that no question is the first to touch the weights
_loaded: dict[Package, dict[str, Encode]] = {}


class PieceEncoder:
    """As `Embedder.encode` asks, of any model that takes pieces."""

    def __init__(self, tokenizer: Tokenizer, model: _Model, dims: int) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._dims: Final = dims

    def __call__(self, texts: Sequence[str]) -> Vectors:
        pieces = [self._tokenizer.encode(text, limits.EMBEDDER_PIECES) for text in texts]
        if all(pieces):
            return self._model(pieces)
        out = np.zeros((len(texts), self._dims), np.float32)
        said = [at for at, found in enumerate(pieces) if found]
        if said:
            out[said] = self._model([pieces[at] for at in said])
        return out


def load_encoders(package: Package, copies: Path | None) -> dict[str, Encode]:
    """Both spaces of the package's one model; services in one process share it. Raises Unavailable."""
    if package not in _loaded:
        _loaded[package] = _load(package, copies)
    return _loaded[package]


def _load(package: Package, copies: Path | None) -> dict[str, Encode]:
    model = load_model(package, copies)
    tokenizer = Tokenizer(model.vocabulary)
    projection = fitted.projection(fitted.STATIC)
    version = f"{package.print}-{crc32(projection.tobytes()):08x}"
    means = Means(kept(copies, "means", version, lambda: condense(model, projection)))
    network = Network(model, fitted.projection(fitted.NETWORK))
    encoders: dict[str, Encode] = {
        fitted.STATIC: PieceEncoder(tokenizer, means.encode, fitted.DIMS),
        fitted.NETWORK: PieceEncoder(tokenizer, network.encode, fitted.DIMS),
    }
    for encode in encoders.values():
        encode(_FIRST)
    return encoders
