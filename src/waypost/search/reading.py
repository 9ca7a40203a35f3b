"""A text that asks, read once: its terms, those that it only quotes, its clauses, and which terms each of these has.

What these are is said in `text`, `quotes` and `clauses`; texts in ASCII, which most are, are read by compiled code.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from waypost import limits
from waypost.search import clauses, quotes
from waypost.search.text import WORDS, query_terms

if TYPE_CHECKING:
    from waypost.compiled.reading import Reader

Flags = bytes | bytearray  # single floats, one beside the other: whoever reads a text need not load numpy

_READ: Final = 64  # texts that are remembered: what is asked for once is asked for several times over


class Reading(NamedTuple):
    terms: tuple[str, ...]  # each once, within bounds
    quoted: frozenset[str]
    parts: tuple[str, ...]
    has: Flags | None  # [terms, 1 + parts]: 1 where the whole, or a part, has the term; None: there are no parts


@lru_cache(maxsize=_READ)
def read(text: str) -> Reading:
    """Of no more than a question may have."""
    told = None if _reader is None else _reader.read(text)
    if told is None:
        return read_plainly(text)
    return Reading(*told)


def read_plainly(text: str) -> Reading:
    """The same of any text, in Python."""
    terms, parts = query_terms(text), clauses.clauses(text)
    return Reading(terms, quotes.quoted_terms(text), parts, _had(terms, parts) if parts else None)


def _had(terms: Sequence[str], parts: Sequence[str]) -> Flags:
    """The terms of the whole, then those of each part."""
    units = len(parts) + 1
    places = {term: units * at for at, term in enumerate(terms)}
    has = array("f", [1.0, *[0.0] * len(parts)] * len(terms))
    for unit, part in enumerate(parts, start=1):
        for term in query_terms(part):
            if term in places:
                has[places[term] + unit] = 1.0
    return has.tobytes()


def _compiled() -> Reader | None:
    try:
        from waypost.compiled.reading import Reader
    except ImportError:
        return None
    return Reader(
        WORDS,
        clauses.JOINING,
        most_terms=limits.QUERY_TERMS,
        most_clauses=clauses.MOST,
        least_words=clauses.LEAST_WORDS,
        least_terms=clauses.LEAST_TERMS,
        least_beside=quotes.LEAST_BESIDE,
        longest_quote=quotes.LONGEST,
    )


_reader: Final = _compiled()
