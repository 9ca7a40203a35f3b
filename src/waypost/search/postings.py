"""Lexical scores on one segment: the rows that say most of what was asked, and what is known of any row.

How they are found is in `plain_words`, and in its compiled twin.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from waypost.search.plain_words import Mask, Measured, Scores, Wishes
from waypost.search.segment import Rows, Segment

Best = tuple[Rows, Scores, int]
"""Rows in order, their figures, and how many of the rows are deprecated."""


class Weighted:
    """The terms of a question as a segment knows them, with their weights."""

    def __init__(
        self, segment: Segment, numbers: Sequence[int], weights: Sequence[float], heavy: Container[int]
    ) -> None:
        """`numbers` are those of the terms in this segment; -1 where it has none. `heavy` terms, by their place in the
        question, choose the candidates; what the others add is counted for every candidate."""
        self.segment = segment
        self._numbers = numbers
        self._weights = weights
        self._heavy = heavy

    def best(self, mask: Mask, admitted: int, limit: int) -> Best:
        """The best `limit` admitted rows by the heavy terms. `admitted` counts the mask."""
        table = self.segment.table
        return table.best(self._numbers, self._weights, self._heavy, mask, admitted, limit)

    def measured(self, place: int, rows: Rows, has: Scores, wishes: Wishes) -> Measured:
        """`has` [terms, units] tells the terms of each unit of the question; the first has all."""
        return self.segment.table.measured(place, rows, self._numbers, self._weights, has, wishes)
