"""The tag index: bitmaps of agents by tag, protocol, status and visibility scope; and tags with a similar spelling.

Keys are compared as given: fold tags and protocols first (`model.names`). Not thread-safe. A returned bitmap is a copy, but its
ordinals are only valid until the next `put` or `remove`, because ordinals of removed agents are reused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from pyroaring import BitMap
from sortedcontainers import SortedSet

from waypost.cache import LruCache
from waypost.model.principal import INTERNAL, PUBLIC, VISIBILITIES
from waypost.search.text.analyzer import analyse
from waypost.search.text.edits import one_edit

_Traits = tuple[
    tuple[str, ...], str, tuple[str, ...]
]  # protocols, status, scopes: few distinct ones, shared by all rows

_SHARED_TRAITS: Final = 65_536  # scopes name owners, so there are many combinations


class BitmapPostings:
    """Key → ordinals. Most keys of a real registry have one agent, so a single ordinal is a plain int."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[str, int | list[int] | BitMap] = {}

    def _get(self, key: str) -> int | BitMap | None:
        """The ordinals of a key. A list of a bulk load becomes a bitmap on first use."""
        current = self._sets.get(key)
        if isinstance(current, list):
            current = self._sets[key] = BitMap(current)
        return current

    def add(self, key: str, ordinal: int) -> None:
        current = self._get(key)
        if current is None:
            self._sets[key] = ordinal
        elif isinstance(current, int):
            if current != ordinal:
                self._sets[key] = BitMap((current, ordinal))
        else:
            current.add(ordinal)

    def add_many(self, key: str, ordinals: list[int]) -> None:
        """Add new sorted ordinals. A list stays a list until it is read."""
        current = self._sets.get(key)
        if current is None:
            self._sets[key] = ordinals if len(ordinals) > 1 else ordinals[0]
        elif isinstance(current, int):
            self._sets[key] = [current, *ordinals]
        elif isinstance(current, list):
            current += ordinals
        else:
            current.update(ordinals)

    def discard(self, key: str, ordinal: int) -> None:
        current = self._get(key)
        if current is None:
            return
        if isinstance(current, int):
            if current == ordinal:
                del self._sets[key]
            return
        current.discard(ordinal)
        if not current:
            del self._sets[key]

    def get(self, key: str) -> BitMap:
        """The ordinals of a key. Not a copy: do not change it."""
        current = self._get(key)
        if current is None:
            return BitMap()
        return BitMap((current,)) if isinstance(current, int) else current

    def union(self, keys: Iterable[str]) -> BitMap:
        """The ordinals of any of the keys. Not a copy when there is one key."""
        sets = [current for key in keys if (current := self.get(key))]
        return sets[0] if len(sets) == 1 else BitMap.union(BitMap(), *sets)

    def count(self, key: str) -> int:
        current = self._sets.get(key)
        if current is None:
            return 0
        return 1 if isinstance(current, int) else len(current)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)


