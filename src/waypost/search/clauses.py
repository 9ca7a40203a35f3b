"""A long question holds several wishes. Its clauses, so that an agent that meets one of them well is not lost in the mean."""

from __future__ import annotations

import re
from typing import Final

from waypost import limits
from waypost.search.text import query_terms

_MOST: Final = 12
_LEAST_WORDS: Final = 3  # shorter pieces are no wish of their own
_LEAST_TERMS: Final = 2  # that say anything: "can you help me with that" says one
_LEAST_DENSE: Final = 6  # characters, in scripts without spaces

_BREAK: Final = re.compile(
    r"[.!?;:\n]+\s+|[。！？；]+"
    r"|,?\s+(?:and|then|also|y|luego|también|und|dann|sowie|auch)\s+|,\s+|，?(?:然后|并且|以及)|，",
    re.IGNORECASE,
)


def clauses(text: str) -> tuple[str, ...]:
    """The pieces of a text that stand for themselves, without the whole; nothing when there are not at least two."""
    pieces = dict.fromkeys(piece.strip(" ,.") for piece in _BREAK.split(text[: limits.QUERY_CHARS]))
    kept = [piece for piece in pieces if _is_wish(piece)]
    return tuple(kept[:_MOST]) if len(kept) > 1 else ()


def _is_wish(piece: str) -> bool:
    is_long = len(piece.split()) >= _LEAST_WORDS or (not piece.isascii() and len(piece) >= _LEAST_DENSE)
    return is_long and len(query_terms(piece)) >= _LEAST_TERMS
