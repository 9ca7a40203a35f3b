"""Tags that are written like another, apart for each circle of readers: everybody, whoever is known, each subject.

Whoever asks is answered from what may be seen, and nothing else is compared with what was asked: a tag that only hidden
agents carry takes no step (THREATS V2). A tag that nobody carries any more stays; whoever asks counts its agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from waypost.model.principal import INTERNAL, PUBLIC, VISIBILITIES
from waypost.registry.lru import Lru
from waypost.search.suggestions import TagNeighbours
from waypost.search.tags import TagIndex

_SUBJECTS: Final = 64  # readers whose own private tags are remembered

Generation = Callable[[frozenset[str]], int]


class Spellings:
    def __init__(self, generation: Generation) -> None:
        self._generation = generation  # a number that changes with what an audience sees
        self._tiers = {tier: TagNeighbours() for tier in VISIBILITIES}  # private: for whoever sees everything
        self._own: Lru[str, tuple[int, TagNeighbours]] = Lru(_SUBJECTS)

    def add(self, tier: str, tags: Iterable[str]) -> None:
        self._tiers[tier].add(tags)

    def seen_by(self, audience: frozenset[str] | None, tags: TagIndex) -> list[TagNeighbours]:
        """Where an audience may look."""
        if audience is None:
            return list(self._tiers.values())
        shared = [self._tiers[tier] for tier in (PUBLIC, INTERNAL) if tier in audience]
        return [*shared, *(self._of(scope, tags) for scope in sorted(audience.difference(VISIBILITIES)))]

    def _of(self, scope: str, tags: TagIndex) -> TagNeighbours:
        """The private tags of one reader, noted when they are asked for."""
        reader = frozenset((scope,))
        generation, kept = self._generation(reader), self._own.get(scope)
        if kept is not None and kept[0] == generation:
            return kept[1]
        neighbours = TagNeighbours()
        neighbours.add({tag for ordinal in tags.select(audience=reader) for tag in tags.tags_of(ordinal)})
        self._own.put(scope, (generation, neighbours))
        return neighbours