class TagIndex:
    """Ids get dense ordinals; every trait of an agent is a bitmap of ordinals."""

    def __init__(self) -> None:
        self._ordinals: dict[str, int] = {}
        self._ids: list[str | None] = []
        self._tags_of: list[tuple[str, ...]] = []  # the caller's tuples, not copied
        self._traits_of: list[_Traits | None] = []
        self._shared: dict[_Traits, _Traits] = {}
        self._free: list[int] = []
        self._live = BitMap()
        self._tags = BitmapPostings()
        self._protocols = BitmapPostings()
        self._statuses = BitmapPostings()
        self._scopes = BitmapPostings()

    def put(
        self, agent_id: str, tags: tuple[str, ...], protocols: tuple[str, ...], status: str, scopes: tuple[str, ...]
    ) -> int:
        """Set all traits of an agent; return its ordinal."""
        traits = self._share((protocols, status, scopes))
        ordinal = self._ordinals.get(agent_id)
        if ordinal is None:
            ordinal = self._new_ordinal(agent_id)
        elif self._tags_of[ordinal] == tags and self._traits_of[ordinal] == traits:
            return ordinal
        else:
            self._clear(ordinal)
        self._tags_of[ordinal] = tags
        self._traits_of[ordinal] = traits
        for tag in tags:
            self._tags.add(tag, ordinal)
        for protocol in protocols:
            self._protocols.add(protocol, ordinal)
        self._statuses.add(status, ordinal)
        for scope in scopes:
            self._scopes.add(scope, ordinal)
        return ordinal

    def load(self, rows: Iterable[tuple[str, tuple[str, ...], tuple[str, ...], str, tuple[str, ...]]]) -> None:
        """`put` for many new agents: ordinals are collected per key, and become a bitmap in one step."""
        gathered: tuple[defaultdict[str, list[int]], ...] = tuple(defaultdict(list) for _ in range(4))
        tags_of, protocols_of, statuses_of, scopes_of = gathered
        first = len(self._ids)
        for agent_id, tags, protocols, status, scopes in rows:
            if self._free or agent_id in self._ordinals:
                self.put(agent_id, tags, protocols, status, scopes)
                continue
            ordinal = len(self._ids)
            self._ids.append(agent_id)
            self._ordinals[agent_id] = ordinal
            self._tags_of.append(tags)
            self._traits_of.append(self._share((protocols, status, scopes)))
            for tag in tags:
                tags_of[tag].append(ordinal)
            for protocol in protocols:
                protocols_of[protocol].append(ordinal)
            statuses_of[status].append(ordinal)
            for scope in scopes:
                scopes_of[scope].append(ordinal)
        self._live.add_range(first, len(self._ids))
        for postings, found in zip((self._tags, self._protocols, self._statuses, self._scopes), gathered, strict=True):
            for key, ordinals in found.items():
                postings.add_many(key, ordinals)

    def remove(self, agent_id: str) -> None:
        """Remove an agent, if it is known."""
        ordinal = self._ordinals.pop(agent_id, None)
        if ordinal is None:
            return
        self._clear(ordinal)
        self._ids[ordinal] = None
        self._tags_of[ordinal] = ()
        self._traits_of[ordinal] = None
        self._live.discard(ordinal)
        self._free.append(ordinal)

    def select(
        self,
        required: Sequence[str] = (),
        excluded: Sequence[str] = (),
        protocols: Sequence[str] = (),
        statuses: Sequence[str] = (),
        audience: frozenset[str] | None = None,
    ) -> BitMap:
        """Agents with every required tag, no excluded one, any of the protocols and statuses, visible to the audience.

        An empty sequence does not filter. Audience None sees everything; an empty audience nothing.
        """
        wanted = [self._tags.get(tag) for tag in required]
        if protocols:
            wanted.append(self._protocols.union(protocols))
        if statuses:
            wanted.append(self._statuses.union(statuses))
        if audience is not None:
            wanted.append(self._scopes.union(audience))
        wanted.sort(key=len)
        chosen = BitMap.intersection(*wanted) if len(wanted) > 1 else (wanted[0] if wanted else self._live).copy()
        for tag in excluded:
            chosen -= self._tags.get(tag)
        return chosen

    @property
    def by_tag(self) -> BitmapPostings:
        return self._tags

    @property
    def by_protocol(self) -> BitmapPostings:
        return self._protocols

    @property
    def by_status(self) -> BitmapPostings:
        return self._statuses

    def ordinal(self, agent_id: str) -> int | None:
        return self._ordinals.get(agent_id)

    def id_of(self, ordinal: int) -> str:
        """The id behind an ordinal of a current bitmap."""
        agent_id = self._ids[ordinal]
        if agent_id is None:
            raise KeyError(ordinal)
        return agent_id

    def ids_of(self, ordinals: Iterable[int]) -> list[str]:
        return [agent_id for ordinal in ordinals if (agent_id := self._ids[ordinal]) is not None]

    def tags_of(self, ordinal: int) -> tuple[str, ...]:
        return self._tags_of[ordinal]

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._ordinals

    def __len__(self) -> int:
        return len(self._ordinals)

    def _share(self, traits: _Traits) -> _Traits:
        if len(self._shared) >= _SHARED_TRAITS:
            self._shared.clear()  # rows keep their tuples
        return self._shared.setdefault(traits, traits)

    def _new_ordinal(self, agent_id: str) -> int:
        if self._free:
            ordinal = self._free.pop()
            self._ids[ordinal] = agent_id
        else:
            ordinal = len(self._ids)
            self._ids.append(agent_id)
            self._tags_of.append(())
            self._traits_of.append(None)
        self._ordinals[agent_id] = ordinal
        self._live.add(ordinal)
        return ordinal

    def _clear(self, ordinal: int) -> None:
        for tag in self._tags_of[ordinal]:
            self._tags.discard(tag, ordinal)
        traits = self._traits_of[ordinal]
        if traits is None:
            return
        for protocol in traits[0]:
            self._protocols.discard(protocol, ordinal)
        self._statuses.discard(traits[1], ordinal)
        for scope in traits[2]:
            self._scopes.discard(scope, ordinal)


# `TagSuggester` knows spellings, not agents: the caller leaves out tags that a reader may not see. Nothing here cuts a list short
# before that, so that hidden tags cannot crowd out visible ones.

_MIN_LETTERS: Final = 3  # every shorter word is similar to every other

_PREFIX_LETTERS: Final = 4

_LAST: Final = chr(0x10FFFF)

_ENDINGS: Final = (
    "", "s", "es", "e", "ed", "er", "ers", "or", "ors", "ing", "ings", "ion", "ions", "ation", "ations", "al", "ment",
    "ments", "ive", "y", "ies",
)  # fmt: skip


class TagSuggester:
    """Folded tags, and which of them are similar to a word."""

    def __init__(self) -> None:
        self._tags: SortedSet[str] = SortedSet()

    def __len__(self) -> int:
        return len(self._tags)

    def add(self, tags: Iterable[str]) -> None:
        """A tag that no agent carries any more stays: it often comes back, and the caller counts its agents."""
        self._tags.update(tags)

    def near(self, word: str) -> set[str]:
        """Tags at one edit from a folded word, and other forms of the word."""
        if len(word) < _MIN_LETTERS:
            return set()
        spelled = {each for each in one_edit(word) if each in self._tags}
        return spelled.union(self._same_stem(word)) - {word}

    def with_common_prefix(self, word: str) -> Iterator[str]:
        """Tags that are a prefix of the word, longest first, then tags that the word is a prefix of."""
        if len(word) < _PREFIX_LETTERS:
            return
        yield from (word[:end] for end in range(len(word) - 1, _PREFIX_LETTERS - 1, -1) if word[:end] in self._tags)
        yield from (tag for tag in self._tags.irange(word, word + _LAST) if tag != word)

    def _same_stem(self, word: str) -> Iterator[str]:
        stem = analyse(word)
        if len(stem) >= _MIN_LETTERS and word.startswith(stem):
            forms = (stem + ending for ending in _ENDINGS)
            yield from (form for form in forms if form in self._tags and analyse(form) == stem)


# Only tags that the caller may see are compared with a word: a tag that only hidden agents carry costs no step (THREATS V2).

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
