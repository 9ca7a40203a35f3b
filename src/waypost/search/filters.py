"""Hard filters as masks over the rows of a segment: applied before anything is ranked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from waypost.search.document import protocol_key, tag_key
from waypost.search.live import Live, Mask
from waypost.search.ordered import once
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
    narrowed = question.required or question.protocols
    mask = _only(_wanted(live, question), mask) if narrowed else mask.copy()
    for tag in question.excluded:
        mask[live.segment.keys.rows_of(tag_key(tag))] = False
    return mask, int(np.count_nonzero(mask))


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


def _wanted(live: Live, question: Question) -> Rows:
    """Rows with every required tag and any of the protocols."""
    keys = live.segment.keys
    sets = [keys.rows_of(tag_key(tag)) for tag in question.required]
    if question.protocols:
        sets.append(union(keys.rows_of(protocol_key(protocol)) for protocol in question.protocols))
    sets.sort(key=len)
    rows = sets[0]
    for each in sets[1:]:
        rows = np.intersect1d(rows, each, assume_unique=True)
    return rows


def union(sets: Iterable[Rows]) -> Rows:
    """Rows of any of the sets, in order, each once."""
    found = list(sets)
    return found[0] if len(found) == 1 else once(np.concatenate(found)).astype(np.uint32)


def _only(rows: Rows, mask: Mask) -> Mask:
    result = np.zeros(len(mask), dtype=np.bool_)
    result[rows[mask[rows]]] = True
    return result
