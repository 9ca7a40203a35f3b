"""Candidates of a query: hard filters, hits by words, vectors and tags, and the signals of each candidate, by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.index.document import IN_NAME, protocol_key, tag_key
from waypost.search.index.segment import FEW_ROWS, Array, Mask, Rows, Segment, SegmentReader
from waypost.search.index.storage import sorted_unique, sorted_unique_counts
from waypost.search.parsed_query import GRAM_IDF_STEPS, ParsedQuery, SearchFilters, TermWeights, WishedTag
from waypost.search.text.analyzer import GRAMS
from waypost.search.vectors import Vectors

try:
    from waypost.search.kernels.loops import add_impacts
except ImportError:
    from waypost.search.kernels.loops_fallback import add_impacts

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
_IMPACT_UNIT: Final = 1 / 255

_WEIGHT_STEPS: Final = (
    4096.0  # of a term's weight in the choice of candidates: integers add up to the same in any order
)


class SignalHits(NamedTuple):
    """The hits of one signal in one segment."""

    rows: Rows
    figures: F64


class WordSignals(NamedTuple):
    """[rows]: the signals of rows by the words of a query; see `Signals`."""

    words: F32
    coverage: F32
    name: F32
    ruled_out: Mask


class WeightedTerms:
    """The terms of a query in one segment, with their weights."""

    def __init__(self, segment: Segment, numbers: Sequence[int], weights: TermWeights, counted: Sequence[bool]) -> None:
        """`numbers` are the terms' numbers in this segment (-1: unknown)."""
        self.segment = segment
        self._numbers = numbers
        self._weights = weights
        self._counted = counted

    def best(self, mask: Mask, admitted: int, limit: int) -> SignalHits:
        """The best `limit` admitted rows by the selective terms. `admitted` counts the mask."""
        terms = [
            (number, max(1, round(self._weights.weights[at] * _WEIGHT_STEPS)))
            for at, number in enumerate(self._numbers)
            if number >= 0 and at in self._weights.selective and self._counted[at]
        ]
        if admitted <= FEW_ROWS:
            rows = np.flatnonzero(mask).astype(np.uint32)
            totals = np.zeros(len(rows), dtype=np.int32)
            for number, weight in terms:
                totals += np.int32(weight) * (self.segment.impacts_of(number, rows) & np.uint16(IN_NAME - 1))
            rows, totals = rows[totals > 0], totals[totals > 0]
        else:
            totals = np.zeros(len(mask), dtype=np.int32)
            for number, weight in terms:
                span = self.segment.terms.span(number)
                add_impacts(totals, self.segment.terms.rows[span], self.segment.impacts[span], weight)
            totals *= mask
            rows = np.flatnonzero(totals).astype(np.uint32)
            totals = totals[rows]
        return take_best(self.segment, rows, totals, limit)

    def measure(self, rows: Rows) -> WordSignals:
        """Sums are float64, so that the number of terms shows in no digit."""
        words, coverage, named = np.zeros((3, len(rows)))
        ruled_out = np.zeros(len(rows), dtype=np.bool_)
        weights = self._weights
        for number, weight, idf, counted in zip(
            self._numbers, weights.weights, weights.idf, self._counted, strict=True
        ):
            if number < 0:
                continue
            impacts = self.segment.impacts_of(number, rows)
            if counted:
                words += weight * _IMPACT_UNIT * (impacts & np.uint16(IN_NAME - 1))
                coverage += idf * (impacts > 0)
                named += impacts >= IN_NAME
            else:
                ruled_out |= impacts >= IN_NAME
        coverage /= max(sum(weights.idf), 1e-6)
        named /= np.maximum(self.segment.arrays["name_terms"][rows], 1)
        return WordSignals(words.astype(np.float32), coverage.astype(np.float32), named.astype(np.float32), ruled_out)


def take_best(segment: Segment, rows: Rows, figures: npt.NDArray[np.int32], limit: int) -> SignalHits:
    """The best of sorted rows, sorted; ties with the last are broken by mark (the hash of the id)."""
    if len(rows) > limit:
        floor = np.partition(figures, len(figures) - limit)[len(figures) - limit]
        above, level = np.flatnonzero(figures > floor), np.flatnonzero(figures == floor)
        level = level[np.argsort(segment.mark[rows[level]], kind="stable")[: limit - len(above)]]
        chosen = np.sort(np.concatenate((above, level)))
        rows, figures = rows[chosen], figures[chosen]
    return SignalHits(rows, figures.astype(np.float64))


