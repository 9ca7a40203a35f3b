"""Tags with a similar spelling: one or two edits apart, another form of the word, or with a common prefix.

It knows spellings, not agents: the caller leaves out tags that a reader may not see. Nothing here cuts a list short before
that, so that hidden tags cannot crowd out visible ones.

Each tag is indexed under itself and under its forms with one letter deleted; a word is looked up likewise, with up to two
letters deleted. Tags that share such a form are a few edits apart, and the exact distance is computed for them. The index
holds hashes in sorted arrays, about 150 bytes for each tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedSet

from waypost.cache import LruCache
from waypost.model.principal import INTERNAL, PUBLIC, VISIBILITIES
from waypost.search.index.tag_index import TagIndex
from waypost.search.text.analyzer import analyse

_MIN_LETTERS: Final = 3  # every shorter word is similar to every other

_SHORT_LETTERS: Final = 5  # a word up to this length allows one edit, a longer one two

_LONG_LETTERS: Final = 32  # in a longer word one letter is deleted for the lookup, not two

_PREFIX_LETTERS: Final = 4

_CHUNK_TAGS: Final = 500  # new tags that are sorted into a chunk: about 5 ms

_LAST: Final = chr(0x10FFFF)

_ENDINGS: Final = (
    "", "s", "es", "e", "ed", "er", "ers", "or", "ors", "ing", "ings", "ion", "ions", "ation", "ations", "al", "ment",
    "ments", "ive", "y", "ies",
)  # fmt: skip


class _Chunk:
    """Tags by the hashes of their shortened forms, sorted."""

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

    def merge(self, other: _Chunk) -> _Chunk:
        hashes = np.concatenate((self._hashes, other._hashes))
        moved = other._numbers + np.uint32(len(self.tags))
        return _Chunk(self.tags + other.tags, hashes, np.concatenate((self._numbers, moved)))

    def find(self, keys: npt.NDArray[np.int64]) -> Iterator[str]:
        first = np.searchsorted(self._hashes, keys, "left")
        last = np.searchsorted(self._hashes, keys, "right")
        for at in np.flatnonzero(last > first):
            yield from (self.tags[number] for number in self._numbers[first[at] : last[at]])


class TagSuggester:
    """Folded tags, and which of them are similar to a word."""

    def __init__(self) -> None:
        self._tags: SortedSet[str] = SortedSet()
        self._chunks: list[_Chunk] = []
        self._fresh: list[str] = []  # tags in no chunk yet
        self._fresh_forms: dict[int, list[str]] = {}  # of the first `_fresh_indexed` of them
        self._fresh_indexed = 0

    def __len__(self) -> int:
        return len(self._tags)

    def add(self, tags: Iterable[str]) -> None:
        """A tag that no agent carries any more stays: it often comes back, and the caller counts its agents."""
        new = list(dict.fromkeys(tag for tag in tags if tag not in self._tags))
        self._tags.update(new)
        self._fresh += new
        if len(self._fresh) >= _CHUNK_TAGS:
            self._add_chunk(_Chunk.of(self._fresh))
            self._fresh, self._fresh_forms, self._fresh_indexed = [], {}, 0

    def _add_chunk(self, chunk: _Chunk) -> None:
        """Each chunk is less than half as large as the one before it, so that there are few."""
        while self._chunks and len(self._chunks[-1].tags) <= 2 * len(chunk.tags):
            chunk = self._chunks.pop().merge(chunk)
        self._chunks.append(chunk)

    def near(self, word: str) -> dict[str, int]:
        """Tags similar to a folded word, with their edit distance. Another form of the word counts as one edit."""
        found: dict[str, int] = {}
        if len(word) < _MIN_LETTERS:
            return found
        most = 1 if len(word) <= _SHORT_LETTERS else 2
        for tag in self._candidates(word, most):
            distance = _edit_distance(word, tag, most)
            if distance <= most:
                found[tag] = distance
        found.update(dict.fromkeys(self._same_stem(word), 1))
        found.pop(word, None)
        return found

    def with_common_prefix(self, word: str) -> Iterator[str]:
        """Tags that are a prefix of the word, longest first, then tags that the word is a prefix of."""
        if len(word) < _PREFIX_LETTERS:
            return
        yield from (word[:end] for end in range(len(word) - 1, _PREFIX_LETTERS - 1, -1) if word[:end] in self._tags)
        yield from (tag for tag in self._tags.irange(word, word + _LAST) if tag != word)

    def _candidates(self, word: str, most: int) -> set[str]:
        keys = {hash(form) for form in _deletions(word, most if len(word) <= _LONG_LETTERS else 1)}
        self._index_fresh()
        found = {tag for key in keys for tag in self._fresh_forms.get(key, ())}
        array = np.fromiter(keys, dtype=np.int64, count=len(keys))
        for chunk in self._chunks:
            found.update(chunk.find(array))
        return found

    def _index_fresh(self) -> None:
        """On lookup, because lookups are rarer than new tags."""
        for tag in self._fresh[self._fresh_indexed :]:
            for form in _deletions(tag, 1):
                self._fresh_forms.setdefault(hash(form), []).append(tag)
        self._fresh_indexed = len(self._fresh)

    def _same_stem(self, word: str) -> Iterator[str]:
        stem = analyse(word)
        if len(stem) >= _MIN_LETTERS and word.startswith(stem):
            forms = (stem + ending for ending in _ENDINGS)
            yield from (form for form in forms if form in self._tags and analyse(form) == stem)


def _deletions(word: str, most: int) -> set[str]:
    """The word, and its forms with up to `most` letters deleted."""
    forms = layer = {word}
    for _ in range(most):
        layer = {form[:at] + form[at + 1 :] for form in layer for at in range(len(form))}
        forms = forms | layer
    return forms


def _edit_distance(one: str, other: str, most: int) -> int:
    """Deletions, insertions, substitutions and swaps of neighbours; `most + 1` if there are more."""
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
