"""A text that asks, read once: its terms, those that it only quotes, its clauses, and which terms each of these has.

What these are is said in `text`, `quotes` and `clauses`; texts in ASCII, which most are, are read by compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.search import clauses, quotes
from waypost.search.text import WORDS, query_terms

if TYPE_CHECKING:
    from waypost.compiled.reading import Reader

Flags = npt.NDArray[np.float32]

_READ: Final = 64  # texts that are remembered: what is asked for once is asked for several times over
_WHOLE: Final = np.ones((limits.QUERY_TERMS, 1), dtype=np.float32)  # a text of one unit has all of its terms


class Reading(NamedTuple):
    terms: tuple[str, ...]  # each once, within bounds
    quoted: frozenset[str]
    parts: tuple[str, ...]
    has: Flags  # [terms, 1 + parts]: 1 where the whole, or a part, has the term


@lru_cache(maxsize=_READ)
def read(text: str) -> Reading:
    """Of no more than a question may have."""
    told = None if _reader is None else _reader.read(text)
    if told is None:
        return read_plainly(text)
    terms, quoted, parts, has = told
    return Reading(terms, quoted, parts, _WHOLE[: len(terms)] if has is None else has)


def read_plainly(text: str) -> Reading:
    """The same of any text, in Python."""
    terms, parts = query_terms(text), clauses.clauses(text)
    return Reading(terms, quotes.quoted_terms(text), parts, _had(terms, parts) if parts else _WHOLE[: len(terms)])


def _had(terms: Sequence[str], parts: Sequence[str]) -> Flags:
    """The terms of the whole, then those of each part."""
    places = {term: at for at, term in enumerate(terms)}
    has = np.zeros((len(terms), len(parts) + 1), dtype=np.float32)
    has[:, 0] = 1.0
    for unit, part in enumerate(parts, start=1):
        has[[places[term] for term in query_terms(part) if term in places], unit] = 1.0
    return has


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
