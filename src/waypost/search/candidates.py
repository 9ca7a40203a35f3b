"""The candidates of a question, by column: what each signal says of each. Arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.asked import Asked
from waypost.search.breadth import FEWEST, many_sided
from waypost.search.embedding import Vectors
from waypost.search.live import Live, Mask
from waypost.search.postings import Weighted
from waypost.search.segment import Rows
from waypost.search.vectors import reach

try:
    from waypost.compiled.order import chosen
except ImportError:
    from waypost.search.plain_order import chosen

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

LEXICAL: Final = 120  # candidates by words; PRO-31: no signal looks at more than these in detail
ALONE: Final = 40  # likewise of one clause where only words bring any: what other signals would lift is not there
VECTOR: Final = 64  # and by vectors
_KEYS: Final = 1024  # spellings of tags that are looked for: of more than a hundred tags
_BEHIND: Final = 256  # further ones that were measured on the way: enough to see a crowd and to look past it


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


def joined(parts: Sequence[Signals]) -> Signals:
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


class Depth(NamedTuple):
    """How many candidates words bring, and how many each space of vectors."""

    words: int
    near: int


def depth_of(asked: Asked, vectors: Mapping[str, Vectors], wanted: int) -> Depth:
    """`wanted` raises them, when a caller asks for many."""
    is_alone = not vectors and len(asked.units) == 1
    return Depth(max(ALONE if is_alone else LEXICAL, wanted), max(VECTOR, wanted))


class Found(NamedTuple):
    """Rows of one segment that one signal brings, with its figure."""

    rows: Rows
    figures: F32


class Finding(NamedTuple):
    """What each signal brings from one segment. The same signals in the same order for every segment."""

    live: Live
    by_words: Found
    by_words_in_use: Found  # without deprecated agents, where these are in the way
    by_vectors: Sequence[Found]  # for each space
    by_tags: Found


def find(
    live: Live,
    asked: Asked,
    words: Weighted,
    vectors: Mapping[str, Vectors],
    mask: Mask,
    admitted: int,
    visible: int,
    depth: Depth,
) -> Finding:
    """The best rows of one segment by words, by vectors and by the tags asked for. `visible` counts what the caller sees in
    all segments."""
    near = _near(live, vectors, mask, visible, depth.near) if vectors else []
    tagged = _tagged(live, asked, mask, admitted, depth.words)
    return Finding(live, *_by_words(live, words, mask, admitted, depth.words), near, tagged)


def find_by_words(finding: Finding, words: Weighted, mask: Mask, admitted: int, count: int) -> Finding:
    """The same with what these words bring."""
    found, in_use = _by_words(finding.live, words, mask, admitted, count)
    return finding._replace(by_words=found, by_words_in_use=in_use)


def _by_words(live: Live, words: Weighted, mask: Mask, admitted: int, count: int) -> tuple[Found, Found]:
    rows, figures, deprecated = words.best(mask, admitted, count)
    in_use = _NOTHING
    if 2 * deprecated > len(rows):  # these keep half of their score: look behind them
        used = mask & ~live.segment.deprecated
        in_use = Found(*words.best(used, int(np.count_nonzero(used)), count)[:2])
    return Found(rows, figures), in_use


def _near(live: Live, vectors: Mapping[str, Vectors], mask: Mask, visible: int, count: int) -> list[Found]:
    found, is_enough = [], False
    for space, queries in vectors.items():
        blocks = () if is_enough else live.blocks.get(space, ())
        parts = [block.nearest(queries[:1], mask, count, reach(visible), _BEHIND) for block, _ in blocks]
        found.append(_together([Found(*part) for part in parts]))
        # Where one space knows every row the others weigh what was found; they need not look for more.
        is_enough = is_enough or live.is_covered(space)
    return found


def _together(parts: Sequence[Found]) -> Found:
    if len(parts) == 1:
        return parts[0]
    return Found(*map(np.concatenate, zip(*parts, strict=True))) if parts else _NOTHING


def _tagged(live: Live, asked: Asked, mask: Mask, admitted: int, count: int) -> Found:
    """Rows with a tag that was asked for by name: reason enough to be looked at. Those with most of its spellings first."""
    keys = [key for wish in asked.wishes if wish.is_asked for key, _ in wish.keys]
    if not keys:
        return _NOTHING
    return Found(*live.segment.table.tagged(keys[:_KEYS], mask, admitted, count)[:2])


def chosen_rows(findings: Sequence[Finding], depth: Depth) -> list[Rows]:
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
    return [np.frombuffer(rows, dtype=np.uint32) for rows in chosen(signals, marks)]


def _is_by_words_alone(finding: Finding) -> bool:
    """As where there are no vectors: its rows stand in order, each once."""
    others = (finding.by_words_in_use, finding.by_tags, *finding.by_vectors)
    return not any(len(found.rows) for found in others)


_NO_SKILLS: Final = np.zeros(1024, dtype=np.float32)  # read only
_NOTHING: Final = Found(np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.float32))


# --- What is known of them ---------------------------------------------------------------------------


def measure(
    place: int, live: Live, asked: Asked, words: Weighted, vectors: Mapping[str, Vectors], rows: Rows
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


def _similarities(live: Live, space: str, rows: Rows, queries: Vectors) -> tuple[F32, F32]:
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


def _skills(live: Live, vectors: Mapping[str, Vectors], rows: Rows) -> F32:
    """By the space that has a vector for each example."""
    if not vectors:
        return _NO_SKILLS[: len(rows)] if len(rows) <= len(_NO_SKILLS) else np.zeros(len(rows), dtype=np.float32)
    found = np.zeros(len(rows), dtype=np.float32)
    for space in vectors:
        for block, _ in live.blocks.get(space, ()):
            if block.most_of_a_row > FEWEST:  # the agent as a whole, and enough examples
                np.maximum(found, many_sided(block.arrays, rows), out=found)
    return found


def nearest_example(live: Live, space: str, row: int, queries: Vectors) -> tuple[float | None, int]:
    """Of one row: how near its nearest example is to any unit of the question, and which example that is, from 1."""
    for block, _ in live.blocks.get(space, ()):
        near, which = block.best_example(row, queries)
        if which:
            return float(np.clip(near, 0, 1)), which
    return None, 0
