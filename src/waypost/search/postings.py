"""Lexical scores on one segment: the rows that say most of what was asked, and the exact score of any row.

Terms are taken one after the other, those that can add most first. Once the rest cannot lift an unseen row into the answer,
only rows already seen are looked up in what is left: common words cost little.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost.search.segment import Rows, Segment

Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_PRUNE_FROM: Final = 20_000  # postings left: below this, adding them all is quicker than thinking about it
_LOOK_UP: Final = 20  # one row looked up in a term costs as much as adding this many postings
_GATHER: Final = 4_000  # admitted rows: below this, each is scored by itself
_STEP: Final = 16  # of how many rows one is a sample
_MARGIN: Final = 3
_UNIT: Final = np.float32(1 / 255)


class Weighted:
    """The terms of a question that a segment knows, with their weights, heaviest bound first."""

    def __init__(
        self, segment: Segment, numbers: Sequence[int], weights: Sequence[float], heavy: Container[int]
    ) -> None:
        """`numbers` are those of the terms in this segment; -1 where it has none. `heavy` terms, by their place in the
        question, choose the candidates; what the others add is counted for every candidate."""
        self.segment = segment
        self._places = [
            (segment.terms.span(number), np.float32(weight) * _UNIT) if number >= 0 and weight > 0 else None
            for number, weight in zip(numbers, weights, strict=True)
        ]
        self._asked = [place for place in self._places if place is not None]
        bounds = {
            at: weights[at] * float(segment.tops[number]) * float(_UNIT)
            for at, number in enumerate(numbers)
            if number >= 0 and at in heavy
        }
        order = sorted(bounds, key=bounds.__getitem__, reverse=True)
        self._bounds = [bounds[at] for at in order]
        self._ordered = [place for at in order if (place := self._places[at]) is not None]

    def best(self, mask: Mask, admitted: int, limit: int) -> tuple[Rows, Scores]:
        """The best `limit` admitted rows by the heavy terms, in no order. `admitted` counts the mask."""
        if not self._ordered or not admitted:
            return _NO_ROWS, _NO_SCORES
        if admitted < _GATHER:
            rows = np.flatnonzero(mask).astype(np.uint32)
            scores = _added(self.segment, self._ordered, rows)
            return self._largest(rows[scores > 0], scores[scores > 0], limit)
        return self._by_term(mask, limit)

    def _by_term(self, mask: Mask, limit: int) -> tuple[Rows, Scores]:
        totals = np.zeros(self.segment.count, dtype=np.float32)
        left = sum(span.stop - span.start for span, _ in self._ordered)
        rest, taken = sum(self._bounds), 0.0
        try_below = 0.5
        for at, (span, weight) in enumerate(self._ordered):
            if left > max(_PRUNE_FROM, self.segment.count // 4) and rest < try_below * taken:
                try_below = rest / taken / 2  # looking costs a pass over the segment
                seen = self._settled(totals, mask, at, limit)
                if seen is not None and len(seen) * (len(self._ordered) - at) * _LOOK_UP < left:
                    return self._largest(seen, totals[seen] + _added(self.segment, self._ordered[at:], seen), limit)
            totals[self.segment.terms.rows[span]] += self.segment.impacts[span] * weight
            left -= span.stop - span.start
            rest, taken = rest - self._bounds[at], taken + self._bounds[at]
        totals *= mask
        rows = np.flatnonzero(totals > _cut(totals, limit)).astype(np.uint32)
        return self._largest(rows, totals[rows], limit)

    def _settled(self, totals: Scores, mask: Mask, at: int, limit: int) -> Rows | None:
        """The seen rows that may still be among the best, when no unseen row can be; else None."""
        rest = np.float32(sum(self._bounds[at:]))
        likely = np.flatnonzero(totals > rest)  # a row with less can be passed by one that nobody has seen
        likely = likely[mask[likely]]
        if len(likely) < limit:
            return None
        scores = totals[likely]
        floor = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        seen = np.flatnonzero(totals >= floor - rest)  # `floor` is above `rest`, so all of these were seen
        return seen[mask[seen]].astype(np.uint32)

    def score(self, rows: Rows) -> Scores:
        """The exact score of each row, added up in the order of the question: the same in any segment."""
        return _added(self.segment, self._asked, rows)

    def measured(self, rows: Rows) -> tuple[Scores, Mask]:
        """What each term of the question adds to each row's score, and whether the row's description says it:
        [rows, terms], in the order of the question."""
        scores = np.zeros((len(self._places), len(rows)), dtype=np.float32)
        said = np.zeros(scores.shape, dtype=np.bool_)
        for at, place in enumerate(self._places):
            if place is not None:
                span, weight = place
                holders = self.segment.terms.rows[span]
                places = holders.searchsorted(rows)
                places[places == len(holders)] = 0
                found = holders[places] == rows
                chosen = places[found]
                scores[at, found] = self.segment.impacts[span][chosen] * weight
                said[at, found] = self.segment.said[span][chosen]
        return scores.T, said.T

    def _largest(self, rows: Rows, scores: Scores, limit: int) -> tuple[Rows, Scores]:
        """The best. Among those that tie with the last, the marks decide: a common word has many equals."""
        if len(rows) <= limit:
            return rows, scores
        floor = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above, level = np.flatnonzero(scores > floor), np.flatnonzero(scores == floor)
        if len(above) + len(level) > limit:
            wanted = limit - len(above)
            level = level[np.argpartition(self.segment.mark[rows[level]], wanted - 1)[:wanted]]
        chosen = np.concatenate((above, level))
        return rows[chosen], scores[chosen]


def _cut(totals: Scores, limit: int) -> np.float32:
    """A score that at least `limit` rows surpass, and few more; 0 if there is none. A sample proposes it."""
    sample = totals[::_STEP]
    wanted = len(sample) - _MARGIN * limit // _STEP - 2
    if wanted > 0:
        proposed = np.float32(np.partition(sample, wanted)[wanted])
        if np.count_nonzero(totals > proposed) >= limit:
            return proposed
    return np.float32(0)


def _added(segment: Segment, terms: list[tuple[slice, np.float32]], rows: Rows) -> Scores:
    scores = np.zeros(len(rows), dtype=np.float32)
    for span, weight in terms:
        holders = segment.terms.rows[span]
        places = holders.searchsorted(rows)
        places[places == len(holders)] = 0
        found = holders[places] == rows
        scores[found] += segment.impacts[span][places[found]] * weight
    return scores


_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.uint32)
_NO_SCORES: Final[Scores] = np.zeros(0, dtype=np.float32)
