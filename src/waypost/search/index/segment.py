"""Segments: immutable column arrays of many agents, one row each, and their readers.

Terms, keys and ids are 64-bit hashes; the only texts are ids. Segments merge without reading records again. A `SegmentReader`
adds what changes: deleted rows, vectors, and the rows that each audience may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.model.principal import VISIBILITIES
from waypost.search.index.document import IndexDocument, id_key, scope_key
from waypost.search.index.simhash import SIMHASH_WORDS
from waypost.search.index.storage import SavedSegment, SegmentFile, is_member, sorted_unique
from waypost.search.index.vocabulary import Vocabulary
from waypost.search.text.analyzer import GRAMS
from waypost.search.vectors.vector_block import VectorBlock

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

VERSION: Final = 6  # raise it when the arrays change: saved segments are then rebuilt
DROPPED_ROW: Final = np.uint32(0xFFFFFFFF)  # in a renumbering: the row was dropped
FEW_ROWS: Final = 1000  # up to this many rows are looked up one by one
_NO_GRAMS: Final = np.zeros(0, dtype=np.uint16)

_COLUMNS: Final = {
    "tier": np.uint8,
    "owner": np.uint64,
    "deprecated": np.bool_,
    "since": np.float64,
    "updated": np.float64,
    "name_terms": np.uint16,
    "worth": np.float32,
    "language": np.uint8,
    "fingerprint": np.uint64,
}


class Postings:
    """Sorted 64-bit keys, and the sorted rows of each key."""

    def __init__(self, keys: Array, starts: Array, rows: Rows) -> None:
        self.keys = keys
        self.starts = starts
        self.rows = rows

    def find(self, keys: Sequence[int]) -> list[int]:
        """The number of each key, or -1."""
        wanted = np.array(keys, dtype=np.uint64)
        if not len(self.keys):
            return [-1] * len(wanted)
        at = np.minimum(self.keys.searchsorted(wanted), len(self.keys) - 1)
        numbers: list[int] = np.where(self.keys[at] == wanted, at, -1).tolist()
        return numbers

    def span(self, number: int) -> slice:
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def rows_of(self, key: int) -> Rows:
        """An unknown key takes as long as a known one, so that timing does not reveal hidden keys."""
        value = np.uint64(key)
        first, last = np.searchsorted(self.keys, value), np.searchsorted(self.keys, value, "right")
        return self.rows[int(self.starts[first]) : int(self.starts[last])]

    def has_key(self, key: int, rows: Rows) -> Mask:
        """Which of the rows have a key: other holders, such as hidden agents, take next to no time."""
        return is_member(rows, self.rows_of(key))

    def rows_among(self, keys: Iterable[int], mask: Mask, count: int) -> list[Rows]:
        """The rows of each key in a mask of `count` rows. Few rows are looked up one by one: hidden ones take no time."""
        if count > FEW_ROWS:
            return [rows[mask[rows]] for rows in map(self.rows_of, keys)]
        few = np.flatnonzero(mask).astype(np.uint32)
        return [few[self.has_key(key, few)] for key in keys]


class Segment:
    """`arrays` are saved to a file and memory-mapped from it."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self.count = len(arrays["tier"])
        self.terms = Postings(arrays["terms"], arrays["term_starts"], arrays["term_rows"])
        self.keys = Postings(arrays["keys"], arrays["key_starts"], arrays["key_rows"])
        self.impacts: npt.NDArray[np.uint16] = arrays["term_impacts"]  # plus IN_NAME for a term of the name
        self.mark: npt.NDArray[np.uint64] = arrays["mark"]  # hash of the id: breaks ties the same way in every segment
        self.tier: npt.NDArray[np.uint8] = arrays["tier"]
        self.owner: npt.NDArray[np.uint64] = arrays["owner"]
        self.deprecated: npt.NDArray[np.bool_] = arrays["deprecated"]
        self.vocabulary = Vocabulary(arrays["words"])

    @property
    def common_tier(self) -> int:
        """The tier of its rows: all rows of a searched segment have the same."""
        return int(self.tier[0])

    def id_of(self, row: int) -> str:
        starts = self.arrays["id_starts"]
        return self.arrays["id_bytes"][int(starts[row]) : int(starts[row + 1])].tobytes().decode()

    def rows_by_id(self, ids: Sequence[str]) -> Array:
        """The row of each id, or -1."""
        return self.rows_by_key(id_keys(ids))

    def rows_by_key(self, keys: Array) -> Array:
        hashes: Array = self.arrays["id_hashes"]
        at = np.minimum(np.searchsorted(hashes, keys), max(0, len(hashes) - 1))
        if not len(hashes):
            return np.full(len(keys), -1, dtype=np.int64)
        return np.where(hashes[at] == keys, self.arrays["id_rows"][at].astype(np.int64), -1)

    def impacts_of(self, number: int, rows: Rows) -> npt.NDArray[np.uint16]:
        """The impact of a term in each of these rows, or 0."""
        span = self.terms.span(number)
        holders = self.terms.rows[span]
        places = holders.searchsorted(rows)
        impacts = self.impacts[span].take(places, mode="clip")
        impacts[holders.take(places, mode="clip") != rows] = 0
        return impacts

    def grams_of(self, rows: Rows) -> tuple[Array, Array]:
        """The grams of these rows, one row after the other, and how many each has."""
        first = self.arrays["gram_starts"].take(rows)
        sizes = self.arrays["gram_starts"].take(rows.astype(np.intp) + 1) - first
        return self.arrays["grams"].take(_targets(first, sizes)), sizes


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
        "name_terms": [min(document.name_terms, 0xFFFF) for document in documents],
        "worth": [document.worth for document in documents],
        "language": [document.language for document in documents],
        "fingerprint": np.array([document.fingerprint for document in documents]).reshape(count, SIMHASH_WORDS),
    }
    arrays: dict[str, Array] = {name: np.asarray(traits[name], dtype=dtype) for name, dtype in _COLUMNS.items()}
    sizes = np.fromiter((len(document.impacts) for document in documents), dtype=np.int64, count=count)
    total = int(sizes.sum())
    terms = np.fromiter((term for document in documents for term in document.impacts), dtype=np.uint64, count=total)
    impacts = np.fromiter(
        (impact for document in documents for impact in document.impacts.values()), dtype=np.uint16, count=total
    )
    gram_sizes = np.fromiter((len(document.grams) for document in documents), dtype=np.int64, count=count)
    arrays |= _grams(np.concatenate([_NO_GRAMS, *(document.grams for document in documents)]), gram_sizes)
    key_sizes = np.fromiter((len(document.keys) for document in documents), dtype=np.int64, count=count)
    keys = np.fromiter((key for d in documents for key in d.keys), dtype=np.uint64, count=int(key_sizes.sum()))
    arrays |= _ids([document.id for document in documents])
    arrays["words"] = Vocabulary.of(document.vocabulary for document in documents).words
    arrays |= _postings_arrays("key", *_group(keys, np.repeat(np.arange(count, dtype=np.uint32), key_sizes))[:3])
    *grouped, order = _group(terms, np.repeat(np.arange(count, dtype=np.uint32), sizes))
    arrays |= _postings_arrays("term", *grouped)
    arrays["term_impacts"] = impacts[order]
    return Segment(arrays)


