"""A segment: many agents as arrays that never change. An agent is a row; what is said of rows is kept by column.

It knows terms, keys and ids as 64-bit hashes, and no text but the ids. What became of a row after the segment was made (it is
gone, or said anew elsewhere) is known to the living index, not here. Two segments merge without looking at a record again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.model.principal import VISIBILITIES
from waypost.search.index.document import IN_DESCRIPTION, IndexDocument, id_key
from waypost.search.index.simhash import SIMHASH_WORDS
from waypost.search.index.storage import sorted_unique

try:
    from waypost.search.kernels.inverted_index import InvertedIndex
except ImportError:
    from waypost.search.kernels.inverted_index_fallback import InvertedIndex  # type: ignore[assignment]

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.uint32]

VERSION: Final = 3  # raise it when the arrays change: saved segments are then built anew

_UNIT: Final = float(np.float32(1 / 255))  # of an impact
_GATHER: Final = 4_000  # admitted rows: below this, each is scored by itself
_PRUNE_FROM: Final = 20_000  # postings left: below this, adding them all is quicker than thinking about it
_LOOK_UP: Final = 20  # one row looked up in a term costs as much as adding this many postings

DROPPED_ROW: Final = np.uint32(0xFFFFFFFF)  # in a renumbering: the row was left behind

_TRAITS: Final = {
    "tier": np.uint8,
    "owner": np.uint64,
    "deprecated": np.bool_,
    "since": np.float64,
    "updated": np.float64,
    "said": np.uint16,
    "worth": np.float32,
    "language": np.uint8,
    "fingerprint": np.uint64,
}


class KeyPostings:
    """Sorted 64-bit keys, and the rows of each key in order."""

    def __init__(self, keys: Array, starts: Array, rows: Rows) -> None:
        self.keys = keys
        self.starts = starts
        self.rows = rows

    def rows_of(self, key: int) -> Rows:
        """What is not here takes as long as what is: it may be here for others alone."""
        wanted = np.uint64(key)
        first, last = np.searchsorted(self.keys, wanted), np.searchsorted(self.keys, wanted, "right")
        return self.rows[int(self.starts[first]) : int(self.starts[last])]

    def is_held(self, key: int, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of the rows have a key. Where these are few, who else has it is hardly any work."""
        holders = self.rows_of(key)
        if not len(holders):
            return np.zeros(len(rows), dtype=np.bool_)
        held: npt.NDArray[np.bool_] = holders.take(holders.searchsorted(rows), mode="clip") == rows
        return held


