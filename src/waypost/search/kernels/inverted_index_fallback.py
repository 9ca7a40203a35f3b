"""The inverted index of one segment in numpy: the fallback of `inverted_index.pyx`.

Terms are added in the order of their highest possible contribution (MaxScore): once the remaining ones cannot lift an untouched
row into the result, only touched rows are completed. So common words cost little.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique_counts

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.uint32]
Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Wishes = Sequence[tuple[Sequence[tuple[int, float]], bool]]
"""Preferred tags: the keys of the spellings with their weights, and whether the caller named the tag."""

_BY_ROW: Final = 256  # admitted rows; up to this many, their own terms are read instead of posting lists
_FLAT: Final = 4  # rows of the segment per posting: up to this ratio all totals are scanned
_STEP: Final = 16  # one of so many rows is sampled
_MARGINS: Final = (3, 12)  # the cut aims at so many times the wanted rows: a row is touched by several terms
_ONE: Final = np.uint8(1)


Best = tuple[Rows, Scores, int]
"""Sorted rows, their scores, and how many of them are deprecated."""
Measured = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.uint64], Mask, Scores, npt.NDArray[np.float64], npt.NDArray[np.uint8],
    Scores, Scores, Scores, Scores,
]  # fmt: skip
"""By column: `place`, `mark`, `deprecated`, `worth`, `updated`, `language`, `lexical`, `coverage`, `tags` and `preferred` of
`candidates.Signals`."""


class _Memory(threading.local):
    """Totals per thread: allocating zeros for each query would cost more than the query."""

    totals: Scores = np.zeros(0, dtype=np.float32)
    columns: npt.NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def zeros(self, count: int) -> Scores:
        """The caller resets them to zero."""
        if count > len(self.totals):
            self.totals = np.zeros(count, dtype=np.float32)
        return self.totals[:count]

    def no_columns(self, count: int) -> npt.NDArray[np.uint8]:
        """A byte for each term of a segment; the caller resets them to zero."""
        if count > len(self.columns):
            self.columns = np.zeros(count, dtype=np.uint8)
        return self.columns[:count]


_memory = _Memory()


class InvertedIndex:
    """Postings and columns of one segment."""

    def __init__(
        self, arrays: Mapping[str, Array], *, said: int, unit: float, gather: int, prune_from: int, look_up: int
    ) -> None:
        """Impacts of at least `said` are of terms in the description; `unit` is the value of one impact step. With fewer admitted
        rows than `gather`, each is scored by itself. With at most `prune_from` postings left, adding them all is quicker
        than pruning. Looking up one row in a term costs as much as adding `look_up` postings."""
        self._arrays = arrays
        self._said, self._unit = said, unit
        self._gather, self._prune_from, self._look_up = gather, prune_from, look_up
        self.count = len(arrays["tier"])

    # --- Statistics ------------------------------------------------------------------------------

    def find_terms(self, terms: Sequence[int]) -> list[int]:
        """The number of each term, or -1."""
        return _numbers(self._arrays["terms"], terms)

    def count_documents(
        self, counts: npt.NDArray[np.int32], terms: Sequence[int], tiers: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """The number of each term, or -1, and its document frequency in these tiers. `counts` is [tiers, terms]."""
        numbers = self.find_terms(terms)
        frequencies = [int(counts[tiers, number].sum()) if number >= 0 else 0 for number in numbers]
        return numbers, frequencies

    def count_in_rows(self, rows: Rows, numbers: Sequence[int], tiers: Sequence[int]) -> tuple[int, list[int]]:
        """How many of the rows are in these tiers, and the document frequency of each term in them."""
        shared = rows[np.isin(self._arrays["tier"][rows], tiers)]
        _, columns, _ = self._matches(shared, numbers)
        return len(shared), np.bincount(columns, minlength=len(numbers)).tolist()

    def _matches(
        self, rows: Rows, numbers: Sequence[int]
    ) -> tuple[Places, npt.NDArray[np.uint8], npt.NDArray[np.uint16]]:
        """The query terms that the rows contain: row, term and impact."""
        spots, ends = self._term_positions(rows)
        known = [at for at, number in enumerate(numbers) if number >= 0]
        wanted = [numbers[at] for at in known]
        table = _memory.no_columns(len(self._arrays["terms"]))
        table[wanted] = np.array(known, dtype=np.uint8) + _ONE
        columns = table.take(self._arrays["row_terms"].take(spots))  # most terms of a row are not in the query
        table[wanted] = 0
        left = columns.nonzero()[0]
        impacts = self._arrays["row_impacts"].take(spots.take(left))
        return ends.searchsorted(left, "right"), columns.take(left) - _ONE, impacts

    def _term_positions(self, rows: Rows) -> tuple[Array, Array]:
        """The positions of these rows in `row_terms` and `row_impacts`, and the end of each row among them."""
        starts = self._arrays["row_starts"].take(rows)
        sizes = self._arrays["row_starts"].take(np.add(rows, 1, dtype=np.intp)) - starts
        ends = sizes.cumsum()
        return np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0), ends

    # --- Hard filters ----------------------------------------------------------------------------

    def filter_rows(
        self, required: Sequence[int], accepted: Sequence[int], excluded: Sequence[int], mask: Mask
    ) -> tuple[Mask, int]:
        """The rows of a mask with all required keys, any of the accepted ones (if given) and no excluded one; and their
        number."""
        left = mask.copy()
        for key in required:
            left &= self._rows_with_any([key])
        if accepted:
            left &= self._rows_with_any(accepted)
        left &= ~self._rows_with_any(excluded)
        return left, int(np.count_nonzero(left))

    def _rows_with_any(self, keys: Sequence[int]) -> Mask:
        found = np.zeros(self.count, dtype=np.bool_)
        for number in _numbers(self._arrays["keys"], keys):
            if number >= 0:
                found[self._holders(number)] = True
        return found

    # --- The best rows ---------------------------------------------------------------------------

    def best_by_terms(
        self,
        numbers: Sequence[int],
        weights: Sequence[float],
        selective: Container[int],
        mask: Mask,
        admitted: int,
        limit: int,
    ) -> Best:
        """The best `limit` admitted rows by the selective terms. `numbers` are the terms' numbers in this segment (-1: unknown),
        `selective` their places in the query. `admitted` counts the mask."""
        terms = _SelectiveTerms(self._arrays, self._unit, numbers, weights, selective)
        if not terms.order or not admitted:
            return _NO_ROWS, _NO_SCORES, 0
        if admitted < self._gather:
            rows = np.flatnonzero(mask).astype(np.uint32)
            scores = (
                self._score_rows(rows, terms, numbers) if admitted <= _BY_ROW else self._add_terms(terms.ordered, rows)
            )
            return self._largest(rows[scores > 0], scores[scores > 0], limit)
        return self._by_term(terms, mask, admitted, limit)

    def best_by_keys(self, keys: Sequence[int], mask: Mask, admitted: int, limit: int) -> Best:
        """The same by the number of keys that they have."""
        postings = [self._holders(number) for number in _numbers(self._arrays["keys"], keys) if number >= 0]
        if not postings or not admitted:
            return _NO_ROWS, _NO_SCORES, 0
        if admitted < self._gather:  # search the few rows in the posting lists
            own = np.flatnonzero(mask).astype(np.uint32)
            found = [own[_is_among(own, holders)] for holders in postings]
        else:
            found = [holders[mask[holders]] for holders in postings]
        rows, times = sorted_unique_counts(np.concatenate(found))
        return self._largest(rows, times.astype(np.float32), limit)

    def _holders(self, number: int) -> Rows:
        starts = self._arrays["key_starts"]
        holders: Rows = self._arrays["key_rows"][int(starts[number]) : int(starts[number + 1])]
        return holders

    def _score_rows(self, rows: Rows, terms: _SelectiveTerms, numbers: Sequence[int]) -> Scores:
        """The same sums from the terms of the rows, without posting lists."""
        owners, columns, impacts = self._matches(rows, numbers)
        found = np.zeros((len(numbers), len(rows)), dtype=np.uint8)
        found[columns, owners] = impacts & (self._said - 1)
        scores = np.zeros(len(rows), dtype=np.float32)
        for at in filter(set(columns.tolist()).__contains__, terms.order):
            scores += found[at] * terms.weights[at]
        return scores

    def _by_term(self, terms: _SelectiveTerms, mask: Mask, admitted: int, limit: int) -> Best:
        """Totals exist for every row of the segment, but only touched rows are read."""
        visible = None if admitted == self.count else mask
        left = sum(span.stop - span.start for span, _ in terms.ordered)
        if left <= self._prune_from:
            return self._at_once(terms, visible, limit)
        totals, touched = _memory.zeros(self.count), list[Places]()
        try:
            rest, taken, try_below = _sum(terms.bounds), 0.0, 0.5
            for at, (span, weight) in enumerate(terms.ordered):
                if left > self._prune_from and rest < try_below * taken:
                    try_below = rest / taken / 2  # a check costs a pass over the touched rows
                    complete = _completable(totals, touched, visible, np.float32(_sum(terms.bounds[at:])), limit)
                    if complete is not None and len(complete) * (len(terms.ordered) - at) * self._look_up < left:
                        added = self._add_terms(terms.ordered[at:], complete)
                        return self._largest(complete, totals[complete] + added, limit)
                places = self._arrays["term_rows"][span].astype(np.intp)
                touched.append(places)
                np.add.at(totals, places, self._arrays["term_impacts"][span] * weight)
                left -= len(places)
                rest, taken = rest - terms.bounds[at], taken + terms.bounds[at]
            rows = _above(totals, np.concatenate(touched), visible, limit)
            return self._largest(rows, totals[rows], limit)
        finally:
            for places in touched:
                totals[places] = 0

    def _at_once(self, terms: _SelectiveTerms, visible: Mask | None, limit: int) -> Best:
        """The same for few postings: all terms in one step, in their order."""
        spans = [span for span, _ in terms.ordered]
        places = np.concatenate([self._arrays["term_rows"][span] for span in spans]).astype(np.intp)
        weights = np.repeat(terms.weights.take(terms.order), [span.stop - span.start for span in spans])
        weights *= np.concatenate([self._arrays["term_impacts"][span] for span in spans])
        totals = _memory.zeros(self.count)
        try:
            np.add.at(totals, places, weights)
            rows = _above(totals, places, visible, limit)
            return self._largest(rows, totals[rows], limit)
        finally:
            if len(totals) <= _FLAT * len(places):
                totals.fill(0)
            else:
                totals[places] = 0

    def _add_terms(self, terms: Sequence[tuple[slice, np.float32]], rows: Rows) -> Scores:
        scores = np.zeros(len(rows), dtype=np.float32)
        for span, weight in terms:
            holders = self._arrays["term_rows"][span]
            places = holders.searchsorted(rows)
            places[places == len(holders)] = 0
            found = holders[places] == rows
            scores[found] += self._arrays["term_impacts"][span][places[found]] * weight
        return scores

    def _largest(self, rows: Rows, scores: Scores, limit: int) -> Best:
        """The best rows; ties with the last are broken by mark (the hash of the id)."""
        if len(rows) > limit:
            floor = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            above, level = np.flatnonzero(scores > floor), np.flatnonzero(scores == floor)
            if len(above) + len(level) > limit:
                wanted = limit - len(above)
                level = level[np.argpartition(self._arrays["mark"][rows[level]], wanted - 1)[:wanted]]
            chosen = np.sort(np.concatenate((above, level)))
            rows, scores = rows[chosen], scores[chosen]
        return rows, scores, int(np.count_nonzero(self._arrays["deprecated"][rows]))

    # --- Columns of rows -------------------------------------------------------------------------

    def measure_rows(
        self,
        place: int,
        rows: Rows,
        numbers: Sequence[int],
        weights: Sequence[float],
        has: Scores,
        wishes: Wishes,
    ) -> Measured:
        """`has` [terms, units] flags the terms of each unit of the query; the first unit has all."""
        arrays, at = self._arrays, rows.astype(np.intp)
        lexical, said = self._lexical_scores(rows, numbers, weights, has)
        lengths = np.maximum(arrays["said"].take(at), 1).astype(np.float32)
        tags, preferred = self._tags(rows, wishes)
        return (
            np.full(len(rows), place),
            arrays["mark"].take(at),
            arrays["deprecated"].take(at),
            arrays["worth"].take(at),
            arrays["updated"].take(at),
            arrays["language"].take(at),
            lexical,
            said / lengths[:, None],
            tags,
            preferred,
        )

    def _lexical_scores(
        self, rows: Rows, numbers: Sequence[int], weights: Sequence[float], has: Scores
    ) -> tuple[Scores, Scores]:
        """[rows, units]: the score of each row by the terms of a unit, and how many of them its description contains."""
        owners, columns, impacts = self._matches(rows, numbers)
        by_term = np.array(weights, dtype=np.float32) * np.float32(self._unit)
        added = (impacts & (self._said - 1)) * by_term.take(columns)
        scores, said = np.zeros((2, len(rows), len(has)))
        spots = owners * len(has) + columns
        scores.reshape(-1)[spots] = added
        said.reshape(-1)[spots] = impacts >= self._said
        # float64 sums, so that the number of terms shows in no digit.
        return (scores @ has).astype(np.float32), (said @ has).astype(np.float32)

    def _tags(self, rows: Rows, wishes: Wishes) -> tuple[Scores, Scores]:
        """For each wished tag the weight of the best spelling that a row carries: the mean over the tags found in the query text,
        and over the explicitly preferred ones."""
        read, named = np.zeros((2, len(rows)), dtype=np.float32)
        for keys, is_explicit in wishes:
            best = np.zeros(len(rows), dtype=np.float32)
            for number, (_, worth) in zip(_numbers(self._arrays["keys"], [key for key, _ in keys]), keys, strict=True):
                if number >= 0:
                    np.maximum(best, np.float32(worth), out=best, where=_is_among(rows, self._holders(number)))
            if is_explicit:
                named += best
            else:
                read += best
        preferred_count = sum(is_explicit for _, is_explicit in wishes)
        return read / np.float32(max(1, len(wishes) - preferred_count)), named / np.float32(max(1, preferred_count))


class _SelectiveTerms:
    """The selective terms that a segment knows, by their highest possible contribution."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        unit: float,
        numbers: Sequence[int],
        weights: Sequence[float],
        selective: Container[int],
    ) -> None:
        self.weights = np.array(weights, dtype=np.float32) * np.float32(unit)
        chosen = [at for at, number in enumerate(numbers) if number >= 0 and at in selective and weights[at] > 0]
        bounds = {at: weights[at] * int(arrays["term_tops"][numbers[at]]) * unit for at in chosen}
        starts = arrays["term_starts"]
        spans = {at: slice(int(starts[numbers[at]]), int(starts[numbers[at] + 1])) for at in chosen}
        self.order = sorted(bounds, key=bounds.__getitem__, reverse=True)
        self.bounds = [bounds[at] for at in self.order]
        self.ordered = [(spans[at], self.weights[at]) for at in self.order]


