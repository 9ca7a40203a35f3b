"""Similar tags for each audience: public, internal, and the private tags of each subject.

Only tags that the caller may see are compared with a word: a tag that only hidden agents carry costs no step (THREATS V2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from waypost.cache import LruCache
from waypost.model.principal import INTERNAL, PUBLIC, VISIBILITIES
from waypost.search.index.tag_index import TagIndex
from waypost.search.index.tag_suggester import TagSuggester

_SUBJECTS: Final = 64  # whose private tags are cached

Generation = Callable[[frozenset[str]], int]


class TagSuggestions:
    """`generation` returns a number that changes with what an audience sees."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._tiers = {tier: TagSuggester() for tier in VISIBILITIES}  # `private` is for admins, who see everything
        self._private: LruCache[str, tuple[int, TagSuggester]] = LruCache(_SUBJECTS)

    def add(self, tier: str, tags: Iterable[str]) -> None:
        self._tiers[tier].add(tags)

    def visible_to(self, audience: frozenset[str] | None, tags: TagIndex) -> list[TagSuggester]:
        if audience is None:
            return list(self._tiers.values())
        shared = [self._tiers[tier] for tier in (PUBLIC, INTERNAL) if tier in audience]
        return [*shared, *(self._private_of(scope, tags) for scope in sorted(audience.difference(VISIBILITIES)))]

    def _private_of(self, scope: str, tags: TagIndex) -> TagSuggester:
        audience = frozenset((scope,))
        generation, cached = self._generation(audience), self._private.get(scope)
        if cached is not None and cached[0] == generation:
            return cached[1]
        suggester = TagSuggester()
        suggester.add({tag for ordinal in tags.select(audience=audience) for tag in tags.tags_of(ordinal)})
        self._private.put(scope, (generation, suggester))
        return suggester
