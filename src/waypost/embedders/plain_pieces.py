"""Cutting a text into pieces: the twin of `compiled.pieces`, for where nothing was compiled.

Knows the model's own spelling rules (its character map) and the best cut of a word (Viterbi). Words that were cut are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from waypost import limits
from waypost.embedders.sentencepiece import UNKNOWN, Vocabulary

_CACHED_CHARS: Final = 40  # longer words are rare and would fill the memory
_HEAD: Final = 4  # characters by which pieces are told apart that may begin at a place
_NEVER: Final = -1e30
_SURELY: Final = 1e-6  # by which one cut must be likelier than another to be so in whatever order it is added up


class Tokenizer:
    """May be used by several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._numbers = dict(zip(vocabulary.pieces, range(len(vocabulary.pieces)), strict=True))
        self._scores: list[float] = vocabulary.scores.tolist()
        self._unknown_score, self._space = vocabulary.unknown_score, vocabulary.space
        self._longest = _longest_by_head(vocabulary.pieces)
        signs = np.flatnonzero(vocabulary.scores >= 0).tolist()
        self._signs = [
            vocabulary.pieces[at] for at in signs if vocabulary.pieces[at]
        ]  # of the model's own, of no language
        self._rests = _best_rests(vocabulary)
        size = int.from_bytes(vocabulary.charsmap[:4], "little")
        self._units: list[int] = np.frombuffer(vocabulary.charsmap, "<u4", size // 4, 4).tolist()
        self._replacements = vocabulary.charsmap[4 + size :]
        spelled = {code: self._spelled(chr(code)) for code in range(128)}
        self._ascii = {code: text for code, text in spelled.items() if text != chr(code)}
        self._words: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, most: int) -> list[int]:
        """The numbers of the first `most` pieces or a few more; none for a text without a character that counts."""
        plain = text.translate(self._ascii) if text.isascii() else self._spelled(text)
        numbers: list[int] = []
        words = self._words
        for word in plain.split(" "):
            if not word:
                continue
            found = words.get(word)
            numbers += found if found is not None else self._learned(word)
            if len(numbers) >= most:
                break
        return numbers

    def _learned(self, word: str) -> tuple[int, ...]:
        found = self._cut(self._space + word)
        if len(word) <= _CACHED_CHARS:
            if len(self._words) >= limits.EMBEDDER_WORDS:
                self._words = {}
            self._words[word] = found
        return found

    def _spelled(self, text: str) -> str:
        """By the character map: the longest match is replaced, at each place."""
        raw = text.encode("utf-8", "replace")
        out: list[bytes] = []
        at = 0
        while at < len(raw):
            stop, value = self._match(raw, at)
            if stop > at:
                out.append(self._replacements[value : self._replacements.index(b"\0", value)])
            else:
                stop = at + 1
                while stop < len(raw) and raw[stop] & 0xC0 == 0x80:  # the rest of one character
                    stop += 1
                out.append(raw[at:stop])
            at = stop
        return b"".join(out).decode("utf-8", "replace")

    def _match(self, raw: bytes, start: int) -> tuple[int, int]:
        """Where the longest match from `start` ends (`start`: there is none), and its value."""
        units = self._units
        node = _offset(units[0])
        stop, value = start, 0
        for at in range(start, len(raw)):
            node ^= raw[at]
            unit = units[node]
            if unit & 0x800000FF != raw[at]:
                break
            node ^= _offset(unit)
            if unit & 0x100:
                stop, value = at + 1, units[node] & 0x7FFFFFFF
        return stop, value

    def _cut(self, word: str) -> tuple[int, ...]:
        """The cut of one word whose pieces are likeliest together."""
        size = len(word)
        best = [0.0] + [_NEVER] * size
        back = [0] * (size + 1)
        chosen = [UNKNOWN] * (size + 1)
        numbers, scores, longest = self._numbers, self._scores, self._longest
        rests = self._rests_of(word)
        for start in range(size):
            here = best[start]
            if here + rests[size - start] < best[size] - _SURELY:  # whatever follows, a cut that was found is likelier
                continue
            for stop in range(start + 1, min(start + longest.get(word[start : start + _HEAD], _HEAD), size) + 1):
                number = numbers.get(word[start:stop])
                if number is not None and here + scores[number] > best[stop]:
                    best[stop], back[stop], chosen[stop] = here + scores[number], start, number
            if here + self._unknown_score > best[start + 1]:
                best[start + 1], back[start + 1], chosen[start + 1] = here + self._unknown_score, start, UNKNOWN
        out: list[int] = []
        while size:
            out.append(chosen[size])
            size = back[size]
        return tuple(reversed(out))

    def _rests_of(self, word: str) -> Sequence[float]:
        """By how many characters are left of a word: no cut of them is likelier."""
        is_plain = (
            len(word) < len(self._rests)
            and self._space not in word[1:]
            and not any(map(word.__contains__, self._signs))
        )
        return self._rests if is_plain else bytes(len(word) + 1)


def _longest_by_head(pieces: list[str]) -> dict[str, int]:
    """How long pieces are that begin with the same few characters. Ascending, so the last one to be noted is the longest."""
    return {piece[:_HEAD]: len(piece) for piece in sorted(pieces, key=len) if len(piece) > _HEAD}


def _best_rests(vocabulary: Vocabulary) -> list[float]:
    """The score that no cut of the last characters of a word exceeds, by how many they are."""
    sizes = np.fromiter(map(len, vocabulary.pieces), np.intp, len(vocabulary.pieces))
    inner = np.fromiter((piece[:1] != vocabulary.space for piece in vocabulary.pieces), np.bool_, len(sizes))
    inner &= (vocabulary.scores < 0) & (sizes > 0) & (sizes <= _CACHED_CHARS)
    highest = np.full(_CACHED_CHARS + 1, _NEVER)
    np.maximum.at(highest, sizes[inner], vocabulary.scores[inner])
    best = [0.0, *highest[1:].tolist()]
    for size in range(2, len(best)):
        best[size] = max(best[size], *(best[at] + best[size - at] for at in range(1, size)))
    return best


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def run_of(part: Sequence[int], pieces: Sequence[int], most: int) -> tuple[int, int] | None:
    """Where a part stands in the first `most` of the whole (from, to); None: nowhere."""
    size = len(part)
    last = min(len(pieces), most) - size
    for start in range(last + 1 if size else 0):
        if pieces[start] == part[0] and pieces[start : start + size] == part:
            return start, start + size
    return None
