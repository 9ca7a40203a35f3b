"""Whether an agent is of one piece or has many skills: by the breadth of its examples. It knows vectors, and no question.

Of n unit vectors with the sum S the breadth is n² / |S|²: 1 when all say the same, n when none has anything to do with
another. The vector of an agent as a whole is a mean, and a mean of unrelated things is near to none of them: an agent of many
skills is weighed by the one that fits (see `fusion`). Words that are put into every example make them alike, and no skills.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.search.index.document import protocol_key, tag_key
from waypost.search.index.segment import Array, Rows, Segment
from waypost.search.index.segment_reader import SegmentReader
from waypost.search.kernels.inverted_index_fallback import Mask, Measured, Scores, Wishes
from waypost.search.parsed_query import ParsedQuery, SearchFilters
from waypost.search.vectors.embedding import Vectors
from waypost.search.vectors.vector_block import probe_count

F32 = npt.NDArray[np.float32]

MIN_SPREAD_EXAMPLES: Final = 6  # examples: fewer do not tell many skills from one that is told in many ways

MAX_CREDITED_EXAMPLES: Final = 12.0  # examples: whoever claims more skills is believed less in each

NARROW_SPREAD: Final = 2.5  # breadth up to which an agent is of one piece

BROAD_SPREAD: Final = 3.5  # and from which on it is of many

_GRID: Final = 2.0**17  # of the scale of a vector, which is 1/127 at most; its codes are 127 at most, and 32 are added


def topic_spread(arrays: Mapping[str, npt.NDArray[np.generic]], rows: npt.NDArray[np.uint32]) -> F32:
    """[rows] of the arrays of a block of vectors: 0 for an agent of one piece, 1 for one of many skills. The first vector of
    a row is the agent as a whole."""
    row_starts = np.asarray(arrays["row_starts"], np.uint32)
    starts = row_starts.take(rows)
    sizes = row_starts.take(np.add(rows, 1, dtype=np.intp)) - starts
    found = np.zeros(len(rows), dtype=np.float32)
    some = np.flatnonzero(
        (sizes > MIN_SPREAD_EXAMPLES) & (sizes <= limits.EXAMPLES + 1)
    )  # more are in no record: a damaged file
    if len(some):
        counts = sizes[some].astype(np.intp) - 1
        breadth = _spreads(arrays, starts[some].astype(np.intp) + 1, counts)
        found[some] = np.minimum(1.0, MAX_CREDITED_EXAMPLES / counts) * np.clip(
            (breadth - NARROW_SPREAD) / (BROAD_SPREAD - NARROW_SPREAD), 0, 1
        )
    return found


def _spreads(
    arrays: Mapping[str, npt.NDArray[np.generic]], starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]
) -> npt.NDArray[np.float64]:
    """Of runs of vectors. Sums of whole numbers below 2**24: the same in any order."""
    scales, codes = np.asarray(arrays["scales"], np.float32), np.asarray(arrays["codes"], np.int8)
    found = np.ones(len(starts))
    for count in set(counts.tolist()):
        here = np.flatnonzero(counts == count)
        ids = starts[here, None] + np.arange(count)
        steps = np.rint(scales.take(ids) * np.float32(_GRID))
        sums = np.matmul(steps[:, None, :], codes.take(ids, axis=0).astype(np.float32))[:, 0].astype(np.float64)
        found[here] = count * count / np.maximum((sums * sums).sum(axis=1) / _GRID**2, 1e-9)
    return found


# ---- Lexical scores on one segment: the rows that say most of what was asked, and what is known of any row.
#
# How they are found is in `plain_words`, and in its compiled twin.

RankedRows = tuple[Rows, Scores, int]

"""Rows in order, their figures, and how many of the rows are deprecated."""


class WeightedTerms:
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

    def best(self, mask: Mask, admitted: int, limit: int) -> RankedRows:
        """The best `limit` admitted rows by the heavy terms. `admitted` counts the mask."""
        table = self.segment.table
        return table.best_by_terms(self._numbers, self._weights, self._heavy, mask, admitted, limit)

    def measured(self, place: int, rows: Rows, has: Scores, wishes: Wishes) -> Measured:
        """`has` [terms, units] tells the terms of each unit of the question; the first has all."""
        return self.segment.table.measure_rows(place, rows, self._numbers, self._weights, has, wishes)


# ---- Hard filters as masks over the rows of a segment: applied before anything is ranked.

FEW_ROWS: Final = 1000  # rows that are looked at one by one, instead of all that have a tag


def apply_filters(live: SegmentReader, question: SearchFilters, among: Array | None = None) -> tuple[Mask, int]:
    """The rows that the caller sees and the question admits, and how many. Not a copy: read it. `among` holds the keys of
    the only ids that can be answers, where filters from elsewhere leave few."""
    mask, count = live.visible(question.audience)
    if among is not None:
        rows = live.segment.rows_by_key(among)
        mask = _mask_of(rows[rows >= 0], mask)
        count = int(np.count_nonzero(mask))
    if not (question.required or question.excluded or question.protocols):
        return mask, count
    if count <= FEW_ROWS:
        rows = _filter_rows(live, question, np.flatnonzero(mask).astype(np.uint32))
        return _mask_of(rows, mask), len(rows)
    return live.segment.table.filter_rows(
        [*map(tag_key, question.required)],
        [*map(protocol_key, question.protocols)],
        [*map(tag_key, question.excluded)],
        mask,
    )


def _filter_rows(live: SegmentReader, question: SearchFilters, rows: Rows) -> Rows:
    """Those of a few rows that pass: whoever else has a tag, among them those that nobody but others sees, is no work."""
    keys = live.segment.keys
    for tag in question.required:
        rows = rows[keys.is_held(tag_key(tag), rows)]
    if question.protocols:
        spoken = [keys.is_held(protocol_key(protocol), rows) for protocol in question.protocols]
        rows = rows[np.logical_or.reduce(spoken)]
    for tag in question.excluded:
        rows = rows[~keys.is_held(tag_key(tag), rows)]
    return rows


def _mask_of(rows: Rows, mask: Mask) -> Mask:
    result = np.zeros(len(mask), dtype=np.bool_)
    result[rows[mask[rows]]] = True
    return result


# ---- The candidates of a question, by column: what each signal says of each. Arrays in, arrays out.

try:
    from waypost.search.kernels.scoring import select_rows as select_best_rows
except ImportError:
    from waypost.search.kernels.scoring_fallback import select_rows as select_best_rows

F64 = npt.NDArray[np.float64]

LEXICAL_CANDIDATES: Final = 120  # candidates by words; PRO-31: no signal looks at more than these in detail

WORDS_ONLY_CANDIDATES: Final = (
    40  # likewise of one clause where only words bring any: what other signals would lift is not there
)

VECTOR_CANDIDATES: Final = 64  # and by vectors

_KEYS: Final = 1024  # spellings of tags that are looked for: of more than a hundred tags

_SPARE_CANDIDATES: Final = 256  # further ones that were measured on the way: enough to see a crowd and to look past it


class Signals(NamedTuple):
    """What is known of candidates. Arrays are [candidates, units] unless said otherwise."""

    place: npt.NDArray[np.int64]  # [candidates]: number of the segment
    rows: Rows  # [candidates]
    mark: npt.NDArray[np.uint64]  # [candidates]: parts equals
    deprecated: Mask  # [candidates]
    worth: F32  # [candidates]
    updated: F64  # [candidates]
    language: npt.NDArray[np.uint8]  # [candidates]
    lexical: F32  # Σ idf · impact over the terms of a unit
    coverage: F32  # share of the description that a unit says
    centres: Mapping[str, F32]  # by space: similarity of the agent as a whole
    examples: Mapping[str, F32]  # by space: of its best example
    covered: Mapping[str, Mask]  # [candidates]: has vectors in the space
    skills: F32  # [candidates]: 0 for an agent of one piece, 1 for one of many skills
    tags: F32  # [candidates]: share of the tags that the words name
    preferred: F32  # [candidates]: share of the tags that were asked for by name


def concatenate_signals(parts: Sequence[Signals]) -> Signals:
    """The candidates of all segments."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*parts, strict=True)
    return Signals(*(_concatenated(column) for column in columns))