class Segment:
    """`arrays` is all there is of it: what is saved, and what is mapped."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self.count = len(arrays["tier"])
        self.terms = KeyPostings(arrays["terms"], arrays["term_starts"], arrays["term_rows"])
        self.keys = KeyPostings(arrays["keys"], arrays["key_starts"], arrays["key_rows"])
        self.impacts: npt.NDArray[np.uint8] = arrays["term_impacts"]
        self.tops: npt.NDArray[np.uint8] = arrays["term_tops"]  # the highest impact of each term
        self.mark: npt.NDArray[np.uint64] = arrays["mark"]  # of the id: parts equals, the same way wherever the row is
        self.tier: npt.NDArray[np.uint8] = arrays["tier"]
        self.owner: npt.NDArray[np.uint64] = arrays["owner"]
        self.deprecated: npt.NDArray[np.bool_] = arrays["deprecated"]

    @property
    def circle(self) -> int:
        """The tier of its rows: those of a segment that somebody asks are all of one."""
        return int(self.tier[0])

    def id_of(self, row: int) -> str:
        starts = self.arrays["id_starts"]
        return self.arrays["id_bytes"][int(starts[row]) : int(starts[row + 1])].tobytes().decode()

    def rows_by_id(self, ids: Sequence[str]) -> Array:
        """The row of each id, or -1."""
        return self.rows_by_key(id_keys(ids))

    def rows_by_key(self, wanted: Array) -> Array:
        hashes: Array = self.arrays["id_hashes"]
        at = np.minimum(np.searchsorted(hashes, wanted), max(0, len(hashes) - 1))
        if not len(hashes):
            return np.full(len(wanted), -1, dtype=np.int64)
        return np.where(hashes[at] == wanted, self.arrays["id_rows"][at].astype(np.int64), -1)

    def terms_of(self, row: int) -> Array:
        """The numbers of the terms that a row holds."""
        starts = self.arrays["row_starts"]
        found: Array = self.arrays["row_terms"][int(starts[row]) : int(starts[row + 1])]
        return found

    @cached_property
    def containing(self) -> Array:
        """How many rows hold each term, for each tier: [tier, term]."""
        return self.arrays["containing"]

    @cached_property
    def postings(self) -> InvertedIndex:
        """The inverted index, made by the first query: an unused segment is not even read."""
        return InvertedIndex(
            self.arrays, said=IN_DESCRIPTION, unit=_UNIT, gather=_GATHER, prune_from=_PRUNE_FROM, look_up=_LOOK_UP
        )


def id_keys(ids: Sequence[str]) -> Array:
    return np.fromiter(map(id_key, ids), dtype=np.uint64, count=len(ids))


def build_segment(documents: Sequence[IndexDocument]) -> Segment:
    count = len(documents)
    traits = {
        "tier": [document.tier for document in documents],
        "owner": [document.owner for document in documents],
        "deprecated": [document.is_deprecated for document in documents],
        "since": [document.since for document in documents],
        "updated": [document.updated for document in documents],
        "said": [min(document.said, 0xFFFF) for document in documents],
        "worth": [document.worth for document in documents],
        "language": [document.language for document in documents],
        "fingerprint": np.array([document.fingerprint for document in documents]).reshape(count, SIMHASH_WORDS),
    }
    arrays: dict[str, Array] = {name: np.asarray(traits[name], dtype=dtype) for name, dtype in _TRAITS.items()}
    sizes = np.fromiter((len(document.impacts) for document in documents), dtype=np.int64, count=count)
    total = int(sizes.sum())
    terms = np.fromiter((term for document in documents for term in document.impacts), dtype=np.uint64, count=total)
    impacts = np.fromiter(
        (impact for document in documents for impact in document.impacts.values()), dtype=np.uint16, count=total
    )
    key_sizes = np.fromiter((len(document.keys) for document in documents), dtype=np.int64, count=count)
    keys = np.fromiter((key for d in documents for key in d.keys), dtype=np.uint64, count=int(key_sizes.sum()))
    arrays |= _ids([document.id for document in documents])
    arrays |= _posted("key", *_grouped(keys, np.repeat(np.arange(count, dtype=np.uint32), key_sizes))[:3])
    rows = np.repeat(np.arange(count, dtype=np.uint32), sizes)
    arrays |= _terms(terms, rows, impacts, arrays["tier"], sizes)
    return Segment(arrays)


def _ids(ids: Sequence[str]) -> dict[str, Array]:
    encoded = [agent_id.encode() for agent_id in ids]
    starts = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in encoded], out=starts[1:])
    hashes = np.fromiter(map(id_key, ids), dtype=np.uint64, count=len(ids))
    return {"id_bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8), "id_starts": starts, **_by_hash(hashes)}


def _by_hash(hashes: Array) -> dict[str, Array]:
    order = np.argsort(hashes, kind="stable").astype(np.uint32)
    return {"mark": hashes, "id_hashes": hashes[order], "id_rows": order}


def _grouped(keys: Array, rows: Rows) -> tuple[Array, Array, Rows, Array]:
    """Distinct keys, where each begins, the rows in order of their keys, and that order. Rows come in order already."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    distinct = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=distinct[1:])
    firsts = np.flatnonzero(distinct)
    return ordered[firsts], np.append(firsts, len(keys)).astype(np.int64), rows[order], order


def _posted(name: str, keys: Array, starts: Array, rows: Rows) -> dict[str, Array]:
    return {f"{name}s": keys, f"{name}_starts": starts, f"{name}_rows": rows}


def _terms(terms: Array, rows: Rows, impacts: Array, tier: Array, sizes: Array) -> dict[str, Array]:
    keys, starts, ordered_rows, order = _grouped(terms, rows)
    ordered_impacts = impacts[order].astype(np.uint8)
    numbers = np.repeat(np.arange(len(keys), dtype=np.uint32), np.diff(starts))
    row_terms = np.empty(len(terms), dtype=np.uint32)
    row_terms[order] = numbers
    row_starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=row_starts[1:])
    return {
        **_posted("term", keys, starts, ordered_rows),
        "term_impacts": ordered_impacts,
        "term_tops": np.maximum.reduceat(ordered_impacts, starts[:-1]) if len(keys) else ordered_impacts,
        "row_starts": row_starts,
        "row_terms": row_terms,
        "row_impacts": impacts,
        "containing": _containing(tier, ordered_rows, numbers, len(keys)),
    }


def _containing(tier: Array, rows: Rows, numbers: Array, count: int) -> Array:
    tiers = tier[rows]
    return np.stack(
        [np.bincount(numbers[tiers == number], minlength=count).astype(np.int32) for number in range(len(VISIBILITIES))]
    )


# --- Merging -----------------------------------------------------------------------------------------


