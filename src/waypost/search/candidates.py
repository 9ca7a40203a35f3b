"""The candidates of a question, by column: what each signal says of each. Arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.asked import Asked, Wished
from waypost.search.embedding import Vectors
from waypost.search.live import Live, Mask
from waypost.search.postings import Weighted
from waypost.search.segment import Rows
from waypost.search.vectors import reach

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

LEXICAL: Final = 200  # candidates by words; PRO-31: no signal looks at more than these in detail
VECTOR: Final = 100  # and by vectors


class Signals(NamedTuple):
    """What is known of candidates. Arrays are [candidates, units] unless said otherwise."""

    place: npt.NDArray[np.int64]  # [candidates]: number of the segment
    rows: Rows  # [candidates]
    mark: npt.NDArray[np.uint64]  # [candidates]: parts equals
    deprecated: Mask  # [candidates]
    lexical: F32  # Σ idf · impact over the terms of a unit
    coverage: F32  # share of the description that a unit says
    centres: Mapping[str, F32]  # by space: similarity of the agent as a whole
    examples: Mapping[str, F32]  # by space: of its best example
    covered: Mapping[str, Mask]  # [candidates]: has vectors in the space
    tags: F32  # [candidates]: share of the tags that the words name
    preferred: F32  # [candidates]: share of the tags that were asked for by name

    def chosen(self, at: npt.NDArray[Any]) -> Signals:
        return Signals(*(_each(column, lambda array: array[at]) for column in self))


def _each(column: Any, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Any:
    return {key: change(array) for key, array in column.items()} if isinstance(column, dict) else change(column)


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


def cut(signals: Signals, wanted: int) -> Signals:
    """The best of all segments together: how records are spread over segments must not show."""
    count = max(LEXICAL, wanted)
    words = signals.lexical[:, 0]
    kept = _best(words, signals.mark, count, floor=0.0)
    if _mostly(signals.deprecated[kept]):
        kept |= _best(np.where(signals.deprecated, np.float32(0), words), signals.mark, count, floor=0.0)
    for space, centre in signals.centres.items():
        nearness = np.maximum(centre[:, 0], signals.examples[space][:, 0])
        kept |= _best(nearness, signals.mark, max(VECTOR, wanted), floor=0.0)
    kept |= _best(signals.preferred, signals.mark, count, floor=0.0)
    return signals if kept.all() else signals.chosen(np.flatnonzero(kept))


def _best(scores: F32, marks: npt.NDArray[np.uint64], count: int, floor: float) -> Mask:
    order = np.lexsort((marks, -scores))[:count]
    kept = np.zeros(len(scores), dtype=np.bool_)
    kept[order] = scores[order] > floor
    return kept


def gather(
    place: int,
    live: Live,
    asked: Asked,
    weights: Sequence[float],
    vectors: Mapping[str, Vectors],
    mask: Mask,
    admitted: int,
    visible: int,
    wanted: int,
) -> Signals:
    """The best rows of one segment by words and by vectors, and all signals of each. `visible` counts what the caller sees
    in all segments; `wanted` raises the number of candidates when a caller asks for many."""
    words = Weighted(live.segment, list(asked.terms), list(weights))
    found = [words.best(mask, admitted, max(LEXICAL, wanted))]
    if _mostly(live.segment.deprecated[found[0]]):  # these keep half of their score: look behind them
        found.append(words.best(mask & ~live.segment.deprecated, admitted, max(LEXICAL, wanted)))
    for space, queries in vectors.items():
        for block, _ in live.blocks.get(space, ()):
            found.append(block.nearest(queries[:1], mask, max(VECTOR, wanted), reach(visible))[0])
    found += [_carrying(live, wish, mask, max(LEXICAL, wanted)) for wish in asked.wishes if wish.is_asked]
    rows = np.unique(np.concatenate(found)).astype(np.uint32)
    return measure(place, live, asked, words, vectors, rows)


def _mostly(flags: Mask) -> bool:
    return 2 * int(np.count_nonzero(flags)) > len(flags)


def _carrying(live: Live, wish: Wished, mask: Mask, count: int) -> Rows:
    """Rows with a tag that was asked for by name: reason enough to be looked at."""
    rows = np.unique(np.concatenate([live.segment.keys.rows_of(key) for key, _ in wish.keys]))
    rows = rows[mask[rows]]
    if len(rows) > count:
        rows = rows[np.argpartition(live.segment.mark[rows], count)[:count]]
    return np.asarray(rows, dtype=np.uint32)


def measure(
    place: int, live: Live, asked: Asked, words: Weighted, vectors: Mapping[str, Vectors], rows: Rows
) -> Signals:
    impacts, said = words.measured(rows)
    centres, examples, covered = {}, {}, {}
    for space, queries in vectors.items():
        centres[space], examples[space] = _similarities(live, space, rows, queries)
        covered[space] = live.covered(space)[rows]
    lengths = np.maximum(live.segment.arrays["said"][rows], 1).astype(np.float32)
    tags, preferred = _tags(live, asked, rows)
    return Signals(
        place=np.full(len(rows), place),
        rows=rows,
        mark=live.segment.mark[rows],
        deprecated=live.segment.deprecated[rows],
        lexical=impacts @ asked.has,
        coverage=(said.astype(np.float32) @ asked.has) / lengths[:, None],
        centres=centres,
        examples=examples,
        covered=covered,
        tags=tags,
        preferred=preferred,
    )


def _similarities(live: Live, space: str, rows: Rows, queries: Vectors) -> tuple[F32, F32]:
    """A row's vectors stand in one block; the others give nothing for it."""
    centre = np.zeros((len(rows), len(queries)), dtype=np.float32)
    example = np.zeros_like(centre)
    for block, _ in live.blocks.get(space, ()):
        some_centre, some_example, _ = block.similarities(rows, queries)
        centre += some_centre
        example += some_example
    return centre, example


def nearest_example(live: Live, space: str, row: Rows, queries: Vectors) -> tuple[float | None, int]:
    """Of one row: how near its nearest example is to any unit of the question, and which example that is, from 1."""
    for block, _ in live.blocks.get(space, ()):
        _, example, which = block.similarities(row, queries)
        unit = int(example[0].argmax())
        if which[0, unit]:
            return float(np.clip(example[0, unit], 0, 1)), int(which[0, unit])
    return None, 0


def _tags(live: Live, asked: Asked, rows: Rows) -> tuple[F32, F32]:
    """For each wish the worth of the best spelling that a row carries: as a share of those read from the words, and of those
    asked for by name."""
    read = np.zeros(len(rows), dtype=np.float32)
    named = np.zeros(len(rows), dtype=np.float32)
    for wish in asked.wishes:
        best = np.zeros(len(rows), dtype=np.float32)
        for key, worth in wish.keys:
            holders = live.segment.keys.rows_of(key)
            if len(holders):
                places = np.minimum(holders.searchsorted(rows), len(holders) - 1)
                np.maximum(best, np.where(holders[places] == rows, np.float32(worth), 0), out=best)
        if wish.is_asked:
            named += best
        else:
            read += best
    asked_for = sum(wish.is_asked for wish in asked.wishes)
    return read / np.float32(max(1, len(asked.wishes) - asked_for)), named / np.float32(max(1, asked_for))
