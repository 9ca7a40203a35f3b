"""The tag index: which agents carry a tag, speak a protocol, have a status, are seen by an audience. Bitmaps over ordinals.

It compares keys as they are given: fold tags and protocols first (`model.names`). It knows no text and no score. One thread
owns it; a bitmap that it returned is a copy and stays valid, but its ordinals mean the same agents only until the next
`put` or `remove`, because the ordinal of a removed agent is given to the next new one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyroaring import BitMap
from sortedcontainers import SortedSet

from waypost.lazy import lazy_module
from waypost.search.text.analyzer import analyse

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = lazy_module("numpy")  # the catalog imports this module at start-up; numpy takes a fifth of that time

_Traits = tuple[
    tuple[str, ...], str, tuple[str, ...]
]  # protocols, status, scopes: few distinct ones, shared by all rows

_SHARED_TRAITS: Final = 65_536  # scopes name owners, so the combinations are many, but not endless


class BitmapPostings:
    """Key → ordinals. Most keys of a real registry have one agent, so a single ordinal is kept as a plain int."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[str, int | list[int] | BitMap] = {}

    def _held(self, key: str) -> int | BitMap | None:
        """What is held of a key. A list is left from a load: it becomes a bitmap when it is first looked at."""
        held = self._sets.get(key)
        if isinstance(held, list):
            held = self._sets[key] = BitMap(held)
        return held

    def add(self, key: str, ordinal: int) -> None:
        held = self._held(key)
        if held is None:
            self._sets[key] = ordinal
        elif isinstance(held, int):
            if held != ordinal:
                self._sets[key] = BitMap((held, ordinal))
        else:
            held.add(ordinal)

    def add_many(self, key: str, ordinals: list[int]) -> None:
        """Take over new ordinals, in order. A list is kept as it is until somebody asks."""
        held = self._sets.get(key)
        if held is None:
            self._sets[key] = ordinals if len(ordinals) > 1 else ordinals[0]
        elif isinstance(held, int):
            self._sets[key] = [held, *ordinals]
        elif isinstance(held, list):
            held += ordinals
        else:
            held.update(ordinals)

    def discard(self, key: str, ordinal: int) -> None:
        held = self._held(key)
        if held is None:
            return
        if isinstance(held, int):
            if held == ordinal:
                del self._sets[key]
            return
        held.discard(ordinal)
        if not held:
            del self._sets[key]

    def get(self, key: str) -> BitMap:
        """The ordinals of a key. Not a copy: read it, never change it."""
        held = self._held(key)
        if held is None:
            return BitMap()
        return BitMap((held,)) if isinstance(held, int) else held

    def union(self, keys: Iterable[str]) -> BitMap:
        """The ordinals of any of the keys. Not a copy when there is one key."""
        sets = [held for key in keys if (held := self.get(key))]
        return sets[0] if len(sets) == 1 else BitMap.union(BitMap(), *sets)

    def count(self, key: str) -> int:
        held = self._sets.get(key)
        if held is None:
            return 0
        return 1 if isinstance(held, int) else len(held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)


