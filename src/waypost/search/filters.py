"""Hard filters as masks over the rows of a segment: applied before anything is ranked."""

from __future__ import annotations

from typing import Final

import numpy as np

from waypost.search.document import protocol_key, tag_key
from waypost.search.live import Live, Mask
from waypost.search.question import Question
from waypost.search.segment import Array, Rows

FEW: Final = 1000  # rows that are looked at one by one, instead of all that have a tag


def admitted(live: Live, question: Question, among: Array | None = None) -> tuple[Mask, int]:
    """The rows that the caller sees and the question admits, and how many. Not a copy: read it. `among` holds the keys of
    the only ids that can be answers, where filters from elsewhere leave few."""
    mask, count = live.visible(question.audience)
    if among is not None:
        rows = live.segment.rows_by_key(among)
        mask = _only(rows[rows >= 0], mask)
        count = int(np.count_nonzero(mask))
    if not (question.required or question.excluded or question.protocols):
        return mask, count
    if count <= FEW:
        rows = _passing(live, question, np.flatnonzero(mask).astype(np.uint32))
        return _only(rows, mask), len(rows)
    return live.segment.table.admitted(
        [*map(tag_key, question.required)],
        [*map(protocol_key, question.protocols)],
        [*map(tag_key, question.excluded)],
        mask,
    )


def _passing(live: Live, question: Question, rows: Rows) -> Rows:
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


def _only(rows: Rows, mask: Mask) -> Mask:
    result = np.zeros(len(mask), dtype=np.bool_)
    result[rows[mask[rows]]] = True
    return result