# --- Hard filters: masks that are applied before ranking ---


def apply_filters(reader: SegmentReader, filters: SearchFilters, among: Array | None = None) -> tuple[Mask, int]:
    """The rows that the caller may see and the filters admit, and their number. Not a copy: do not change it. `among` are the
    keys of the only possible ids, if filters elsewhere leave few."""
    mask, count = reader.visible(filters.audience)
    if among is not None:
        rows = reader.segment.rows_by_key(among)
        mask = mask & _mask_of(rows[rows >= 0], len(mask))
        count = int(np.count_nonzero(mask))
    if not (filters.required or filters.excluded or filters.protocols):
        return mask, count
    keys, left = reader.segment.keys, mask.copy()
    for rows in keys.rows_among(map(tag_key, filters.required), mask, count):
        left &= _mask_of(rows, len(mask))
    if filters.protocols:
        spoken = keys.rows_among(map(protocol_key, filters.protocols), mask, count)
        left &= _mask_of(np.concatenate(spoken), len(mask))
    for rows in keys.rows_among(map(tag_key, filters.excluded), mask, count):
        left[rows] = False
    return left, int(np.count_nonzero(left))


def _mask_of(rows: Rows, count: int) -> Mask:
    mask = np.zeros(count, dtype=np.bool_)
    mask[rows] = True
    return mask


# --- Signals ---

LEXICAL_CANDIDATES: Final = 120  # by words; PRO-31: no signal measures more than these
WORDS_ONLY_CANDIDATES: Final = 40  # for one clause without vectors: no other signal can lift further ones
VECTOR_CANDIDATES: Final = 100  # by vectors
_MAX_KEYS: Final = 1024  # spellings looked up: those of more than a hundred tags
_GRAM_K1: Final = 1.2
_GRAM_LENGTH: Final = 150.0  # distinct grams of an ordinary record
_SPARE_CANDIDATES: Final = 256  # further ones that were measured anyway: enough to detect clusters and look past them


class Signals(NamedTuple):
    """The signals of candidates. Arrays are [candidates, units] unless noted."""

    place: npt.NDArray[np.int64]  # [candidates]: number of the segment
    rows: Rows  # [candidates]
    mark: npt.NDArray[np.uint64]  # [candidates]: hash of the id, breaks ties
    deprecated: Mask  # [candidates]
    worth: F32  # [candidates]
    updated: F64  # [candidates]
    language: npt.NDArray[np.uint8]  # [candidates]
    words: F32  # [candidates]: Σ weight · impact of the query's terms
    coverage: F32  # [candidates]: share of the query's idf that the record has
    spelling: F32  # [candidates]: Σ idf of the query's grams that the record has, damped by its length
    name: F32  # [candidates]: share of the name's terms that are in the query
    ruled_out: Mask  # [candidates]: its name has a word that the query rules out
    exact: Mask  # [candidates]: its name, id or a tag is the query
    preferred: F32  # [candidates]: share of the tags that the caller prefers
    centres: Mapping[str, F32]  # by space: similarity of the centre
    examples: Mapping[str, F32]  # by space: of the best example
    covered: Mapping[str, Mask]  # [candidates]: has vectors in the space