class TagIndex:
    """Ids get dense ordinals; every trait of an agent is a bitmap of ordinals."""

    def __init__(self) -> None:
        self._ordinals: dict[str, int] = {}
        self._ids: list[str | None] = []
        self._tags_of: list[tuple[str, ...]] = []  # the caller's own tuples: no copy
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
        """Set all traits of an agent, known or new; returns its ordinal."""
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
        """`put` for many new agents at once: each key's ordinals are gathered first, and become a bitmap in one step."""
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
        """Forget an agent; one that is not here is passed over."""
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
        """Agents with every required tag, no excluded one, any of the protocols, any of the statuses, seen by the audience.

        An empty sequence does not filter. Audience None sees everything; an empty audience sees nothing.
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

    def tag_counts(self, among: BitMap) -> Counter[str]:
        """How many agents of `among` carry each tag: a facet. Cost grows with the smaller of agents and tags."""
        if len(among) <= len(self._tags):
            return Counter(tag for ordinal in among for tag in self._tags_of[ordinal])
        counts = ((tag, self._tags.get(tag).intersection_cardinality(among)) for tag in self._tags)
        return Counter({tag: count for tag, count in counts if count})

    def tag_count(self, tag: str) -> int:
        return self._tags.count(tag)

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._ordinals

    def __len__(self) -> int:
        return len(self._ordinals)

    def _share(self, traits: _Traits) -> _Traits:
        if len(self._shared) >= _SHARED_TRAITS:
            self._shared.clear()  # rows keep what they hold; sharing starts anew
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


# ---- Tags that are written like another: a slip or two away, another form of the word, or begun alike.
#
# It knows spellings, not agents: whoever asks must leave out what the caller may not see, and nothing here cuts a list
# short before that, so that hidden tags cannot crowd out visible ones.
#
# Each tag is kept under itself and under what is left when one letter is taken out; a word is looked up likewise, with up
# to two letters out. Where both meet they are a few slips apart, and how many is then counted. Kept are hashes in sorted
# arrays, some 150 bytes for each tag.

_LEAST: Final = 3  # letters below which everything is like everything

_SHORT: Final = 5  # letters; a word no longer forgives one slip, a longer one two

_LONG: Final = 32  # letters; in a longer word one is taken out, not two

_PREFIX: Final = 4  # letters that a common beginning must have

_CHUNK: Final = 500  # tags from which on they are sorted: some 5 ms of work

_LAST: Final = chr(0x10FFFF)

_ENDINGS: Final = (
    "", "s", "es", "e", "ed", "er", "ers", "or", "ors", "ing", "ings", "ion", "ions", "ation", "ations", "al", "ment",
    "ments", "ive", "y", "ies",
)  # fmt: skip


class _Chunk:
    """Tags under the hashes of their shortened forms, in order."""

    def __init__(self, tags: list[str], hashes: npt.NDArray[np.int64], numbers: npt.NDArray[np.uint32]) -> None:
        order = np.argsort(hashes, kind="stable")
        self.tags = tags
        self._hashes = hashes[order]
        self._numbers = numbers[order]

    @classmethod
    def of(cls, tags: list[str]) -> _Chunk:
        forms = [_deletions(tag, 1) for tag in tags]
        hashes = np.fromiter((hash(form) for each in forms for form in each), dtype=np.int64)
        sizes = np.fromiter(map(len, forms), dtype=np.intp)
        return cls(tags, hashes, np.repeat(np.arange(len(tags), dtype=np.uint32), sizes))

    def joined(self, other: _Chunk) -> _Chunk:
        hashes = np.concatenate((self._hashes, other._hashes))
        moved = other._numbers + np.uint32(len(self.tags))
        return _Chunk(self.tags + other.tags, hashes, np.concatenate((self._numbers, moved)))

    def under(self, keys: npt.NDArray[np.int64]) -> Iterator[str]:
        first = np.searchsorted(self._hashes, keys, "left")
        last = np.searchsorted(self._hashes, keys, "right")
        for at in np.flatnonzero(last > first):
            yield from (self.tags[number] for number in self._numbers[first[at] : last[at]])


class TagSuggester:
    """Folded tags, and which of them are near a word."""

    def __init__(self) -> None:
        self._tags: SortedSet[str] = SortedSet()
        self._chunks: list[_Chunk] = []
        self._fresh: list[str] = []
        self._under: dict[int, list[str]] = {}  # the fresh ones, as many as were there when somebody last asked
        self._noted = 0

    def __len__(self) -> int:
        return len(self._tags)

    def add(self, tags: Iterable[str]) -> None:
        """A tag that nobody carries any more stays: it comes back often, and whoever asks counts its agents."""
        new = [tag for tag in tags if tag not in self._tags]
        if not new:
            return
        new = list(dict.fromkeys(new))
        self._tags.update(new)
        self._fresh += new
        if len(self._fresh) >= _CHUNK:
            self._keep(_Chunk.of(self._fresh))
            self._fresh, self._under, self._noted = [], {}, 0

    def _keep(self, chunk: _Chunk) -> None:
        """Each chunk is less than half of the one before it, so that there are few."""
        while self._chunks and len(self._chunks[-1].tags) <= 2 * len(chunk.tags):
            chunk = self._chunks.pop().joined(chunk)
        self._chunks.append(chunk)

    def near(self, word: str) -> dict[str, int]:
        """Tags like a folded word, with the number of slips between them. Another form of the word is one slip away."""
        found: dict[str, int] = {}
        if len(word) < _LEAST:
            return found
        most = 1 if len(word) <= _SHORT else 2
        for tag in self._met(word, most):
            slips = _edit_distance(word, tag, most)
            if slips <= most:
                found[tag] = slips
        found.update(dict.fromkeys(self._same_stem(word), 1))
        found.pop(word, None)
        return found

    def begun_like(self, word: str) -> Iterator[str]:
        """Tags that the word begins, in order, and before them those that begin the word."""
        if len(word) < _PREFIX:
            return
        yield from (word[:end] for end in range(len(word) - 1, _PREFIX - 1, -1) if word[:end] in self._tags)
        yield from (tag for tag in self._tags.irange(word, word + _LAST) if tag != word)

    def _met(self, word: str, most: int) -> set[str]:
        keys = {hash(form) for form in _deletions(word, most if len(word) <= _LONG else 1)}
        self._note_fresh()
        met = {tag for key in keys for tag in self._under.get(key, ())}
        wanted = np.fromiter(keys, dtype=np.int64, count=len(keys))
        for chunk in self._chunks:
            met.update(chunk.under(wanted))
        return met

    def _note_fresh(self) -> None:
        """Few are asked for before there are so many that they are sorted."""
        for tag in self._fresh[self._noted :]:
            for form in _deletions(tag, 1):
                self._under.setdefault(hash(form), []).append(tag)
        self._noted = len(self._fresh)

    def _same_stem(self, word: str) -> Iterator[str]:
        stem = analyse(word)
        if len(stem) >= _LEAST and word.startswith(stem):
            forms = (stem + ending for ending in _ENDINGS)
            yield from (form for form in forms if form in self._tags and analyse(form) == stem)


def _deletions(word: str, most: int) -> set[str]:
    """The word, and the word with up to so many letters taken out."""
    forms = layer = {word}
    for _ in range(most):
        layer = {form[:at] + form[at + 1 :] for form in layer for at in range(len(form))}
        forms = forms | layer
    return forms


def _edit_distance(one: str, other: str, most: int) -> int:
    """Letters left out, added, changed, or two neighbours swapped; `most + 1` when there are more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        earlier, before, row = before, row, [i] + [0] * len(other)
        for j, facing in enumerate(other, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != facing))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == facing:
                row[j] = min(row[j], earlier[j - 2] + 1)
        if min(row) > most:
            return most + 1
    return row[-1]
