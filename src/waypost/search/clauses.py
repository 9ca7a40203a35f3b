"""A long question holds several wishes. Its clauses, so that an agent that meets one of them well is not lost in the mean."""

from __future__ import annotations

import re
from typing import Final

from waypost import limits
from waypost.late import late_pattern
from waypost.search.text import query_terms

MOST: Final = 12
LEAST_WORDS: Final = 3  # shorter pieces are no wish of their own
LEAST_TERMS: Final = 2  # that say anything: "can you help me with that" says one
_LEAST_DENSE: Final = 6  # characters, in scripts without spaces

JOINING: Final = ("and", "then", "also", "y", "luego", "también", "und", "dann", "sowie", "auch")
_AND: Final = rf"(?:{'|'.join(JOINING)})\s+"
# Every break begins with one of these: the expression passes over all other characters in one stride.
_BREAK: Final = late_pattern(
    r"[\s.!?;:,。！？；，然并以](?:(?<=[.!?;:\n])[.!?;:\n]*\s+|(?<=[。！？；])[。！？；]*"
    rf"|(?<=,)\s+{_AND}|(?<=\s)\s*{_AND}|(?<=,)\s+"
    r"|(?<=，)(?:然后|并且|以及)|(?<=然)后|(?<=并)且|(?<=以)及|(?<=，))",
    re.IGNORECASE,
)


def clauses(text: str) -> tuple[str, ...]:
    """The pieces of a text that stand for themselves, without the whole; nothing when there are not at least two."""
    pieces = dict.fromkeys(piece.strip(" ,.") for piece in _BREAK.split(text[: limits.QUERY_CHARS]))
    long = [piece for piece in pieces if _is_long(piece)]
    if len(long) < 2:  # as in most questions: nothing is left to analyse
        return ()
    kept = [piece for piece in long if len(query_terms(piece)) >= LEAST_TERMS]
    return tuple(kept[:MOST]) if len(kept) > 1 else ()


def _is_long(piece: str) -> bool:
    return len(piece.split()) >= LEAST_WORDS or (not piece.isascii() and len(piece) >= _LEAST_DENSE)
