"""A segment in use: which of its rows are still true, what vectors they have, who sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.model.principal import VISIBILITIES
from waypost.search.index.document import scope_key
from waypost.search.index.segment import Rows, Segment, merge_segments
from waypost.search.index.storage import SavedSegment, SegmentFile
from waypost.search.vectors.vector_block import VectorBlock

Mask = npt.NDArray[np.bool_]

AUDIENCE_CACHE: Final = 64  # remembered for each segment


class SegmentReader:
    def __init__(self, segment: Segment, rows_file: SegmentFile | None = None) -> None:
        self.segment = segment
        self.rows_file = rows_file  # None: in memory alone
        self.dead_file: SegmentFile | None = None
        self.blocks: dict[str, list[tuple[VectorBlock, SegmentFile | None]]] = {}
        self.dead: Mask = np.zeros(segment.count, dtype=np.bool_)
        self.docs: list[int] = np.bincount(segment.tier, minlength=len(VISIBILITIES)).tolist()  # of each tier
        self._containing: npt.NDArray[np.int32] | None = None
        self._visible: dict[frozenset[str] | None, tuple[Mask, int]] = {}
        self._covered: dict[str, Mask] = {}
        self._is_covered: dict[str, bool] = {}
        self.is_dead_saved = True
        self.is_compacting = False  # a thread is merging it: it must stay where it stands

    @property
    def is_saved(self) -> bool:
        return self.rows_file is not None

    @property
    def count(self) -> int:
        return sum(self.docs)

    @property
    def unsaved(self) -> int:
        """Rows that are in memory alone, or whose vectors are."""
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

    # --- Rows that died --------------------------------------------------------------------------

    def kill(self, rows: npt.NDArray[Any]) -> None:
        """Their counts go with them at once: a dead row bears on nothing."""
        rows = rows[~self.dead[rows]]
        if not len(rows):
            return
        if self._containing is None:
            self._containing = self.segment.containing.copy()
        for row in rows.tolist():
            tier = int(self.segment.tier[row])
            self._containing[tier, self.segment.terms_of(row)] -= 1
            self.docs[tier] -= 1
        self.dead[rows] = True
        # New ones instead of emptied ones: a thread that looked before puts what it saw where nobody looks again.
        self._visible, self._is_covered = {}, {}
        self.is_dead_saved = False

    # --- Statistics and visibility ---------------------------------------------------------------

    def count_documents(self, terms: Sequence[int], tiers: Sequence[int]) -> tuple[list[int], list[int]]:
        """The number of each term, or -1, and how many rows of these tiers hold it."""
        counts = self.segment.containing if self._containing is None else self._containing
        return self.segment.postings.count_documents(counts, terms, tiers)

    def visible(self, audience: frozenset[str] | None) -> tuple[Mask, int]:
        """The rows that an audience sees, and how many. Not a copy: read it."""
        held = self._visible
        known = held.get(audience)
        if known is None:
            if len(held) >= AUDIENCE_CACHE:
                held.clear()
            mask = self._seen(audience)
            known = held[audience] = (mask, int(mask.sum()))
        return known

    def _seen(self, audience: frozenset[str] | None) -> Mask:
        if audience is None:
            return ~self.dead
        tiers = [number for number, tier in enumerate(VISIBILITIES) if tier in audience]
        seen: Mask = np.isin(self.segment.tier, tiers)
        for scope in sorted(audience.difference(VISIBILITIES)):
            seen[self.segment.keys.rows_of(scope_key(scope))] = True
        seen &= ~self.dead
        return seen

    # --- Vectors ---------------------------------------------------------------------------------

    def add_block(self, space: str, block: VectorBlock, file: SegmentFile | None = None) -> None:
        """Vectors of some rows. Small blocks are merged as they come, so that few are asked."""
        blocks = self.blocks.setdefault(space, [])
        blocks.append((block, file))
        while len(blocks) > 1 and blocks[-2][0].size <= 2 * blocks[-1][0].size:
            parts = [blocks.pop()[0], blocks.pop()[0]][::-1]
            same = np.arange(self.segment.count, dtype=np.uint32)
            blocks.append((VectorBlock.merge(parts, [same, same], self.segment.count), None))
        self._covered.pop(space, None)
        self._is_covered = {}

    def apart(self, space: str, growth: int) -> list[VectorBlock]:
        """The newest blocks that are better joined: each is searched by itself, and is not so many times larger than all that
        came after it. None while there are rows without vectors: more blocks are to come."""
        blocks, newer = [block for block, _ in self.blocks.get(space, ())], 0
        first = len(blocks)
        for at in reversed(range(len(blocks))):
            if blocks[at].size <= growth * newer:
                first = at
            newer += blocks[at].size
        return blocks[first:] if first < len(blocks) and self.is_covered(space) else []

    def join(self, space: str, parts: Sequence[VectorBlock], joined: VectorBlock, file: SegmentFile | None) -> None:
        """One block in place of the newest, which it was made of."""
        self.blocks[space] = [*self.blocks[space][: -len(parts)], (joined, file)]

    def covered(self, space: str) -> Mask:
        """The rows that have vectors."""
        known = self._covered.get(space)
        if known is None:
            known = np.zeros(self.segment.count, dtype=np.bool_)
            for block, _ in self.blocks.get(space, ()):
                known |= block.covered
            self._covered[space] = known
        return known

    def is_covered(self, space: str) -> bool:
        """True when every row that counts has vectors."""
        held = self._is_covered
        known = held.get(space)
        if known is None:
            known = held[space] = bool((self.covered(space) | self.dead).all())
        return known

    def replace_file(self, space: str, at: int, file: SegmentFile) -> None:
        self.blocks[space][at] = (self.blocks[space][at][0], file)


def with_deletes(live: SegmentReader, saved: SavedSegment, packed: npt.NDArray[np.uint8] | None) -> SegmentReader:
    if packed is not None:
        live.kill(np.flatnonzero(np.unpackbits(packed, count=live.segment.count)))
        live.dead_file = saved.dead
        live.is_dead_saved = True
    return live


def merge_readers(lives: Sequence[SegmentReader], dead: Sequence[Mask]) -> tuple[SegmentReader | None, list[Rows]]:
    """One of all rows that are not dead; None when there are none."""
    whole, renumbered = merge_segments([live.segment for live in lives], [~mask for mask in dead])
    if not whole.count:
        return None, renumbered
    result = SegmentReader(whole)
    for space in {space: None for live in lives for space in live.blocks}:
        parts = [
            (block, numbers)
            for live, numbers in zip(lives, renumbered, strict=True)
            for block, _ in live.blocks.get(space, ())
        ]
        result.add_block(
            space, VectorBlock.merge([block for block, _ in parts], [numbers for _, numbers in parts], whole.count)
        )
    return result, renumbered
