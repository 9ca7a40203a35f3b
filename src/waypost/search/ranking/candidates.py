"""Candidates of a query: hard filters, hits by words, vectors and tags, and the signals of each candidate, by column."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.index.document import protocol_key, tag_key
from waypost.search.index.segment import Array, Rows, Segment, SegmentReader
from waypost.search.index.storage import sorted_unique
from waypost.search.kernels.inverted_index_fallback import Mask, Measured, Scores, Wishes
from waypost.search.parsed_query import GRAM_IDF_STEPS, ParsedQuery, SearchFilters, TermWeights
from waypost.search.text.analyzer import GRAMS
from waypost.search.vectors import Vectors
from waypost.search.vectors.vector_block import probe_count

F32 = npt.NDArray[np.float32]

RankedRows = tuple[Rows, Scores, int]
"""Sorted rows, their scores, and how many of them are deprecated."""


class WeightedTerms:
    """The terms of a query in one segment, with their weights."""

    def __init__(
        self, segment: Segment, numbers: Sequence[int], weights: Sequence[float], selective: Container[int]
    ) -> None:
        """`numbers` are the terms' numbers in this segment (-1: unknown). The terms at the `selective` places select the
        candidates; the others only add to their scores."""
        self.segment = segment
        self._numbers = numbers
        self._weights = weights
        self._selective = selective

    def best(self, mask: Mask, admitted: int, limit: int) -> RankedRows:
        """The best `limit` admitted rows by the selective terms. `admitted` counts the mask."""
        postings = self.segment.postings
        return postings.best_by_terms(self._numbers, self._weights, self._selective, mask, admitted, limit)

    def measure(self, place: int, rows: Rows, counted: Scores, wishes: Wishes) -> Measured:
        """`counted` [terms, 1] flags the terms that the query does not rule out."""
        return self.segment.postings.measure_rows(place, rows, self._numbers, self._weights, counted, wishes)

    def ruled_out(self, rows: Rows, counted: Scores) -> Mask:
        """Which rows have a term in their name that the query rules out."""
        flags = counted[:, 0].tolist()
        numbers = [number for number, flag in zip(self._numbers, flags, strict=True) if not flag and number >= 0]
        return self.segment.has_in_name(rows, numbers)

    def coverage(self, rows: Rows, idf: Sequence[float]) -> F32:
        """The share of the query's idf in the terms of each row."""
        terms, found = self.segment.terms, np.zeros(len(rows))
        for number, weight in zip(self._numbers, idf, strict=True):
            if number >= 0:
                holders = terms.rows[int(terms.starts[number]) : int(terms.starts[number + 1])]
                found += weight * (holders.take(holders.searchsorted(rows), mode="clip") == rows)
        return (found / max(sum(idf), 1e-6)).astype(np.float32)


# --- Hard filters: masks that are applied before ranking ---

FEW_ROWS: Final = 1000  # up to this many rows are filtered one by one


def apply_filters(reader: SegmentReader, filters: SearchFilters, among: Array | None = None) -> tuple[Mask, int]:
    """The rows that the caller may see and the filters admit, and their number. Not a copy: do not change it. `among` are the
    keys of the only possible ids, if filters elsewhere leave few."""
    mask, count = reader.visible(filters.audience)
    if among is not None:
        rows = reader.segment.rows_by_key(among)
        mask = _mask_of(rows[rows >= 0], mask)
        count = int(np.count_nonzero(mask))
    if not (filters.required or filters.excluded or filters.protocols):
        return mask, count
    if count <= FEW_ROWS:
        rows = _filter_rows(reader, filters, np.flatnonzero(mask).astype(np.uint32))
        return _mask_of(rows, mask), len(rows)
    return reader.segment.postings.filter_rows(
        [*map(tag_key, filters.required)],
        [*map(protocol_key, filters.protocols)],
        [*map(tag_key, filters.excluded)],
        mask,
    )


def _filter_rows(reader: SegmentReader, filters: SearchFilters, rows: Rows) -> Rows:
    """The rows that pass, of a few: other holders of a tag, such as hidden agents, cost no time."""
    keys = reader.segment.keys
    for tag in filters.required:
        rows = rows[keys.has_key(tag_key(tag), rows)]
    if filters.protocols:
        spoken = [keys.has_key(protocol_key(protocol), rows) for protocol in filters.protocols]
        rows = rows[np.logical_or.reduce(spoken)]
    for tag in filters.excluded:
        rows = rows[~keys.has_key(tag_key(tag), rows)]
    return rows


def _mask_of(rows: Rows, mask: Mask) -> Mask:
    result = np.zeros(len(mask), dtype=np.bool_)
    result[rows[mask[rows]]] = True
    return result


# --- Signals ---

F64 = npt.NDArray[np.float64]

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


def retrieval_depth(query: ParsedQuery, vectors: Mapping[str, Vectors], wanted: int) -> RetrievalDepth:
    """`wanted` raises the defaults."""
    is_alone = not vectors and len(query.units) == 1
    return RetrievalDepth(
        max(WORDS_ONLY_CANDIDATES if is_alone else LEXICAL_CANDIDATES, wanted), max(VECTOR_CANDIDATES, wanted)
    )