def concatenate_signals(parts: Sequence[Signals]) -> Signals:
    """Join the candidates of all segments."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*parts, strict=True)
    return Signals(*(_concatenated(column) for column in columns))


def _concatenated(column: Sequence[Any]) -> Any:
    if isinstance(column[0], dict):
        return {key: np.concatenate([part[key] for part in column]) for key in column[0]}
    return np.concatenate(column)


# --- Retrieval ---


class RetrievalDepth(NamedTuple):
    """The number of candidates by words, and by each vector space."""

    words: int
    near: int


def retrieval_depth(query: ParsedQuery, wanted: int, *, has_vectors: bool) -> RetrievalDepth:
    """`wanted` raises the defaults."""
    is_alone = not (has_vectors and query.terms) and len(query.units) == 1
    return RetrievalDepth(
        max(WORDS_ONLY_CANDIDATES if is_alone else LEXICAL_CANDIDATES, wanted), max(VECTOR_CANDIDATES, wanted)
    )


class SegmentHits(NamedTuple):
    """The hits of all signals in one segment, in the same order for every segment."""

    reader: SegmentReader
    by_words: SignalHits
    by_words_in_use: SignalHits  # without deprecated agents, if these dominate
    by_vectors: Sequence[SignalHits]  # for each space
    by_tags: SignalHits


def find_by_words_and_tags(
    reader: SegmentReader,
    query: ParsedQuery,
    words: WeightedTerms,
    mask: Mask,
    admitted: int,
    depth: RetrievalDepth,
) -> SegmentHits:
    """The best rows of one segment by words and tags; those by vectors come later."""
    tagged = _by_tags(reader, query, mask, admitted, depth.words)
    return SegmentHits(reader, *_by_words(reader, words, mask, admitted, depth.words), (), tagged)


def find_again_by_words(
    segment_hits: SegmentHits, words: WeightedTerms, mask: Mask, admitted: int, count: int
) -> SegmentHits:
    """Replace the hits by words."""
    found, in_use = _by_words(segment_hits.reader, words, mask, admitted, count)
    return segment_hits._replace(by_words=found, by_words_in_use=in_use)


def _by_words(
    reader: SegmentReader, words: WeightedTerms, mask: Mask, admitted: int, count: int
) -> tuple[SignalHits, SignalHits]:
    found, deprecated = words.best(mask, admitted, count), reader.segment.deprecated
    if 2 * np.count_nonzero(deprecated[found.rows]) <= len(found.rows):
        return found, _NO_HITS
    used = mask & ~deprecated  # the others keep half of their score: search past them
    return found, words.best(used, int(np.count_nonzero(used)), count)


def find_by_vectors(
    segment_hits: SegmentHits, vectors: Mapping[str, Vectors], stand_in: str | None, mask: Mask, count: int
) -> SegmentHits:
    """Add the hits in every space; in the stand-in, for rows that have no vectors in the others yet, only if there are any. It
    comes last."""
    reader, found, is_enough = segment_hits.reader, [], False
    for space, queries in vectors.items():
        parts = [_NO_HITS]
        for block, _ in () if is_enough and space == stand_in else reader.blocks.get(space, ()):
            rows, figures = block.nearest(queries[0], mask, count)
            size = count + _SPARE_CANDIDATES
            parts.append(SignalHits(rows[:size], figures[:size].astype(np.float64)))
        found.append(SignalHits(*map(np.concatenate, zip(*parts, strict=True))))
        is_enough = is_enough or reader.is_covered(space, mask)
    return segment_hits._replace(by_vectors=found)


def _by_tags(reader: SegmentReader, query: ParsedQuery, mask: Mask, admitted: int, count: int) -> SignalHits:
    """Rows that the query names exactly or with a preferred tag, those with most of its spellings first."""
    keys = [query.exact, *(key for wish in query.wishes for key, _ in wish.keys)]
    found = reader.segment.keys.rows_among(keys[:_MAX_KEYS], mask, admitted)
    rows, times = sorted_unique_counts(np.concatenate(found))
    return take_best(reader.segment, rows, times.astype(np.int32), count)


def select_rows(hits: Sequence[SegmentHits], depth: RetrievalDepth) -> list[Rows]:
    """The rows of each segment that are among the best of all segments by any signal: the distribution over segments must not
    matter."""
    if not hits:
        return []
    lexical, near = depth
    signals = [
        ([segment_hits.by_words for segment_hits in hits], lexical),
        ([segment_hits.by_words_in_use for segment_hits in hits], lexical),
        ([segment_hits.by_tags for segment_hits in hits], lexical),
        *((found, near) for found in zip(*(segment_hits.by_vectors for segment_hits in hits), strict=True)),
    ]
    marks = [segment_hits.reader.segment.mark for segment_hits in hits]
    kept: list[list[Rows]] = [[_NO_HITS.rows] for _ in hits]
    for found, count in signals:
        for some, rows in zip(kept, _best_rows(found, marks, count), strict=True):
            some.append(rows)
    return [sorted_unique(np.concatenate(rows)) for rows in kept]


def _best_rows(found: Sequence[SignalHits], marks: Sequence[Array], count: int) -> list[Rows]:
    """The rows of each segment among the best of all. Ties are broken by mark (the hash of the id)."""
    figures = np.concatenate([hits.figures for hits in found])
    if len(figures) <= count:
        return [hits.rows for hits in found]
    all_marks = np.concatenate([mark[hits.rows] for hits, mark in zip(found, marks, strict=True)])
    is_kept = np.zeros(len(figures), dtype=np.bool_)
    is_kept[np.lexsort((all_marks, -figures))[:count]] = True
    ends = np.cumsum([len(hits.rows) for hits in found])[:-1]
    return [hits.rows[kept] for hits, kept in zip(found, np.split(is_kept, ends), strict=True)]


_NO_HITS: Final = SignalHits(np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.float64))


# --- Measuring ---


def measure_signals(
    place: int,
    reader: SegmentReader,
    query: ParsedQuery,
    words: WeightedTerms,
    weights: TermWeights,
    vectors: Mapping[str, Vectors],
    rows: Rows,
) -> Signals:
    by_word, arrays = words.measure(rows), reader.segment.arrays
    centres, examples, covered = {}, {}, {}
    for space, queries in vectors.items():
        centres[space], examples[space] = _similarities(reader, space, rows, queries)
        covered[space] = reader.covered(space)[rows]
    return Signals(
        place=np.full(len(rows), place),
        rows=rows,
        mark=arrays["mark"][rows],
        deprecated=arrays["deprecated"][rows],
        worth=arrays["worth"][rows],
        updated=arrays["updated"][rows],
        language=arrays["language"][rows],
        words=by_word.words,
        coverage=by_word.coverage,
        spelling=_spelling(reader, rows, query, weights),
        name=by_word.name,
        ruled_out=by_word.ruled_out,
        exact=reader.segment.keys.has_key(query.exact, rows),
        preferred=_preferred(reader.segment, rows, query.wishes),
        centres=centres,
        examples=examples,
        covered=covered,
    )


def _preferred(segment: Segment, rows: Rows, wishes: Sequence[WishedTag]) -> F32:
    """The mean over the preferred tags of the weight of the best spelling that a row has."""
    shares = np.zeros(len(rows), dtype=np.float32)
    for wish in wishes:
        best = np.zeros(len(rows), dtype=np.float32)
        for key, weight in wish.keys:
            np.maximum(best, np.float32(weight), out=best, where=segment.keys.has_key(key, rows))
        shares += best
    return shares / np.float32(max(1, len(wishes)))


def _spelling(reader: SegmentReader, rows: Rows, query: ParsedQuery, weights: TermWeights) -> F32:
    """BM25 over grams, each counted once, with a fixed reference length."""
    table = np.zeros(GRAMS, dtype=np.int32)  # half of the cache that 64 bits would take
    table[query.grams] = weights.gram_idf
    grams, sizes = reader.segment.grams_of(rows)
    sums = np.zeros(len(grams) + 1, dtype=np.int64)
    np.cumsum(table.take(grams), out=sums[1:])
    ends = sizes.cumsum()
    found = (sums.take(ends) - sums.take(ends - sizes)) / GRAM_IDF_STEPS
    return (found / (1 + _GRAM_K1 * (0.25 + 0.75 * sizes / _GRAM_LENGTH))).astype(np.float32)


def _similarities(reader: SegmentReader, space: str, rows: Rows, queries: Vectors) -> tuple[F32, F32]:
    """The vectors of a row are in one block; the others return zeros for it."""
    blocks = reader.blocks.get(space, ())
    centre, example = np.zeros((2, len(rows), len(queries)), dtype=np.float32)
    for block, _ in blocks:
        some_centre, some_example = block.similarities(rows, queries)
        centre += some_centre
        example += some_example
    return centre, example


def nearest_example(reader: SegmentReader, space: str, row: int, queries: Vectors) -> tuple[float | None, int]:
    """The similarity of a row's nearest example to any unit of the query, and its number, from 1."""
    for block, _ in reader.blocks.get(space, ()):
        near, which = block.best_example(row, queries)
        if which:
            return min(1.0, max(0.0, near)), which
    return None, 0