def merge_segments(segments: Sequence[Segment], live: Sequence[npt.NDArray[np.bool_]]) -> tuple[Segment, list[Rows]]:
    """One segment of all live rows, in order; and for each old segment the new number of each row (GONE: left behind)."""
    renumbered, first = [], 0
    for segment, alive in zip(segments, live, strict=True):
        numbers = np.full(segment.count, DROPPED_ROW, dtype=np.uint32)
        kept = int(alive.sum())
        numbers[alive] = np.arange(first, first + kept, dtype=np.uint32)
        renumbered.append(numbers)
        first += kept
    arrays: dict[str, Array] = {
        name: np.concatenate([each.arrays[name][alive] for each, alive in zip(segments, live, strict=True)])
        for name in _TRAITS
    }
    arrays |= _merged_ids(segments, live)
    keys, starts, rows, _ = _merged_postings([each.keys for each in segments], renumbered, ())
    arrays |= _posted("key", keys, starts, rows)
    arrays |= _merged_terms(segments, live, renumbered, arrays["tier"])
    return Segment(arrays), renumbered


def _merged_ids(segments: Sequence[Segment], live: Sequence[Array]) -> dict[str, Array]:
    texts, lengths, hashes = [], [], []
    for segment, alive in zip(segments, live, strict=True):
        sizes = np.diff(segment.arrays["id_starts"])
        texts.append(segment.arrays["id_bytes"][np.repeat(alive, sizes)])
        lengths.append(sizes[alive])
        hashes.append(segment.mark[alive])
    sizes = np.concatenate(lengths)
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return {"id_bytes": np.concatenate(texts), "id_starts": starts, **_by_hash(np.concatenate(hashes))}


def _merged_postings(
    parts: Sequence[KeyPostings], renumbered: Sequence[Rows], values: Sequence[Sequence[Array]]
) -> tuple[Array, Array, Rows, list[Array]]:
    """Postings under the union of keys, without rows that are gone; and the values that go along with each posting."""
    kept = [numbers[part.rows] != DROPPED_ROW for part, numbers in zip(parts, renumbered, strict=True)]
    sizes = [_sizes(part, keep) for part, keep in zip(parts, kept, strict=True)]
    known = [part.keys[size > 0] for part, size in zip(parts, sizes, strict=True)]
    keys = sorted_unique(np.concatenate(known)) if known else np.zeros(0, dtype=np.uint64)
    totals = np.zeros(len(keys), dtype=np.int64)
    places = [np.searchsorted(keys, each) for each in known]
    for place, size in zip(places, sizes, strict=True):
        totals[place] += size[size > 0]
    starts = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(totals, out=starts[1:])
    rows = np.empty(int(starts[-1]), dtype=np.uint32)
    carried = [np.empty(len(rows), dtype=each[0].dtype) for each in values]
    written = starts[:-1].copy()
    for number, (part, keep) in enumerate(zip(parts, kept, strict=True)):
        size = sizes[number][sizes[number] > 0]
        targets = _targets(written[places[number]], size)
        rows[targets] = renumbered[number][part.rows[keep]]
        for target, each in zip(carried, values, strict=True):
            target[targets] = each[number][keep]
        written[places[number]] += size
    return keys, starts, rows, carried


def _sizes(part: KeyPostings, keep: Array) -> Array:
    """How many postings of each key are kept."""
    running = np.zeros(len(keep) + 1, dtype=np.int64)
    np.cumsum(keep, out=running[1:])
    return running[part.starts[1:]] - running[part.starts[:-1]]


def _targets(starts: Array, sizes: Array) -> Array:
    """start, start+1 … for each run, one behind the other."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0)


def _merged_terms(
    segments: Sequence[Segment], live: Sequence[Array], renumbered: Sequence[Rows], tier: Array
) -> dict[str, Array]:
    keys, starts, rows, (impacts,) = _merged_postings(
        [each.terms for each in segments], renumbered, [[each.impacts for each in segments]]
    )
    row_sizes, row_terms, row_impacts = [], [], []
    for segment, alive in zip(segments, live, strict=True):
        translated = np.searchsorted(keys, segment.terms.keys).astype(np.uint32)
        sizes = np.diff(segment.arrays["row_starts"])
        kept = np.repeat(alive, sizes)
        row_terms.append(translated[segment.arrays["row_terms"][kept]])
        row_impacts.append(segment.arrays["row_impacts"][kept])
        row_sizes.append(sizes[alive])
    sizes = np.concatenate(row_sizes)
    row_starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=row_starts[1:])
    numbers = np.repeat(np.arange(len(keys), dtype=np.uint32), np.diff(starts))
    return {
        **_posted("term", keys, starts, rows),
        "term_impacts": impacts,
        "term_tops": np.maximum.reduceat(impacts, starts[:-1]) if len(keys) else impacts,
        "row_starts": row_starts,
        "row_terms": np.concatenate(row_terms),
        "row_impacts": np.concatenate(row_impacts),
        "containing": _containing(tier, rows, numbers, len(keys)),
    }
