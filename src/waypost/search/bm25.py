"""Fielded BM25 in our own hands: the same formula that tantivy applies, for documents that it does not hold yet.

A document is four fields of terms; its score is the weighted sum of one BM25 per field (k1 = 1.2, b = 0.75,
idf = ln(1 + (N − n + ½)/(n + ½))). Lengths are rounded down to one of 256 values, as the index rounds them. What remains
different is the width of a float (32 bits there, 64 here): about one part in a million.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

FIELDS: Final = ("name", "description", "tags", "examples")
WEIGHTS: Final = (1.5, 1.0, 0.7, 1.0)  # a name says most in the fewest words; tags cost nothing to write
K1: Final = 1.2
B: Final = 0.75


def _length_table() -> tuple[int, ...]:
    """Lengths an index can remember in one byte: exact to 24, then three significant bits above that offset."""
    coded = [*range(8), *((8 | low) << shift for shift in range(29) for low in range(8))]
    return (*range(24), *(24 + value for value in coded[: 256 - 24]))


_LENGTHS: Final = _length_table()


def stored_length(length: int) -> int:
    return _LENGTHS[bisect_right(_LENGTHS, length) - 1]


def idf(docs: int, containing: int) -> float:
    docs = max(docs, containing)  # deleted documents are counted among `containing` until segments merge
    return math.log1p((docs - containing + 0.5) / (containing + 0.5))


class Document:
    """The terms of one agent, counted."""

    __slots__ = ("counts", "lengths", "vocabulary")

    def __init__(self, texts: Sequence[str]) -> None:
        """`texts` are analysed, one for each of FIELDS."""
        counts: list[dict[str, int]] = []
        lengths: list[int] = []
        for text in texts:
            terms = text.split()
            field: dict[str, int] = {}
            for term in terms:
                field[term] = field.get(term, 0) + 1
            counts.append(field)
            lengths.append(len(terms))
        self.counts = tuple(counts)
        self.lengths = tuple(lengths)
        self.vocabulary = frozenset().union(*counts)


class Statistics(Protocol):
    """What BM25 must know about the whole to weigh a part."""

    @property
    def docs(self) -> int: ...

    def containing(self, field: int, term: str) -> int: ...

    def average_length(self, field: int) -> float: ...


def importance(term: str, statistics: Statistics) -> float:
    """How much a term tells in this corpus, wherever it stands. A term that nobody uses tells most: its absence counts."""
    return idf(statistics.docs, max(statistics.containing(field, term) for field in range(len(FIELDS))))


def score(document: Document, terms: Sequence[str], statistics: Statistics) -> float:
    total = 0.0
    for field, counts in enumerate(document.counts):
        found = [(term, counts[term]) for term in terms if term in counts]
        if not found:
            continue
        average = statistics.average_length(field)
        ratio = stored_length(document.lengths[field]) / average if average else 1.0
        norm = K1 * (1 - B + B * ratio)
        for term, frequency in found:
            rarity = idf(statistics.docs, statistics.containing(field, term))
            total += WEIGHTS[field] * rarity * (K1 + 1) * frequency / (frequency + norm)
    return total