def _grams(grams: Array, sizes: Array) -> dict[str, Array]:
    """The grams of each row, and how many rows have each gram."""
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    counts = np.bincount(grams, minlength=GRAMS).astype(np.int32)
    return {"grams": grams, "gram_starts": starts, "gram_counts": counts}


def _ids(ids: Sequence[str]) -> dict[str, Array]:
    encoded = [agent_id.encode() for agent_id in ids]
    starts = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in encoded], out=starts[1:])
    hashes = np.fromiter(map(id_key, ids), dtype=np.uint64, count=len(ids))
    return {"id_bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8), "id_starts": starts, **_by_hash(hashes)}


def _by_hash(hashes: Array) -> dict[str, Array]:
    order = np.argsort(hashes, kind="stable").astype(np.uint32)
    return {"mark": hashes, "id_hashes": hashes[order], "id_rows": order}


def _group(keys: Array, rows: Rows) -> tuple[Array, Array, Rows, Array]:
    """Distinct keys, the start of each, the rows ordered by key, and that order. Rows come sorted."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    distinct = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=distinct[1:])
    firsts = np.flatnonzero(distinct)
    return ordered[firsts], np.append(firsts, len(keys)).astype(np.int64), rows[order], order


def _postings_arrays(name: str, keys: Array, starts: Array, rows: Rows) -> dict[str, Array]:
    return {f"{name}s": keys, f"{name}_starts": starts, f"{name}_rows": rows}


# --- Merging ---


def merge_segments(segments: Sequence[Segment], live: Sequence[npt.NDArray[np.bool_]]) -> tuple[Segment, list[Rows]]:
    """One segment of all live rows, in order; and for each old segment the new numbers of its rows (or DROPPED_ROW)."""
    renumbered, first = [], 0
    for segment, alive in zip(segments, live, strict=True):
        numbers = np.full(segment.count, DROPPED_ROW, dtype=np.uint32)
        kept = int(alive.sum())
        numbers[alive] = np.arange(first, first + kept, dtype=np.uint32)
        renumbered.append(numbers)
        first += kept
    arrays: dict[str, Array] = {
        name: np.concatenate([each.arrays[name][alive] for each, alive in zip(segments, live, strict=True)])
        for name in _COLUMNS
    }
    arrays |= _merge_ids(segments, live)
    arrays["words"] = Vocabulary.merge([segment.vocabulary for segment in segments]).words
    sizes = [np.diff(each.arrays["gram_starts"]) for each in segments]
    grams = [
        each.arrays["grams"][np.repeat(alive, size)] for each, alive, size in zip(segments, live, sizes, strict=True)
    ]
    arrays |= _grams(
        np.concatenate(grams), np.concatenate([size[alive] for size, alive in zip(sizes, live, strict=True)])
    )
    arrays |= _merge_postings("key", [each.keys for each in segments], renumbered)
    arrays |= _merge_postings(
        "term", [each.terms for each in segments], renumbered, [each.impacts for each in segments]
    )
    return Segment(arrays), renumbered


def _merge_ids(segments: Sequence[Segment], live: Sequence[Array]) -> dict[str, Array]:
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


def _merge_postings(
    name: str, parts: Sequence[Postings], renumbered: Sequence[Rows], impacts: Sequence[Array] = ()
) -> dict[str, Array]:
    """Postings under the union of keys, without dropped rows; with the impact of each."""
    kept = [numbers[part.rows] != DROPPED_ROW for part, numbers in zip(parts, renumbered, strict=True)]
    sizes = [_sizes(part, keep) for part, keep in zip(parts, kept, strict=True)]
    known = [part.keys[size > 0] for part, size in zip(parts, sizes, strict=True)]
    keys = sorted_unique(np.concatenate(known))
    totals = np.zeros(len(keys), dtype=np.int64)
    places = [np.searchsorted(keys, each) for each in known]
    for place, size in zip(places, sizes, strict=True):
        totals[place] += size[size > 0]
    starts = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(totals, out=starts[1:])
    arrays = _postings_arrays(name, keys, starts, np.empty(int(starts[-1]), dtype=np.uint32))
    if impacts:
        arrays[f"{name}_impacts"] = np.empty(int(starts[-1]), dtype=np.uint16)
    written = starts[:-1].copy()
    for number, (part, keep) in enumerate(zip(parts, kept, strict=True)):
        size = sizes[number][sizes[number] > 0]
        targets = _targets(written[places[number]], size)
        arrays[f"{name}_rows"][targets] = renumbered[number][part.rows[keep]]
        if impacts:
            arrays[f"{name}_impacts"][targets] = impacts[number][keep]
        written[places[number]] += size
    return arrays


def _sizes(part: Postings, keep: Array) -> Array:
    """How many postings of each key are kept."""
    running = np.zeros(len(keep) + 1, dtype=np.int64)
    np.cumsum(keep, out=running[1:])
    return running[part.starts[1:]] - running[part.starts[:-1]]


def _targets(starts: Array, sizes: Array) -> Array:
    """start, start + 1 … for each run, concatenated."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0)


# --- Readers ---

AUDIENCE_CACHE: Final = 64  # entries per segment

BlockFiles = list[tuple[VectorBlock, SegmentFile | None]]
"""Vector blocks of one space, and the file of each that is saved."""


class SegmentReader:
    """A segment with its deleted rows, vector blocks and visibility masks."""

    def __init__(self, segment: Segment, rows_file: SegmentFile | None = None) -> None:
        self.segment = segment
        self.rows_file = rows_file  # None: in memory only
        self.dead_file: SegmentFile | None = None
        self.blocks: dict[str, BlockFiles] = {}
        self.dead: Mask = np.zeros(segment.count, dtype=np.bool_)
        self.count = segment.count  # of rows that are not deleted
        self.gram_counts: npt.NDArray[np.int32] = segment.arrays["gram_counts"]  # replaced when rows are deleted
        self._visible: dict[frozenset[str] | None, tuple[Mask, int]] = {}
        self._covered: dict[str, Mask] = {}
        self._is_covered: dict[str, bool] = {}
        self.is_dead_saved = True
        self.is_compacting = False  # a thread is merging it: it must stay in place

    @property
    def is_saved(self) -> bool:
        return self.rows_file is not None

    @property
    def unsaved(self) -> int:
        """Rows that are in memory only, or whose vectors are."""
        if self.rows_file is None:
            return self.count
        blocks = [block for blocks in self.blocks.values() for block, file in blocks if file is None]
        return sum(int(np.count_nonzero(block.covered)) for block in blocks)

    @property
    def saved(self) -> SavedSegment | None:
        if self.rows_file is None:
            return None
        blocks = {space: [file for _, file in blocks if file] for space, blocks in self.blocks.items()}
        return SavedSegment(rows=self.rows_file, dead=self.dead_file, blocks=blocks)

    # --- Deletion --------------------------------------------------------------------------------

    def delete(self, rows: npt.NDArray[Any]) -> None:
        """Delete rows. From now on they count in no document frequency."""
        rows = rows[~self.dead[rows]]
        if not len(rows):
            return
        grams, _ = self.segment.grams_of(rows.astype(np.uint32))
        self.gram_counts = self.gram_counts - np.bincount(grams, minlength=GRAMS).astype(np.int32)
        self.count -= len(rows)
        self.dead[rows] = True
        # New dictionaries: a concurrent thread may still store its result, but into the old ones.
        self._visible, self._is_covered = {}, {}
        self.is_dead_saved = False

    # --- Statistics and visibility ---------------------------------------------------------------

    def count_documents(self, numbers: Sequence[int]) -> list[int]:
        """How many rows have each term, by its number (-1: unknown)."""
        postings, is_whole = self.segment.terms, self.count == self.segment.count
        spans = [slice(0, 0) if number < 0 else postings.span(number) for number in numbers]
        if is_whole:
            return [span.stop - span.start for span in spans]
        return [int(np.count_nonzero(~self.dead[postings.rows[span]])) for span in spans]

    def visible(self, audience: frozenset[str] | None) -> tuple[Mask, int]:
        """The rows that an audience may see, and their number. Not a copy: do not change it."""
        cache = self._visible
        known = cache.get(audience)
        if known is None:
            if len(cache) >= AUDIENCE_CACHE:
                cache.clear()
            mask = self._visibility_mask(audience)
            known = cache[audience] = (mask, int(mask.sum()))
        return known

    def _visibility_mask(self, audience: frozenset[str] | None) -> Mask:
        if audience is None:
            return ~self.dead
        tiers = [number for number, tier in enumerate(VISIBILITIES) if tier in audience]
        mask: Mask = np.isin(self.segment.tier, tiers)
        for scope in sorted(audience.difference(VISIBILITIES)):
            mask[self.segment.keys.rows_of(scope_key(scope))] = True
        mask &= ~self.dead
        return mask

    # --- Vectors ---------------------------------------------------------------------------------

    def add_block(self, space: str, block: VectorBlock, file: SegmentFile | None = None) -> None:
        """Add vectors of some rows."""
        self.set_blocks(space, self.join_block(space, block, file))

    def join_block(self, space: str, block: VectorBlock, file: SegmentFile | None = None) -> BlockFiles:
        """The blocks of a space with another one. Small blocks are merged at once, so that a search reads few."""
        blocks = [*self.blocks.get(space, ()), (block, file)]
        while len(blocks) > 1 and blocks[-2][0].size <= 2 * blocks[-1][0].size:
            parts = [blocks.pop()[0], blocks.pop()[0]][::-1]
            same = np.arange(self.segment.count, dtype=np.uint32)
            blocks.append((VectorBlock.merge(parts, [same, same], self.segment.count), None))
        return blocks

    def set_blocks(self, space: str, blocks: BlockFiles) -> None:
        """A query may read meanwhile: it gets the old or the new coverage, and stores neither."""
        self.blocks[space] = blocks
        self._covered[space] = np.logical_or.reduce([block.covered for block, _ in blocks])
        self._is_covered = {}

    def blocks_to_merge(self, space: str, growth: int) -> list[VectorBlock]:
        """The newest blocks worth merging: each is at most `growth` times larger than all newer ones together. None while some
        rows have no vectors: more blocks will come."""
        blocks, newer = [block for block, _ in self.blocks.get(space, ())], 0
        first = len(blocks)
        for at in reversed(range(len(blocks))):
            if blocks[at].size <= growth * newer:
                first = at
            newer += blocks[at].size
        return blocks[first:] if first < len(blocks) and self.is_covered(space) else []

    def replace_blocks(
        self, space: str, parts: Sequence[VectorBlock], merged: VectorBlock, file: SegmentFile | None
    ) -> None:
        """Replace the newest blocks by the block that was merged from them."""
        self.blocks[space] = [*self.blocks[space][: -len(parts)], (merged, file)]

    def covered(self, space: str) -> Mask:
        """The rows that have vectors."""
        known = self._covered.get(space)
        return np.zeros(self.segment.count, dtype=np.bool_) if known is None else known

    def is_covered(self, space: str, mask: Mask | None = None) -> bool:
        """Whether every row that is not deleted, or every row of the mask, has vectors."""
        cache = self._is_covered
        known = cache.get(space)
        if known is None:
            known = cache[space] = bool((self.covered(space) | self.dead).all())
        return known or (mask is not None and not (mask & ~self.covered(space)).any())

    def replace_file(self, space: str, at: int, file: SegmentFile) -> None:
        self.blocks[space][at] = (self.blocks[space][at][0], file)


def with_deletes(reader: SegmentReader, saved: SavedSegment, packed: npt.NDArray[np.uint8] | None) -> SegmentReader:
    if packed is not None:
        reader.delete(np.flatnonzero(np.unpackbits(packed, count=reader.segment.count)))
        reader.dead_file = saved.dead
        reader.is_dead_saved = True
    return reader


def merge_readers(readers: Sequence[SegmentReader], dead: Sequence[Mask]) -> tuple[SegmentReader | None, list[Rows]]:
    """One segment of all rows that are not dead; None if there are none."""
    merged, renumbered = merge_segments([reader.segment for reader in readers], [~mask for mask in dead])
    if not merged.count:
        return None, renumbered
    result = SegmentReader(merged)
    for space in {space: None for reader in readers for space in reader.blocks}:
        parts = [
            (block, numbers)
            for reader, numbers in zip(readers, renumbered, strict=True)
            for block, _ in reader.blocks.get(space, ())
        ]
        result.add_block(
            space, VectorBlock.merge([block for block, _ in parts], [numbers for _, numbers in parts], merged.count)
        )
    return result, renumbered
