"""Reading a question, in Python. Twins of `waypost.compiled.reading`, which takes their place where it is compiled and gives
the same answers."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_NOT_PLAIN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\U0010ffff<]")
_PAIR: Final = 2


def is_plain(text: str, blob: int) -> bool:
    """Whether a reader sees an ASCII text as it is written: no hidden character, no markup, no run of so many characters that
    may be encoded data."""
    return not _NOT_PLAIN.search(text) and (len(text) < blob or not _run(blob).search(text))


@cache
def _run(blob: int) -> re.Pattern[str]:
    return re.compile(rf"[A-Za-z0-9+/_-]{{{blob}}}")


def named(
    terms: tuple[str, ...],
    longest: dict[str, int],
    spoken: dict[str, tuple[str, ...]],
    phrase_terms: int,
    most: int,
    phrase_worth: float,
    word_worth: float,
) -> dict[str, float]:
    """What the terms name: see `expansion.names_in`. `longest` knows of how many terms the phrases are that begin with one."""
    found: dict[str, float] = {}
    start = 0
    while start < len(terms) and len(found) < most:
        labels, size = None, min(longest.get(terms[start], 0), phrase_terms, len(terms) - start)
        while size and (labels := spoken.get(" ".join(terms[start : start + size]))) is None:
            size -= 1
        if labels is None and start + 1 < len(terms):  # chat bot for chatbot
            labels, size = spoken.get(terms[start] + terms[start + 1]), _PAIR
        if labels is None:
            start += 1
            continue
        found.setdefault(labels[0], word_worth if size == 1 else phrase_worth)
        start += size
    return found
