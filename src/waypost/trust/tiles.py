"""The hashes of a tree in tiles of 256, so that it grows by one leaf in constant time and a proof needs few reads.

A tile of level 0 holds the hashes of 256 leaves, one of level n + 1 the roots of 256 tiles of level n. Only full tiles are
kept: what an unfinished one would hold are the newest leaves, or the roots of the full tiles below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from waypost.trust.merkle import HASH_BYTES, Peak, Span, folded, peaks, root_of

WIDTH = 256
_HEIGHT = 8  # of the full tree over one tile


class Tile(NamedTuple):
    """A full one."""

    level: int
    number: int
    root: bytes
    hashes: bytes  # all of them, one after the other


class Frontier:
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
        return self._fill() if len(self._rows[0]) == WIDTH else []

    def _fill(self) -> list[Tile]:
        filled: list[Tile] = []
        level = 0
        while len(self._rows[level]) == WIDTH:
            number = (self.size >> _HEIGHT * (level + 1)) - 1
            tile = Tile(level, number, root_of(self._rows[level]), b"".join(self._rows[level]))
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
            found += [root_of(row[place << height : (place + 1) << height]) for height, place in peaks((0, len(row)))]
        return folded(found)


def row_lengths(size: int) -> list[int]:
    """How many hashes the unfinished tile of each level holds in a tree of so many leaves."""
    lengths = [size % WIDTH]
    while size := size >> _HEIGHT:
        lengths.append(size % WIDTH)
    return lengths


def span_hash(span: Span, read_tile: Callable[[int, int], bytes]) -> bytes:
    """The hash of a span of leaves. `read_tile` gives the hashes of a tile by level and number, as far as it is filled."""
    return folded([_peak_hash(peak, read_tile) for peak in peaks(span)])


def _peak_hash(peak: Peak, read_tile: Callable[[int, int], bytes]) -> bytes:
    height, place = peak
    level, inner = divmod(height, _HEIGHT)
    number, first = divmod(place << inner, WIDTH)
    hashes = read_tile(level, number)[first * HASH_BYTES : (first + (1 << inner)) * HASH_BYTES]
    if len(hashes) != HASH_BYTES << inner:
        raise ValueError(f"tile {number} of level {level} is not filled so far")
    return root_of(split_hashes(hashes))


def split_hashes(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]
