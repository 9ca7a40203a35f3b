"""A text that asks, read once: its terms, those that it only quotes, its clauses, and which terms each of these has.

`text`, `quotes` and `clauses` define these.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from waypost.search import clauses, quotes
from waypost.search.text import query_terms

Flags = bytes  # single floats, one beside the other: whoever reads a text need not load numpy

_READ: Final = 64  # texts that are remembered: what is asked for once is asked for several times over


class Reading(NamedTuple):
    terms: tuple[str, ...]  # each once, within bounds
    quoted: frozenset[str]
    parts: tuple[str, ...]
    has: Flags | None  # [terms, 1 + parts]: 1 where the whole, or a part, has the term; None: there are no parts


@lru_cache(maxsize=_READ)
def read(text: str) -> Reading:
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
