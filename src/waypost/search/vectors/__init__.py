"""Vectors: embedders, quantization and nearest-neighbour search. Embedders are implemented in `waypost.embedders`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from waypost.search.vectors.quantizer import CoarseQuantizer

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """The model and its version. Vectors saved under another name are recomputed."""
        ...

    @property
    def dims(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """False while it is being loaded: queries do without it, and agents get their vectors later."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One unit vector per text (zeros for an empty text), independent of the rest of the batch."""
        ...


class PartsEmbedder(Protocol):
    """An optional ability of an embedder, for queries; the vectors may be cached."""

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        """The vector of the text as by `encode`, then of each of its parts: nearly as by `encode`, but a part may be encoded in
        its context, so that one pass over the text is enough."""
        ...


def find_parts_embedder(embedder: object) -> PartsEmbedder | None:
    """The embedder itself, if it has that ability. `isinstance` with a protocol would take longer than parsing a query."""
    return cast(PartsEmbedder, embedder) if hasattr(embedder, "encode_parts") else None


class WordEmbedder(Protocol):
    """An optional ability of an embedder, to tell unknown words from misspelled ones."""

    def has_word(self, word: str) -> bool:
        """Whether a folded word is one token of its vocabulary: then it is no typo."""
        ...


def find_word_embedder(embedder: object) -> WordEmbedder | None:
    """The embedder itself, if it has that ability."""
    return cast(WordEmbedder, embedder) if hasattr(embedder, "has_word") else None


class SpaceRole(StrEnum):
    """What the vectors of a space say, which decides how much they count."""

    STATIC = "static"  # means of word vectors: English, by far the fastest
    MULTILINGUAL = "multilingual"  # a sentence model for queries and agents in different languages
    ENGLISH = "english"  # a sentence model for English alone


class VectorSpace(NamedTuple):
    """An embedder and how its vectors are stored."""

    embedder: Embedder
    quantizer: CoarseQuantizer  # fixed, so that the lists of a vector depend on nothing but itself
    is_quick: bool = True  # vectors are made when an agent is indexed; else in the background
    examples_from: int | None = (
        1  # agents with so many examples have a vector for each besides the centre; None: no agent
    )
    role: SpaceRole = SpaceRole.MULTILINGUAL
    is_centred: bool = (
        True  # the first vector is the centre of description and examples; else that of the description alone
    )

    @property
    def name(self) -> str:
        return self.embedder.name

    def has_vectors_of(self, examples: int) -> bool:
        """Whether each example of an agent with so many has a vector."""
        return self.examples_from is not None and examples >= self.examples_from
