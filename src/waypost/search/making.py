"""The vectors of agents as they are made and kept: from texts to a block. Nothing that one agent gets depends on another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from waypost.search.embedding import Space, Vectors
from waypost.search.segment import Rows
from waypost.search.vectors import Block


def vectors_of(space: Space, texts: Sequence[tuple[str, ...]]) -> list[Vectors]:
    """The vectors of each agent: the agent as a whole first (what it is and all it shows, in one), then each example. Agent by
    agent: the last digits of a product depend on all that is in it, and nobody's vectors may tell who came with it."""
    return [_with_centre(space.embedder.encode(parts), keeps_examples=space.has_examples) for parts in texts]


def _with_centre(own: Vectors, *, keeps_examples: bool) -> Vectors:
    centre = own.sum(axis=0) + own[0]  # what it says of itself counts twice
    length = float(np.linalg.norm(centre))
    if length:
        centre /= length
    return np.vstack((centre, own[1:])) if keeps_examples else centre[None]


def block_of(space: Space, made: Sequence[Vectors], rows: Rows, count: int) -> Block:
    """A block of these vectors for these rows of a segment that has `count`."""
    sizes = [len(each) for each in made]
    places = np.concatenate([np.arange(size, dtype=np.uint16) for size in sizes])
    return Block.build(np.concatenate(made), np.repeat(rows, sizes), places, count, space.landmarks)
