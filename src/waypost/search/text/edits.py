"""Spellings at one edit from a word: two neighbours swapped, one letter left out, added or replaced.

Looking each of them up in a set or a sorted list takes the same time whatever the list contains, and finds every word at that
distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase, digits
from typing import Final

_ACCENTED: Final = "àáâãäåæçèéêëìíîïñòóôõöøùúûüýœßąćęłńśźżčďěňřšťůž"
_PLAIN: Final = ascii_lowercase + digits + "-"


def one_edit(word: str, first: int = 0) -> set[str]:
    """The spellings at one edit from a folded word. The first letters up to `first` stay."""
    letters = _PLAIN if word.isascii() else _PLAIN + _ACCENTED
    return {*_edits(word, letters, first)} - {word}


def _edits(word: str, letters: str, first: int) -> Iterator[str]:
    for at in range(first, len(word)):
        start, rest = word[:at], word[at:]
        yield start + rest[1:]
        yield start + rest[1:2] + rest[:1] + rest[2:]
        yield from (start + letter + rest[1:] for letter in letters)
        yield from (start + letter + rest for letter in letters)
    yield from (word + letter for letter in letters)
