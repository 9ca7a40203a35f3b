"""A long question holds several wishes. Its clauses, so that an agent that meets one of them well is not lost in the mean."""

from __future__ import annotations

import re
from typing import Final

from waypost import limits

_MOST: Final = 6
_LEAST_WORDS: Final = 3  # shorter pieces are no wish of their own
_LEAST_DENSE: Final = 6  # characters, in scripts without spaces

_BREAK: Final = re.compile(
    r"[.!?;:\n]+\s+|[。！？；]+|\s+[-–—]+\s+|,\s+(?=(?:and|then|also|but|plus)\b)"
    r"|\s+(?:and|then|also|plus|y|und|sowie|además|dann)\s+",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"\w+")


def clauses(text: str) -> tuple[str, ...]:
    """The pieces of a text that stand for themselves, without the whole; nothing when the whole is one piece."""
    pieces = [piece.strip() for piece in _BREAK.split(text[: limits.QUERY_CHARS]) if piece]
    kept = [piece for piece in dict.fromkeys(pieces) if _is_wish(piece)]
    return tuple(kept[:_MOST]) if len(pieces) > 1 else ()


def _is_wish(piece: str) -> bool:
    words = _WORD.findall(piece)
    return len(words) >= _LEAST_WORDS or (not piece.isascii() and len(piece) >= _LEAST_DENSE)
