"""Names of verified agents, by what they look like: whose name could another agent be taken for?

Only public agents count, so that nobody learns of a hidden one by trying names. Whether two names look alike is decided by
`search.visible.skeleton`; what follows from it (a mark, a lower place) is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from waypost import limits
from waypost.cache import LruCache
from waypost.model.principal import INTERNAL, PUBLIC, VISIBILITIES
from waypost.model.registration import CatalogEntry
from waypost.search.index.tag_index import TagIndex, TagSuggester
from waypost.search.text.sanitize import skeleton

_SHORT = 3  # a name of so few letters looks like many others

_looks = lru_cache(maxsize=limits.NAME_SKELETON_CACHE)(skeleton)


class ConfusableNames:
    def __init__(self) -> None:
        # looks → owner → id → name. By owner: a thousand agents of one owner under one name are one step to look past.
        self._names: dict[str, dict[str, dict[str, str]]] = {}

    def put(self, entry: CatalogEntry) -> None:
        if _counts(entry):
            owners = self._names.setdefault(_looks(entry.name), {})
            owners.setdefault(entry.owner, {})[entry.id] = entry.name

    def remove(self, entry: CatalogEntry) -> None:
        if not _counts(entry):
            return
        looks = _looks(entry.name)
        owners = self._names.get(looks, {})
        held = owners.get(entry.owner, {})
        held.pop(entry.id, None)
        if not held:
            owners.pop(entry.owner, None)
        if not owners:
            self._names.pop(looks, None)

    def find(self, name: str, owner: str) -> str | None:
        """The name of a verified agent of somebody else that this name could be taken for. Equal names are the worst."""
        if not self._names:
            return None
        looks = _looks(name)
        if len(looks) <= _SHORT:
            return None
        for other, shown in self._names.get(looks, {}).items():
            if other != owner:
                return next(iter(shown.values()))
        return None


def _counts(entry: CatalogEntry) -> bool:
    return bool(entry.facts) and entry.visibility == PUBLIC and entry.trust == "verified"


# ---- Tags that are written like another, apart for each circle of readers: everybody, whoever is known, each subject.
#
# Whoever asks is answered from what may be seen, and nothing else is compared with what was asked: a tag that only hidden
# agents carry takes no step (THREATS V2). A tag that nobody carries any more stays; whoever asks counts its agents.

_SUBJECTS: Final = 64  # readers whose own private tags are remembered

Generation = Callable[[frozenset[str]], int]


class TagSuggestions:
    def __init__(self, generation: Generation) -> None:
        self._generation = generation  # a number that changes with what an audience sees
        self._tiers = {tier: TagSuggester() for tier in VISIBILITIES}  # private: for whoever sees everything
        self._own: LruCache[str, tuple[int, TagSuggester]] = LruCache(_SUBJECTS)

    def add(self, tier: str, tags: Iterable[str]) -> None:
        self._tiers[tier].add(tags)

    def seen_by(self, audience: frozenset[str] | None, tags: TagIndex) -> list[TagSuggester]:
        """Where an audience may look."""
        if audience is None:
            return list(self._tiers.values())
        shared = [self._tiers[tier] for tier in (PUBLIC, INTERNAL) if tier in audience]
        return [*shared, *(self._of(scope, tags) for scope in sorted(audience.difference(VISIBILITIES)))]

    def _of(self, scope: str, tags: TagIndex) -> TagSuggester:
        """The private tags of one reader, noted when they are asked for."""
        reader = frozenset((scope,))
        generation, kept = self._generation(reader), self._own.get(scope)
        if kept is not None and kept[0] == generation:
            return kept[1]
        neighbours = TagSuggester()
        neighbours.add({tag for ordinal in tags.select(audience=reader) for tag in tags.tags_of(ordinal)})
        self._own.put(scope, (generation, neighbours))
        return neighbours
