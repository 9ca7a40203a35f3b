"""Questions by words on one segment, in numpy: who says most of what was asked, and what is known of any row.

Twin of `waypost.search.kernels.words`, which takes its place where it is compiled and gives the same answers.

Terms are taken one after the other, those that can add most first. Once the rest cannot lift an unseen row into the answer,
only rows already seen are looked up in what is left: common words cost little.
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
"""Tags that count in favour: the keys of its spellings with what each is worth, and whether it was asked for by name."""

_BY_ROW: Final = 256  # admitted rows: below this, what each holds is read, and not who holds a term
_FLAT: Final = 4  # rows of a segment for each that was touched: up to that all sums are looked through, in their order
_STEP: Final = 16  # of how many rows one is a sample
_MARGINS: Final = (3, 12)  # of the rows wanted, so many are looked for: a row is touched by several terms
_ONE: Final = np.uint8(1)


Best = tuple[Rows, Scores, int]
"""Rows in order, their figures, and how many of them are deprecated."""
Measured = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.uint64], Mask, Scores, npt.NDArray[np.float64], npt.NDArray[np.uint8],
    Scores, Scores, Scores, Scores,
]  # fmt: skip
"""By column: `place`, `mark`, `deprecated`, `worth`, `updated`, `language`, `lexical`, `coverage`, `tags` and `preferred` of
`candidates.Signals`."""


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


class Table:
    """The arrays of one segment, at hand."""

    def __init__(
        self, arrays: Mapping[str, Array], *, said: int, unit: float, gather: int, prune_from: int, look_up: int
    ) -> None:
        """`said`: from there on an impact is of a term that the description says; `unit`: of an impact. With fewer admitted
        rows than `gather` each is scored by itself. With no more postings left than `prune_from`, adding them all is
        quicker than thinking about it. One row looked up in a term costs as much as adding `look_up` postings."""
        self._arrays = arrays
        self._said, self._unit = said, unit
        self._gather, self._prune_from, self._look_up = gather, prune_from, look_up
        self.count = len(arrays["tier"])

    # --- Looking up ------------------------------------------------------------------------------

    def numbers(self, terms: Sequence[int]) -> list[int]:
        """The number of each term, or -1."""
        return _numbers(self._arrays["terms"], terms)

    def counted(
        self, counts: npt.NDArray[np.int32], terms: Sequence[int], tiers: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """The number of each term, or -1, and how many rows of these tiers hold it: `counts` is [tiers, terms]."""
        numbers = self.numbers(terms)
        held = [int(counts[tiers, number].sum()) if number >= 0 else 0 for number in numbers]
        return numbers, held

    def holding(self, rows: Rows, numbers: Sequence[int], tiers: Sequence[int]) -> tuple[int, list[int]]:
        """How many of the rows are of these tiers, and how many of these hold each term."""
        shared = rows[np.isin(self._arrays["tier"][rows], tiers)]
        _, columns, _ = self._held(shared, numbers)
        return len(shared), np.bincount(columns, minlength=len(numbers)).tolist()

    def _held(self, rows: Rows, numbers: Sequence[int]) -> tuple[Places, npt.NDArray[np.uint8], npt.NDArray[np.uint16]]:
        """Where a row holds a term of the question: which row, which term, and its impact."""
        spots, ends = self._holdings_of(rows)
        known = [at for at, number in enumerate(numbers) if number >= 0]
        asked = [numbers[at] for at in known]
        table = _memory.no_columns(len(self._arrays["terms"]))
        table[asked] = np.array(known, dtype=np.uint8) + _ONE
        columns = table.take(self._arrays["row_terms"].take(spots))  # most of what a row holds was not asked for
        table[asked] = 0
        left = columns.nonzero()[0]
        impacts = self._arrays["row_impacts"].take(spots.take(left))
        return ends.searchsorted(left, "right"), columns.take(left) - _ONE, impacts

    def _holdings_of(self, rows: Rows) -> tuple[Array, Array]:
        """Where `row_terms` and `row_impacts` tell of these rows, and how far each of them reaches in that."""
        starts = self._arrays["row_starts"].take(rows)
        sizes = self._arrays["row_starts"].take(np.add(rows, 1, dtype=np.intp)) - starts
        ends = sizes.cumsum()
        return np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0), ends

    # --- Hard filters ----------------------------------------------------------------------------

    def admitted(
        self, required: Sequence[int], accepted: Sequence[int], excluded: Sequence[int], mask: Mask
    ) -> tuple[Mask, int]:
        """The rows of a mask that have every required key, any of the accepted ones, if there are any, and none of the
        excluded ones; and how many these are."""
        left = mask.copy()
        for key in required:
            left &= self._having([key])
        if accepted:
            left &= self._having(accepted)
        left &= ~self._having(excluded)
        return left, int(np.count_nonzero(left))

    def _having(self, keys: Sequence[int]) -> Mask:
        """Whoever has any of them."""
        found = np.zeros(self.count, dtype=np.bool_)
        for number in _numbers(self._arrays["keys"], keys):
            if number >= 0:
                found[self._holders(number)] = True
        return found

    # --- The best rows ---------------------------------------------------------------------------

    def best(
        self,
        numbers: Sequence[int],
        weights: Sequence[float],
        heavy: Container[int],
        mask: Mask,
        admitted: int,
        limit: int,
    ) -> Best:
        """The best `limit` admitted rows by the heavy terms. `numbers` are those of the terms in this segment; -1 where it has
        none. `heavy` terms, by their place in the question, choose. `admitted` counts the mask."""
        terms = _Chosen(self._arrays, self._unit, numbers, weights, heavy)
        if not terms.order or not admitted:
            return _NO_ROWS, _NO_SCORES, 0
        if admitted < self._gather:
            rows = np.flatnonzero(mask).astype(np.uint32)
            scores = self._said_by(rows, terms, numbers) if admitted <= _BY_ROW else self._added(terms.ordered, rows)
            return self._largest(rows[scores > 0], scores[scores > 0], limit)
        return self._by_term(terms, mask, admitted, limit)

    def tagged(self, keys: Sequence[int], mask: Mask, admitted: int, limit: int) -> Best:
        """The same by how many of the keys they have."""
        held = [self._holders(number) for number in _numbers(self._arrays["keys"], keys) if number >= 0]
        if not held or not admitted:
            return _NO_ROWS, _NO_SCORES, 0
        if admitted < self._gather:  # where these are few, who else has a key is hardly any work
            own = np.flatnonzero(mask).astype(np.uint32)
            seen = [own[_is_among(own, holders)] for holders in held]
        else:
            seen = [holders[mask[holders]] for holders in held]
        rows, times = sorted_unique_counts(np.concatenate(seen))
        return self._largest(rows, times.astype(np.float32), limit)

    def _holders(self, number: int) -> Rows:
        starts = self._arrays["key_starts"]
        holders: Rows = self._arrays["key_rows"][int(starts[number]) : int(starts[number + 1])]
        return holders

    def _said_by(self, rows: Rows, terms: _Chosen, numbers: Sequence[int]) -> Scores:
        """The same sums from what the rows themselves hold: who else says a word is no work."""
        owners, columns, impacts = self._held(rows, numbers)
        held = np.zeros((len(numbers), len(rows)), dtype=np.uint8)
        held[columns, owners] = impacts & (self._said - 1)
        scores = np.zeros(len(rows), dtype=np.float32)
        for at in filter(set(columns.tolist()).__contains__, terms.order):
            scores += held[at] * terms.weights[at]
        return scores

    def _by_term(self, terms: _Chosen, mask: Mask, admitted: int, limit: int) -> Best:
        """Sums are kept for every row of the segment, but only rows that some term touched are ever looked at."""
        seen = None if admitted == self.count else mask
        left = sum(span.stop - span.start for span, _ in terms.ordered)
        if left <= self._prune_from:
            return self._at_once(terms, seen, limit)
        totals, touched = _memory.zeros(self.count), list[Places]()
        try:
            rest, taken, try_below = _sum(terms.bounds), 0.0, 0.5
            for at, (span, weight) in enumerate(terms.ordered):
                if left > self._prune_from and rest < try_below * taken:
                    try_below = rest / taken / 2  # looking costs a pass over what was touched
                    settled = _settled(totals, touched, seen, np.float32(_sum(terms.bounds[at:])), limit)
                    if settled is not None and len(settled) * (len(terms.ordered) - at) * self._look_up < left:
                        added = self._added(terms.ordered[at:], settled)
                        return self._largest(settled, totals[settled] + added, limit)
                places = self._arrays["term_rows"][span].astype(np.intp)
                touched.append(places)
                np.add.at(totals, places, self._arrays["term_impacts"][span] * weight)
                left -= len(places)
                rest, taken = rest - terms.bounds[at], taken + terms.bounds[at]
            rows = _above(totals, np.concatenate(touched), seen, limit)
            return self._largest(rows, totals[rows], limit)
        finally:
            for places in touched:
                totals[places] = 0

    def _at_once(self, terms: _Chosen, seen: Mask | None, limit: int) -> Best:
        """The same where there is little to add: all terms in one go, in their order."""
        spans = [span for span, _ in terms.ordered]
        places = np.concatenate([self._arrays["term_rows"][span] for span in spans]).astype(np.intp)
        weights = np.repeat(terms.weights.take(terms.order), [span.stop - span.start for span in spans])
        weights *= np.concatenate([self._arrays["term_impacts"][span] for span in spans])
        totals = _memory.zeros(self.count)
        try:
            np.add.at(totals, places, weights)
            rows = _above(totals, places, seen, limit)
            return self._largest(rows, totals[rows], limit)
        finally:
            if len(totals) <= _FLAT * len(places):
                totals.fill(0)
            else:
                totals[places] = 0

    def _added(self, terms: Sequence[tuple[slice, np.float32]], rows: Rows) -> Scores:
        scores = np.zeros(len(rows), dtype=np.float32)
        for span, weight in terms:
            holders = self._arrays["term_rows"][span]
            places = holders.searchsorted(rows)
            places[places == len(holders)] = 0
            found = holders[places] == rows
            scores[found] += self._arrays["term_impacts"][span][places[found]] * weight
        return scores

    def _largest(self, rows: Rows, scores: Scores, limit: int) -> Best:
        """The best. Among those that tie with the last, the marks decide: a common word has many equals."""
        if len(rows) > limit:
            floor = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            above, level = np.flatnonzero(scores > floor), np.flatnonzero(scores == floor)
            if len(above) + len(level) > limit:
                wanted = limit - len(above)
                level = level[np.argpartition(self._arrays["mark"][rows[level]], wanted - 1)[:wanted]]
            chosen = np.sort(np.concatenate((above, level)))
            rows, scores = rows[chosen], scores[chosen]
        return rows, scores, int(np.count_nonzero(self._arrays["deprecated"][rows]))

    # --- What is known of rows -------------------------------------------------------------------

    def measured(
        self,
        place: int,
        rows: Rows,
        numbers: Sequence[int],
        weights: Sequence[float],
        has: Scores,
        wishes: Wishes,
    ) -> Measured:
        """`has` [terms, units] tells the terms of each unit of the question; the first has all."""
        arrays, at = self._arrays, rows.astype(np.intp)
        lexical, said = self._weighed(rows, numbers, weights, has)
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

    def _weighed(
        self, rows: Rows, numbers: Sequence[int], weights: Sequence[float], has: Scores
    ) -> tuple[Scores, Scores]:
        """[rows, units]: what the terms of a unit add to each row's score, and how many of them its description says."""
        owners, columns, impacts = self._held(rows, numbers)
        by_term = np.array(weights, dtype=np.float32) * np.float32(self._unit)
        added = (impacts & (self._said - 1)) * by_term.take(columns)
        scores, said = np.zeros((2, len(rows), len(has)))
        spots = owners * len(has) + columns
        scores.reshape(-1)[spots] = added
        said.reshape(-1)[spots] = impacts >= self._said
        # Wide sums, so that their number shows in no digit.
        return (scores @ has).astype(np.float32), (said @ has).astype(np.float32)

    def _tags(self, rows: Rows, wishes: Wishes) -> tuple[Scores, Scores]:
        """For each wish the worth of the best spelling that a row carries: as a share of those read from the words, and of
        those asked for by name."""
        read, named = np.zeros((2, len(rows)), dtype=np.float32)
        for keys, is_asked in wishes:
            best = np.zeros(len(rows), dtype=np.float32)
            for number, (_, worth) in zip(_numbers(self._arrays["keys"], [key for key, _ in keys]), keys, strict=True):
                if number >= 0:
                    np.maximum(best, np.float32(worth), out=best, where=_is_among(rows, self._holders(number)))
            if is_asked:
                named += best
            else:
                read += best
        asked_for = sum(is_asked for _, is_asked in wishes)
        return read / np.float32(max(1, len(wishes) - asked_for)), named / np.float32(max(1, asked_for))