def _is_among(rows: Rows, holders: Rows) -> Mask:
    is_member: Mask = holders.take(holders.searchsorted(rows), mode="clip") == rows
    return is_member


def _numbers(keys: Array, wanted: Sequence[int]) -> list[int]:
    if not len(keys):
        return [-1] * len(wanted)
    looked_for = np.array(wanted, dtype=np.uint64)
    at = keys.searchsorted(looked_for)
    at[at == len(keys)] = 0
    return np.where(keys[at] == looked_for, at, -1).tolist()  # type: ignore[no-any-return]


def _sum(figures: Sequence[float]) -> float:
    """Add in order, as the kernel does: `sum` of Python 3.12 and later compensates rounding errors."""
    total = 0.0
    for figure in figures:
        total += figure
    return total


def _completable(
    totals: Scores, touched: Sequence[Places], visible: Mask | None, rest: np.float32, limit: int
) -> Rows | None:
    """The touched rows that may still be in the result, if no untouched row can be; else None."""
    rows = np.concatenate(touched)
    scores = totals.take(rows)
    likely = _once(rows[scores > rest], visible)  # a row with less can be passed by an untouched one
    if len(likely) < limit:
        return None
    floor = np.partition(totals[likely], len(likely) - limit)[len(likely) - limit]
    return _once(rows[scores >= floor - rest], visible)


def _above(totals: Scores, rows: Places, visible: Mask | None, limit: int) -> Rows:
    """The best `limit` touched rows and few more, by the cut of a sample."""
    sample = totals.take(rows[::_STEP])
    for margin in _MARGINS:
        wanted = len(sample) - margin * limit // _STEP - 2
        if wanted > 0:
            found = _reaching(totals, rows, np.partition(sample, wanted)[wanted], visible)
            if len(found) >= limit:
                return found
    return _once(rows, visible)


def _reaching(totals: Scores, rows: Places, least: np.float32, visible: Mask | None) -> Rows:
    """The distinct visible rows with a total of at least `least`."""
    if len(totals) > _FLAT * len(rows):
        return _once(rows[totals.take(rows) >= least], visible)
    found = (totals >= least).nonzero()[0]
    return (found if visible is None else found[visible[found]]).astype(np.uint32)


def _once(rows: Places, visible: Mask | None) -> Rows:
    """The distinct visible rows, sorted."""
    ordered = np.sort(rows if visible is None else rows[visible[rows]])
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first].astype(np.uint32)


_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.uint32)
_NO_SCORES: Final[Scores] = np.zeros(0, dtype=np.float32)