def _concatenated(column: Sequence[Any]) -> Any:
    if isinstance(column[0], dict):
        return {key: np.concatenate([part[key] for part in column]) for key in column[0]}
    return np.concatenate(column)


# --- Who is a candidate ------------------------------------------------------------------------------


class RetrievalDepth(NamedTuple):
    """How many candidates words bring, and how many each space of vectors."""

    words: int
    near: int


def retrieval_depth(asked: ParsedQuery, vectors: Mapping[str, Vectors], wanted: int) -> RetrievalDepth:
    """`wanted` raises them, when a caller asks for many."""
    is_alone = not vectors and len(asked.units) == 1
    return RetrievalDepth(
        max(WORDS_ONLY_CANDIDATES if is_alone else LEXICAL_CANDIDATES, wanted), max(VECTOR_CANDIDATES, wanted)
    )


class SignalHits(NamedTuple):
    """Rows of one segment that one signal brings, with its figure."""

    rows: Rows
    figures: F32


class SegmentHits(NamedTuple):
    """What each signal brings from one segment. The same signals in the same order for every segment."""

    live: SegmentReader
    by_words: SignalHits
    by_words_in_use: SignalHits  # without deprecated agents, where these are in the way
    by_vectors: Sequence[SignalHits]  # for each space
    by_tags: SignalHits


