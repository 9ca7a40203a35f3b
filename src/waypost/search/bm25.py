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

    def containing(self, term: str) -> tuple[int, ...]:
        """How many documents hold the term, for each of FIELDS."""
        ...

    @property
    def average_lengths(self) -> tuple[float, ...]: ...


class Scale:
    """The weights of a question's terms in one corpus: made once, then cheap for each document."""

    def __init__(self, terms: Sequence[str], statistics: Statistics) -> None:
        self._weights: list[dict[str, float]] = [{} for _ in FIELDS]
        for term in terms:
            for field, containing in enumerate(statistics.containing(term)):
                self._weights[field][term] = WEIGHTS[field] * (K1 + 1) * idf(statistics.docs, containing)
        # Without an average every length is taken for usual.
        self._slopes = [K1 * B / average if average else 0.0 for average in statistics.average_lengths]
        self._offsets = [K1 * (1 - B) if average else K1 for average in statistics.average_lengths]

    def score(self, document: Document) -> float:
        total = 0.0
        for field, counts in enumerate(document.counts):
            weights = self._weights[field]
            found = counts.keys() & weights.keys()
            if found:
                norm = self._offsets[field] + self._slopes[field] * stored_length(document.lengths[field])
                total += sum(weights[term] * counts[term] / (counts[term] + norm) for term in sorted(found))
        return total