class _Chosen:
    """The heavy terms that a segment knows, by what each can add at most."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        unit: float,
        numbers: Sequence[int],
        weights: Sequence[float],
        heavy: Container[int],
    ) -> None:
        self.weights = np.array(weights, dtype=np.float32) * np.float32(unit)
        chosen = [at for at, number in enumerate(numbers) if number >= 0 and at in heavy and weights[at] > 0]
        bounds = {at: weights[at] * int(arrays["term_tops"][numbers[at]]) * unit for at in chosen}
        starts = arrays["term_starts"]
        spans = {at: slice(int(starts[numbers[at]]), int(starts[numbers[at] + 1])) for at in chosen}
        self.order = sorted(bounds, key=bounds.__getitem__, reverse=True)
        self.bounds = [bounds[at] for at in self.order]
        self.ordered = [(spans[at], self.weights[at]) for at in self.order]


def _is_among(rows: Rows, holders: Rows) -> Mask:
    is_held: Mask = holders.take(holders.searchsorted(rows), mode="clip") == rows
    return is_held


def _numbers(keys: Array, wanted: Sequence[int]) -> list[int]:
    if not len(keys):
        return [-1] * len(wanted)
    looked_for = np.array(wanted, dtype=np.uint64)
    at = keys.searchsorted(looked_for)
    at[at == len(keys)] = 0
    return np.where(keys[at] == looked_for, at, -1).tolist()  # type: ignore[no-any-return]


def _sum(figures: Sequence[float]) -> float:
    """One after the other, as the kernel adds: `sum` of a later Python adds more exactly."""
    total = 0.0
    for figure in figures:
        total += figure
    return total


def _settled(totals: Scores, touched: Sequence[Places], seen: Mask | None, rest: np.float32, limit: int) -> Rows | None:
    """The touched rows that may still be among the best, when no other row can be; else None."""
    rows = np.concatenate(touched)
    scores = totals.take(rows)
    likely = _once(rows[scores > rest], seen)  # a row with less can be passed by one that nobody has touched
    if len(likely) < limit:
        return None
    floor = np.partition(totals[likely], len(likely) - limit)[len(likely) - limit]
    return _once(rows[scores >= floor - rest], seen)


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


_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.uint32)
_NO_SCORES: Final[Scores] = np.zeros(0, dtype=np.float32)