def find_candidates(
    live: SegmentReader,
    asked: ParsedQuery,
    words: WeightedTerms,
    vectors: Mapping[str, Vectors],
    mask: Mask,
    admitted: int,
    visible: int,
    depth: RetrievalDepth,
) -> SegmentHits:
    """The best rows of one segment by words, by vectors and by the tags asked for. `visible` counts what the caller sees in
    all segments."""
    near = _by_vectors(live, vectors, mask, visible, depth.near) if vectors else []
    tagged = _by_tags(live, asked, mask, admitted, depth.words)
    return SegmentHits(live, *_by_words(live, words, mask, admitted, depth.words), near, tagged)


def find_again_by_words(
    finding: SegmentHits, words: WeightedTerms, mask: Mask, admitted: int, count: int
) -> SegmentHits:
    """The same with what these words bring."""
    found, in_use = _by_words(finding.live, words, mask, admitted, count)
    return finding._replace(by_words=found, by_words_in_use=in_use)


def _by_words(
    live: SegmentReader, words: WeightedTerms, mask: Mask, admitted: int, count: int
) -> tuple[SignalHits, SignalHits]:
    rows, figures, deprecated = words.best(mask, admitted, count)
    in_use = _NO_HITS
    if 2 * deprecated > len(rows):  # these keep half of their score: look behind them
        used = mask & ~live.segment.deprecated
        in_use = SignalHits(*words.best(used, int(np.count_nonzero(used)), count)[:2])
    return SignalHits(rows, figures), in_use


def _by_vectors(
    live: SegmentReader, vectors: Mapping[str, Vectors], mask: Mask, visible: int, count: int
) -> list[SignalHits]:
    found, is_enough = [], False
    for space, queries in vectors.items():
        blocks = () if is_enough else live.blocks.get(space, ())
        parts = [
            block.nearest(queries[:1], mask, count, probe_count(visible), _SPARE_CANDIDATES) for block, _ in blocks
        ]
        found.append(_concatenate_hits([SignalHits(*part) for part in parts]))
        # Where one space knows every row the others weigh what was found; they need not look for more.
        is_enough = is_enough or live.is_covered(space)
    return found


def _concatenate_hits(parts: Sequence[SignalHits]) -> SignalHits:
    if len(parts) == 1:
        return parts[0]
    return SignalHits(*map(np.concatenate, zip(*parts, strict=True))) if parts else _NO_HITS


