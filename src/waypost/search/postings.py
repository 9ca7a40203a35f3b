"""Lexical scores on one segment: the rows that say most of what was asked, and the exact score of any row.

Terms are taken one after the other, those that can add most first. Once the rest cannot lift an unseen row into the answer,
only rows already seen are looked up in what is left: common words cost little.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost.search.document import SAID
from waypost.search.segment import Rows, Segment

Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

_PRUNE_FROM: Final = 20_000  # postings left: below this, adding them all is quicker than thinking about it
_LOOK_UP: Final = 20  # one row looked up in a term costs as much as adding this many postings
_GATHER: Final = 4_000  # admitted rows: below this, each is scored by itself
_BY_ROW: Final = 256  # admitted rows: below this, what each holds is read, and not who holds a term
_FLAT: Final = 4  # rows of a segment for each that was touched: up to that all sums are looked through, in their order
_STEP: Final = 16  # of how many rows one is a sample
_MARGINS: Final = (3, 12)  # of the rows wanted, so many are looked for: a row is touched by several terms
_ONE: Final = np.uint8(1)
_UNIT: Final = np.float32(1 / 255)
_ONE_STEP: Final = float(_UNIT)


class _Memory(threading.local):
    """Room for the sums of a segment, per thread: zeroing it anew for each question would cost more than the question."""

    totals: Scores = np.zeros(0, dtype=np.float32)
    columns: npt.NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def zeros(self, count: int) -> Scores:
        """Whoever takes them gives them back as zeros."""
        if count > len(self.totals):
            self.totals = np.zeros(count, dtype=np.float32)
        return self.totals[:count]

    def no_columns(self, count: int) -> npt.NDArray[np.uint8]:
        """A byte for each term of a segment. Whoever takes them gives them back as zeros."""
        if count > len(self.columns):
            self.columns = np.zeros(count, dtype=np.uint8)
        return self.columns[:count]


_memory = _Memory()


class Weighted:
    """The terms of a question that a segment knows, with their weights, heaviest bound first."""

    def __init__(
        self, segment: Segment, numbers: Sequence[int], weights: Sequence[float], heavy: Container[int]
    ) -> None:
        """`numbers` are those of the terms in this segment; -1 where it has none. `heavy` terms, by their place in the
        question, choose the candidates; what the others add is counted for every candidate."""
        self.segment = segment
        self._numbers = numbers
        self._weights = np.array(weights, dtype=np.float32) * _UNIT
        choosing = [at for at, number in enumerate(numbers) if number >= 0 and at in heavy and weights[at] > 0]
        tops = segment.tops.take([numbers[at] for at in choosing]).tolist() if choosing else ()
        bounds = {at: weights[at] * top * _ONE_STEP for at, top in zip(choosing, tops, strict=True)}
        self._order = sorted(bounds, key=bounds.__getitem__, reverse=True)
        self._bounds = [bounds[at] for at in self._order]
        self._ordered = [(segment.terms.span(numbers[at]), self._weights[at]) for at in self._order]

    def best(self, mask: Mask, admitted: int, limit: int) -> tuple[Rows, Scores]:
        """The best `limit` admitted rows by the heavy terms, in no order. `admitted` counts the mask."""
        if not self._ordered or not admitted:
            return _NO_ROWS, _NO_SCORES
        if admitted < _GATHER:
            rows = np.flatnonzero(mask).astype(np.uint32)
            scores = self._said_by(rows) if admitted <= _BY_ROW else _added(self.segment, self._ordered, rows)
            return self._largest(rows[scores > 0], scores[scores > 0], limit)
        return self._by_term(mask, admitted, limit)

    def _said_by(self, rows: Rows) -> Scores:
        """The same sums from what the rows themselves hold: who else says a word is no work."""
        owners, columns, impacts = self._held(rows)
        held = np.zeros((len(self._weights), len(rows)), dtype=np.uint8)
        held[columns, owners] = impacts & 0xFF
        scores = np.zeros(len(rows), dtype=np.float32)
        for at in filter(set(columns.tolist()).__contains__, self._order):
            scores += held[at] * self._weights[at]
        return scores

    def _by_term(self, mask: Mask, admitted: int, limit: int) -> tuple[Rows, Scores]:
        """Sums are kept for every row of the segment, but only rows that some term touched are ever looked at."""
        seen = None if admitted == self.segment.count else mask
        left = sum(span.stop - span.start for span, _ in self._ordered)
        if left <= _PRUNE_FROM:
            return self._at_once(seen, limit)
        totals, touched = _memory.zeros(self.segment.count), list[Places]()
        try:
            rest, taken, try_below = sum(self._bounds), 0.0, 0.5
            for at, (span, weight) in enumerate(self._ordered):
                if left > _PRUNE_FROM and rest < try_below * taken:
                    try_below = rest / taken / 2  # looking costs a pass over what was touched
                    settled = self._settled(totals, touched, seen, at, limit)
                    if settled is not None and len(settled) * (len(self._ordered) - at) * _LOOK_UP < left:
                        added = _added(self.segment, self._ordered[at:], settled)
                        return self._largest(settled, totals[settled] + added, limit)
                places = self.segment.terms.rows[span].astype(np.intp)
                touched.append(places)
                np.add.at(totals, places, self.segment.impacts[span] * weight)
                left -= len(places)
                rest, taken = rest - self._bounds[at], taken + self._bounds[at]
            rows = _above(totals, np.concatenate(touched), seen, limit)
            return self._largest(rows, totals[rows], limit)
        finally:
            for places in touched:
                totals[places] = 0

    def _at_once(self, seen: Mask | None, limit: int) -> tuple[Rows, Scores]:
        """The same where there is little to add: all terms in one go, in their order."""
        spans = [span for span, _ in self._ordered]
        places = np.concatenate([self.segment.terms.rows[span] for span in spans]).astype(np.intp)
        weights = np.repeat(self._weights.take(self._order), [span.stop - span.start for span in spans])
        weights *= np.concatenate([self.segment.impacts[span] for span in spans])
        totals = _memory.zeros(self.segment.count)
        try:
            np.add.at(totals, places, weights)
            rows = _above(totals, places, seen, limit)
            return self._largest(rows, totals[rows], limit)
        finally:
            if len(totals) <= _FLAT * len(places):
                totals.fill(0)
            else:
                totals[places] = 0

    def _settled(
        self, totals: Scores, touched: Sequence[Places], seen: Mask | None, at: int, limit: int
    ) -> Rows | None:
        """The touched rows that may still be among the best, when no other row can be; else None."""
        rest = np.float32(sum(self._bounds[at:]))
        rows = np.concatenate(touched)
        scores = totals.take(rows)
        likely = _once(rows[scores > rest], seen)  # a row with less can be passed by one that nobody has touched
        if len(likely) < limit:
            return None
        floor = np.partition(totals[likely], len(likely) - limit)[len(likely) - limit]
        return _once(rows[scores >= floor - rest], seen)

    def measured(self, rows: Rows, has: Scores) -> tuple[Scores, Scores]:
        """[rows, units]: what the terms of a unit add to each row's score, and how many of them its description says. `has`
        [terms, units] tells the terms of each unit; the first has all."""
        owners, columns, impacts = self._held(rows)
        added, is_said = (impacts & 0xFF) * self._weights.take(columns), impacts >= SAID
        if has.shape[1] == 1:
            sums, counts = np.bincount(owners, added, len(rows)), np.bincount(owners[is_said], minlength=len(rows))
            return sums.astype(np.float32)[:, None], counts.astype(np.float32)[:, None]
        scores = np.zeros((len(rows), len(has)))
        said = np.zeros(scores.shape, dtype=np.float32)
        spots = owners * len(has) + columns
        scores.reshape(-1)[spots] = added
        said.reshape(-1)[spots] = is_said
        return (scores @ has).astype(np.float32), said @ has  # wide sums, so that their number shows in no digit

    def _held(self, rows: Rows) -> tuple[Places, npt.NDArray[np.uint8], npt.NDArray[np.uint16]]:
        """Where a row holds a term of the question: which row, which term, and its impact."""
        spots, ends = self.segment.holdings_of(rows)
        known = [at for at, number in enumerate(self._numbers) if number >= 0]
        asked = [self._numbers[at] for at in known]
        table = _memory.no_columns(len(self.segment.terms.keys))
        table[asked] = np.array(known, dtype=np.uint8) + _ONE
        columns = table.take(self.segment.arrays["row_terms"].take(spots))  # most of what a row holds was not asked for
        table[asked] = 0
        left = columns.nonzero()[0]
        impacts = self.segment.arrays["row_impacts"].take(spots.take(left))
        return ends.searchsorted(left, "right"), columns.take(left) - _ONE, impacts

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


def _above(totals: Scores, rows: Places, seen: Mask | None, limit: int) -> Rows:
    """Of the rows that were touched those among which the best `limit` are, and few more. A sample proposes where to cut."""
    sample = totals.take(rows[::_STEP])
    for margin in _MARGINS:
        wanted = len(sample) - margin * limit // _STEP - 2
        if wanted > 0:
            found = _reaching(totals, rows, np.partition(sample, wanted)[wanted], seen)
            if len(found) >= limit:
                return found
    return _once(rows, seen)


def _reaching(totals: Scores, rows: Places, least: np.float32, seen: Mask | None) -> Rows:
    """Of these rows, of which some come several times, each that has at least so much."""
    if len(totals) > _FLAT * len(rows):
        return _once(rows[totals.take(rows) >= least], seen)
    found = (totals >= least).nonzero()[0]
    return (found if seen is None else found[seen[found]]).astype(np.uint32)


def _once(rows: Places, seen: Mask | None) -> Rows:
    """Each of these rows, if it is seen, once and in order."""
    ordered = np.sort(rows if seen is None else rows[seen[rows]])
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first].astype(np.uint32)


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
