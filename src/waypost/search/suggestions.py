"""Tags that are written like another: a slip or two away, another form of the word, or begun alike.

It knows spellings, not agents: whoever asks must leave out what the caller may not see, and nothing here cuts a list
short before that, so that hidden tags cannot crowd out visible ones.

Each tag is kept under itself and under what is left when one letter is taken out; a word is looked up likewise, with up
to two letters out. Where both meet they are a few slips apart, and how many is then counted. Kept are hashes in sorted
arrays, some 150 bytes for each tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedSet

from waypost.search.text import analyse

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
        forms = [_shortened(tag, 1) for tag in tags]
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


class TagNeighbours:
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
            slips = _slips(word, tag, most)
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
        keys = {hash(form) for form in _shortened(word, most if len(word) <= _LONG else 1)}
        self._note_fresh()
        met = {tag for key in keys for tag in self._under.get(key, ())}
        wanted = np.fromiter(keys, dtype=np.int64, count=len(keys))
        for chunk in self._chunks:
            met.update(chunk.under(wanted))
        return met

    def _note_fresh(self) -> None:
        """Few are asked for before there are so many that they are sorted."""
        for tag in self._fresh[self._noted :]:
            for form in _shortened(tag, 1):
                self._under.setdefault(hash(form), []).append(tag)
        self._noted = len(self._fresh)

    def _same_stem(self, word: str) -> Iterator[str]:
        stem = analyse(word)
        if len(stem) >= _LEAST and word.startswith(stem):
            forms = (stem + ending for ending in _ENDINGS)
            yield from (form for form in forms if form in self._tags and analyse(form) == stem)


def _shortened(word: str, most: int) -> set[str]:
    """The word, and the word with up to so many letters taken out."""
    forms = layer = {word}
    for _ in range(most):
        layer = {form[:at] + form[at + 1 :] for form in layer for at in range(len(form))}
        forms = forms | layer
    return forms


def _slips(one: str, other: str, most: int) -> int:
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