class SignalHits(NamedTuple):
    """The hits of one signal in one segment."""

    rows: Rows
    figures: F32


class SegmentHits(NamedTuple):
    """The hits of all signals in one segment, in the same order for every segment."""

    reader: SegmentReader
    by_words: SignalHits
    by_words_in_use: SignalHits  # without deprecated agents, if these dominate
    by_vectors: Sequence[SignalHits]  # for each space
    by_tags: SignalHits


def find_candidates(
    reader: SegmentReader,
    query: ParsedQuery,
    words: WeightedTerms,
    vectors: Mapping[str, Vectors],
    stand_in: str | None,
    mask: Mask,
    admitted: int,
    visible: int,
    depth: RetrievalDepth,
) -> SegmentHits:
    """The best rows of one segment by words, vectors and tags. `stand_in` is the space for rows that have no vectors in the
    others yet. `visible` counts what the caller sees in all segments."""
    near = _by_vectors(reader, vectors, stand_in, mask, visible, depth.near) if vectors else []
    tagged = _by_tags(reader, query, mask, admitted, depth.words)
    return SegmentHits(reader, *_by_words(reader, words, mask, admitted, depth.words), near, tagged)


def find_again_by_words(
    segment_hits: SegmentHits, words: WeightedTerms, mask: Mask, admitted: int, count: int
) -> SegmentHits:
    """Replace the hits by words."""
    found, in_use = _by_words(segment_hits.reader, words, mask, admitted, count)
    return segment_hits._replace(by_words=found, by_words_in_use=in_use)


def _by_words(
    reader: SegmentReader, words: WeightedTerms, mask: Mask, admitted: int, count: int
) -> tuple[SignalHits, SignalHits]:
    rows, figures, deprecated = words.best(mask, admitted, count)
    in_use = _NO_HITS
    if 2 * deprecated > len(rows):  # these keep half of their score: search past them
        used = mask & ~reader.segment.deprecated
        in_use = SignalHits(*words.best(used, int(np.count_nonzero(used)), count)[:2])
    return SignalHits(rows, figures), in_use


def _by_vectors(
    reader: SegmentReader, vectors: Mapping[str, Vectors], stand_in: str | None, mask: Mask, visible: int, count: int
) -> list[SignalHits]:
    """In every space; in the stand-in, which comes last, only if no other space has vectors of every row."""
    found, is_enough = [], False
    for space, queries in vectors.items():
        blocks = () if is_enough and space == stand_in else reader.blocks.get(space, ())
        parts = [
            block.nearest(queries[:1], mask, count, probe_count(visible), _SPARE_CANDIDATES) for block, _ in blocks
        ]
        found.append(_concatenate_hits([SignalHits(*part) for part in parts]))
        is_enough = is_enough or reader.is_covered(space)
    return found


def _concatenate_hits(parts: Sequence[SignalHits]) -> SignalHits:
    if len(parts) == 1:
        return parts[0]
    return SignalHits(*map(np.concatenate, zip(*parts, strict=True))) if parts else _NO_HITS


def _by_tags(reader: SegmentReader, query: ParsedQuery, mask: Mask, admitted: int, count: int) -> SignalHits:
    """Rows that the query names exactly or with a preferred tag, those with most of its spellings first."""
    keys = [query.exact, *(key for wish in query.wishes for key, _ in wish.keys)]
    return SignalHits(*reader.segment.postings.best_by_keys(keys[:_MAX_KEYS], mask, admitted, count)[:2])


def select_rows(hits: Sequence[SegmentHits], depth: RetrievalDepth) -> list[Rows]:
    """The rows of each segment that are among the best of all segments by any signal: the distribution over segments must not
    matter."""
    if not hits:
        return []
    lexical, near = depth
    if len(hits) == 1 and len(hits[0].by_words.rows) <= lexical and _is_by_words_alone(hits[0]):
        return [hits[0].by_words.rows]
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


def _is_by_words_alone(segment_hits: SegmentHits) -> bool:
    """Whether only words have hits, which are sorted and distinct."""
    others = (segment_hits.by_words_in_use, segment_hits.by_tags, *segment_hits.by_vectors)
    return not any(len(found.rows) for found in others)


_NO_HITS: Final = SignalHits(np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.float32))


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
    measured = words.measure(place, rows, query.counted, query.wishes)
    number, mark, deprecated, worth, updated, language, lexical, name, _, preferred = measured
    centres, examples, covered = {}, {}, {}
    for space, queries in vectors.items():
        centres[space], examples[space] = _similarities(reader, space, rows, queries)
        covered[space] = reader.covered(space)[rows]
    return Signals(
        number, rows, mark, deprecated, worth, updated, language,
        lexical[:, 0], words.coverage(rows, weights.idf), _spelling(reader, rows, query, weights), name[:, 0],
        words.ruled_out(rows, query.counted), reader.segment.keys.has_key(query.exact, rows), preferred,
        centres, examples, covered,
    )  # fmt: skip


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
    if len(blocks) == 1:
        return blocks[0][0].similarities(rows, queries)
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
            return float(np.clip(near, 0, 1)), which
    return None, 0
