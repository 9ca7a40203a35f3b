"""The hash tree of RFC 6962 and 9162: roots, proofs that an entry is in a tree, proofs that a tree only grew.

Knows hashes and numbers; where hashes are kept is for others to know. A proof is made in two steps: which spans of leaves it
consists of, and then the hash of each span, which `trust/audit/merkle.py` finds with few reads. Leaves are counted from 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

HASH_BYTES = 32

EMPTY_ROOT = hashlib.sha256(b"").digest()

_LEAF = b"\x00"  # leaves and nodes are told apart, so that no leaf can pass for a node

_NODE = b"\x01"

Span = tuple[int, int]  # leaves from the first, up to but without the second

Peak = tuple[int, int]  # a full subtree: how high, and the how-manieth of its height


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(_LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def merkle_root(hashes: Sequence[bytes]) -> bytes:
    """The root over leaf hashes (or over the roots of equally high full subtrees)."""
    if not hashes:
        return EMPTY_ROOT
    row = list(hashes)
    while len(row) > 1:  # level by level; the odd one out rises as it is
        odd = [row[-1]] if len(row) % 2 else []
        row = [node_hash(left, right) for left, right in zip(row[::2], row[1::2], strict=False)] + odd
    return row[0]


def split_into_peaks(span: Span) -> list[Peak]:
    """The full subtrees of a span that begins at a multiple of its largest one; highest first."""
    start, end = span
    found = []
    while start < end:
        height = (end - start).bit_length() - 1
        found.append((height, start >> height))
        start += 1 << height
    return found


def fold_peaks(hashes: Sequence[bytes]) -> bytes:
    """The root over peaks, highest first."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


# --- Which spans a proof consists of --------------------------------------------------------------


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_spans(index: int, size: int) -> list[Span]:
    """The spans whose hashes lead from a leaf to the root of a tree of `size`, from the leaf upwards."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    spans: list[Span] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    return spans[::-1]


def consistency_spans(first: int, second: int) -> list[Span]:
    """The spans whose hashes show that a tree of `second` leaves begins with the tree of `first`."""
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} leaves does not hold one of {first}")
    if first in (0, second):
        return []
    spans: list[Span] = []
    start, end = 0, second
    while end != first:
        middle = start + _split(end - start)
        if first <= middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    # Whoever checks has the old root itself; where that is a subtree of the new tree, it need not be told.
    return spans[::-1] if start == 0 else [(start, end), *spans[::-1]]


# --- Checking -------------------------------------------------------------------------------------


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof leads from this leaf hash to the root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes(leaf, root, *proof):
        return False
    place, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(step, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, step)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(first: int, second: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Whether the proof shows that the second tree begins with all of the first (RFC 9162, 2.1.4.2)."""
    if first == 0 and first_root != EMPTY_ROOT:
        return False
    if first == second:
        return not proof and first_root == second_root
    if not 0 <= first < second or not _are_hashes(first_root, second_root, *proof):
        return False
    if first == 0:
        return not proof
    steps = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    return bool(steps) and _recompute_roots(first, second, steps) == (first_root, second_root)


def _recompute_roots(first: int, second: int, steps: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Both roots that the steps lead to; None when there are too many or too few of them."""
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            return None
        if place & 1 or place == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, step)
        place, last = place >> 1, last >> 1
    return (old, new) if last == 0 else None


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)


# ---- The hashes of a tree in tiles of 256, so that it grows by one leaf in constant time and a proof needs few reads.
#
# A tile of level 0 holds the hashes of 256 leaves, one of level n + 1 the roots of 256 tiles of level n. Only full tiles are
# kept: what an unfinished one would hold are the newest leaves, or the roots of the full tiles below it.

TILE_WIDTH = 256

_HEIGHT = 8  # of the full tree over one tile


class Tile(NamedTuple):
    """A full one."""

    level: int
    number: int
    root: bytes
    hashes: bytes  # all of them, one after the other


class TileFrontier:
    """The unfinished tile of each level: all that a growing tree must have in memory."""

    def __init__(self, size: int = 0, rows: Sequence[Sequence[bytes]] = ()) -> None:
        self.size = size
        self._rows = [list(row) for row in rows] or [[]]
        if [len(row) for row in self._rows] != row_lengths(size):
            raise ValueError(f"these are not the unfinished tiles of a tree of {size} leaves")

    def append(self, leaf: bytes) -> list[Tile]:
        """Grow by one leaf hash; the tiles that it fills, lowest first."""
        self._rows[0].append(leaf)
        self.size += 1
        return self._fill() if len(self._rows[0]) == TILE_WIDTH else []

    def _fill(self) -> list[Tile]:
        filled: list[Tile] = []
        level = 0
        while len(self._rows[level]) == TILE_WIDTH:
            number = (self.size >> _HEIGHT * (level + 1)) - 1
            tile = Tile(level, number, merkle_root(self._rows[level]), b"".join(self._rows[level]))
            filled.append(tile)
            self._rows[level] = []
            if level + 1 == len(self._rows):
                self._rows.append([])
            self._rows[level + 1].append(tile.root)
            level += 1
        return filled

    def row(self, level: int) -> bytes:
        """What the unfinished tile of a level holds."""
        return b"".join(self._rows[level])

    def root(self) -> bytes:
        found = []
        for row in reversed(self._rows):
            found += [
                merkle_root(row[place << height : (place + 1) << height])
                for height, place in split_into_peaks((0, len(row)))
            ]
        return fold_peaks(found)


def row_lengths(size: int) -> list[int]:
    """How many hashes the unfinished tile of each level holds in a tree of so many leaves."""
    lengths = [size % TILE_WIDTH]
    while size := size >> _HEIGHT:
        lengths.append(size % TILE_WIDTH)
    return lengths


def span_hash(span: Span, read_tile: Callable[[int, int], bytes]) -> bytes:
    """The hash of a span of leaves. `read_tile` gives the hashes of a tile by level and number, as far as it is filled."""
    return fold_peaks([_peak_hash(peak, read_tile) for peak in split_into_peaks(span)])


def _peak_hash(peak: Peak, read_tile: Callable[[int, int], bytes]) -> bytes:
    height, place = peak
    level, inner = divmod(height, _HEIGHT)
    number, first = divmod(place << inner, TILE_WIDTH)
    hashes = read_tile(level, number)[first * HASH_BYTES : (first + (1 << inner)) * HASH_BYTES]
    if len(hashes) != HASH_BYTES << inner:
        raise ValueError(f"tile {number} of level {level} is not filled so far")
    return merkle_root(split_hashes(hashes))


def split_hashes(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]