def _by_tags(live: SegmentReader, asked: ParsedQuery, mask: Mask, admitted: int, count: int) -> SignalHits:
    """Rows with a tag that was asked for by name: reason enough to be looked at. Those with most of its spellings first."""
    keys = [key for wish in asked.wishes if wish.is_asked for key, _ in wish.keys]
    if not keys:
        return _NO_HITS
    return SignalHits(*live.segment.table.best_by_keys(keys[:_KEYS], mask, admitted, count)[:2])


def select_rows(findings: Sequence[SegmentHits], depth: RetrievalDepth) -> list[Rows]:
    """The rows of each segment that are among the best of all segments together by any signal: how records are spread over
    segments must not show."""
    if not findings:
        return []
    lexical, near = depth
    if len(findings) == 1 and len(findings[0].by_words.rows) <= lexical and _is_by_words_alone(findings[0]):
        return [findings[0].by_words.rows]
    signals = [
        ([finding.by_words for finding in findings], lexical),
        ([finding.by_words_in_use for finding in findings], lexical),
        ([finding.by_tags for finding in findings], lexical),
        *((found, near) for found in zip(*(finding.by_vectors for finding in findings), strict=True)),
    ]
    marks = [finding.live.segment.mark for finding in findings]
    return [np.frombuffer(rows, dtype=np.uint32) for rows in select_best_rows(signals, marks)]


def _is_by_words_alone(finding: SegmentHits) -> bool:
    """As where there are no vectors: its rows stand in order, each once."""
    others = (finding.by_words_in_use, finding.by_tags, *finding.by_vectors)
    return not any(len(found.rows) for found in others)


_NO_SKILLS: Final = np.zeros(1024, dtype=np.float32)  # read only

_NO_HITS: Final = SignalHits(np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.float32))


# --- What is known of them ---------------------------------------------------------------------------


def measure_signals(
    place: int,
    live: SegmentReader,
    asked: ParsedQuery,
    words: WeightedTerms,
    vectors: Mapping[str, Vectors],
    rows: Rows,
) -> Signals:
    measured = words.measured(place, rows, asked.has, asked.wishes)
    number, mark, deprecated, worth, updated, language, lexical, coverage, tags, preferred = measured
    centres, examples, covered = {}, {}, {}
    for space, queries in vectors.items():
        centres[space], examples[space] = _similarities(live, space, rows, queries)
        covered[space] = live.covered(space)[rows]
    skills = _skills(live, vectors, rows)
    return Signals(
        number, rows, mark, deprecated, worth, updated, language, lexical, coverage,
        centres, examples, covered, skills, tags, preferred,
    )  # fmt: skip


def _similarities(live: SegmentReader, space: str, rows: Rows, queries: Vectors) -> tuple[F32, F32]:
    """A row's vectors stand in one block; the others give nothing for it."""
    blocks = live.blocks.get(space, ())
    if len(blocks) == 1:
        return blocks[0][0].similarities(rows, queries)
    centre, example = np.zeros((2, len(rows), len(queries)), dtype=np.float32)
    for block, _ in blocks:
        some_centre, some_example = block.similarities(rows, queries)
        centre += some_centre
        example += some_example
    return centre, example


def _skills(live: SegmentReader, vectors: Mapping[str, Vectors], rows: Rows) -> F32:
    """By the space that has a vector for each example."""
    if not vectors:
        return _NO_SKILLS[: len(rows)] if len(rows) <= len(_NO_SKILLS) else np.zeros(len(rows), dtype=np.float32)
    found = np.zeros(len(rows), dtype=np.float32)
    for space in vectors:
        for block, _ in live.blocks.get(space, ()):
            if block.max_vectors_per_row > MIN_SPREAD_EXAMPLES:  # the agent as a whole, and enough examples
                np.maximum(found, topic_spread(block.arrays, rows), out=found)
    return found


def nearest_example(live: SegmentReader, space: str, row: int, queries: Vectors) -> tuple[float | None, int]:
    """Of one row: how near its nearest example is to any unit of the question, and which example that is, from 1."""
    for block, _ in live.blocks.get(space, ()):
        near, which = block.best_example(row, queries)
        if which:
            return float(np.clip(near, 0, 1)), which
    return None, 0
