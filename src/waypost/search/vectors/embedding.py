"""What turns texts into vectors, as the index knows it. Implementations live in `waypost.embedders`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from waypost.search.vectors.quantizer import CoarseQuantizer

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Names the model and its version. Vectors that were saved under another name are made anew."""
        ...

    @property
    def dims(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """False while it is still being loaded: questions are answered without it, and agents get their vectors later."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One unit vector for each text (zeros for a text that says nothing), the same whatever else is in the batch."""
        ...


class PartsEmbedder(Protocol):
    """What an embedder may do for questions beside `encode`."""

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        """The vector of the text as `encode` gives it, then of each of its parts: nearly as `encode` gives it, a part may be
        read with what stands around it. One pass over the text can serve them all."""
        ...


def find_parts_embedder(embedder: object) -> PartsEmbedder | None:
    """The same, where it can do that. `isinstance` would ask the protocol for its members, which takes longer than to read
    a question's words."""
    return cast(PartsEmbedder, embedder) if hasattr(embedder, "encode_parts") else None


class VectorSpace(NamedTuple):
    """An embedder and how its vectors are kept."""

    embedder: Embedder
    landmarks: CoarseQuantizer  # fixed, so that where a vector is filed depends on nothing but itself
    is_quick: bool = (
        True  # an agent's vector is made when it is first looked at; else in the background, from the store
    )
    has_examples: bool = True  # a vector for each example beside the one of the whole

    @property
    def name(self) -> str:
        return self.embedder.name
