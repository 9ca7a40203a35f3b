"""The audit trail in SQLite: entries, hashes in full tiles, incomplete tiles in memory.

The entries of a group are written with one statement, just before the commit.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence

import msgspec

from waypost import limits
from waypost.model.events import AuditRecord, read_leaf
from waypost.registry.audit_trail import audit_leaf
from waypost.registry.ports import AuditEntry, AuditLogPage, AuditQuery
from waypost.stores.sqlite.database import damage_error
from waypost.trust.transparency_log import (
    TILE_WIDTH,
    Span,
    Tile,
    TileFrontier,
    leaf_hash,
    merkle_root,
    row_lengths,
    span_hash,
    split_hashes,
)

_LEAVES = "SELECT number, leaf, crc FROM audit WHERE number > ? ORDER BY number LIMIT ?"
_ENDS = "SELECT coalesce((SELECT min(number) FROM audit), 1), coalesce((SELECT max(number) FROM audit), 0)"
_PAGE = """SELECT number, leaf, crc FROM audit WHERE number > ?1 AND number <= ?2
    AND (?4 IS NULL OR instr(leaf, ?4)) AND (?5 IS NULL OR instr(leaf, ?5)) AND (?6 IS NULL OR instr(leaf, ?6))
    ORDER BY number LIMIT ?3"""
_ROOTS = "SELECT number, root, crc FROM audit_tiles WHERE level = ? AND number >= ? ORDER BY number LIMIT ?"
_TILE = "SELECT root, crc, hashes FROM audit_tiles WHERE level = ? AND number = ?"


class AuditTable:
    """The writing part. `waiting`: decided entries that are not written yet."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reset()

    def reset(self) -> None:
        """Load the incomplete tiles: at start, and after a lost transaction."""
        self.waiting: list[AuditEntry] = []
        size = audit_size(self._connection)
        rows = [split_hashes(_unfinished(self._connection, level, size)) for level in range(len(row_lengths(size)))]
        self._frontier = TileFrontier(size, rows)

    def flush(self) -> int:
        """Write the waiting entries; returns their approximate size in bytes."""
        entries, self.waiting = self.waiting, []
        leaves: list[tuple[int, bytes, int]] = []
        tiles: list[Tile] = []
        for number, entry in enumerate(entries, start=self._frontier.size + 1):
            leaf = audit_leaf(entry, number)
            leaves.append((number, leaf, zlib.crc32(leaf)))
            tiles += self._frontier.append(leaf_hash(leaf))
        self._connection.executemany("INSERT INTO audit VALUES (?, ?, ?)", leaves)
        if tiles:
            self._connection.executemany("INSERT INTO audit_tiles VALUES (?, ?, ?, ?, ?)", map(_tile_row, tiles))
        return sum(len(row[1]) for row in leaves) + sum(len(tile.hashes) for tile in tiles)

    def prune(self, keep: int, limit: int) -> int:
        """Delete the oldest entries beyond `keep`, at most `limit` at a time, in whole tiles; hashes stay."""
        last = max(0, self._frontier.size - max(keep, 1)) // TILE_WIDTH * TILE_WIDTH
        ((oldest,),) = self._connection.execute("SELECT coalesce(min(number), 0) FROM audit").fetchall()
        last = min(last, oldest - 1 + max(limit, TILE_WIDTH))
        return self._connection.execute(
            "DELETE FROM audit WHERE number <= ?", (last // TILE_WIDTH * TILE_WIDTH,)
        ).rowcount


def load_trail(
    connection: sqlite3.Connection, tiles: Sequence[Tile], entries: Sequence[tuple[int, AuditEntry]]
) -> None:
    """Fill an empty trail with the tiles and the numbered entries of another one. Tiles that are missing are made from the
    entries."""
    connection.executemany("INSERT INTO audit_tiles VALUES (?, ?, ?, ?, ?)", map(_tile_row, tiles))
    covered = TILE_WIDTH * sum(tile.level == 0 for tile in tiles)
    partial = [split_hashes(_unfinished(connection, level, covered)) for level in range(len(row_lengths(covered)))]
    frontier = TileFrontier(covered, partial)
    for number, entry in entries:
        leaf = audit_leaf(entry, number)
        connection.execute("INSERT INTO audit VALUES (?, ?, ?)", (number, leaf, zlib.crc32(leaf)))
        if number > covered:
            filled = frontier.append(leaf_hash(leaf))
            connection.executemany("INSERT INTO audit_tiles VALUES (?, ?, ?, ?, ?)", map(_tile_row, filled))


def _tile_row(tile: Tile) -> tuple[int, int, bytes, int, bytes]:
    return tile.level, tile.number, tile.root, _root_crc(tile.level, tile.number, tile.root), tile.hashes


def _root_crc(level: int, number: int, root: bytes) -> int:
    return zlib.crc32(root, zlib.crc32(b"%d %d" % (level, number)))


# --- Reads ----------------------------------------------------------------------------------------


def audit_size(connection: sqlite3.Connection) -> int:
    ((newest,),) = connection.execute("SELECT coalesce(max(number), 0) FROM audit").fetchall()
    return int(newest)


def audit_page(connection: sqlite3.Connection, query: AuditQuery) -> AuditLogPage:
    ((oldest, size),) = connection.execute(_ENDS).fetchall()
    after = max(query.after, oldest - 1)
    last = min(size, after + limits.AUDIT_SCAN)
    parts = query.parts()
    padded = (*parts, None, None, None)[:3]
    found = connection.execute(_PAGE, (after, last, query.limit, *padded)).fetchall()
    for row in found:
        read_entry(*row)
    if not parts and [row[0] for row in found] != list(range(after + 1, min(last, after + query.limit) + 1)):
        raise damage_error(f"audit entries after {after} are missing")
    if len(found) == query.limit:
        last = found[-1][0]
    return AuditLogPage(
        leaves=[row[1] for row in found], size=size, oldest=oldest, next_after=last if last < size else None
    )


def audit_hashes(connection: sqlite3.Connection, spans: Sequence[Span]) -> list[bytes]:
    """Read each tile once."""
    tiles: dict[tuple[int, int], bytes] = {}

    def tile(level: int, number: int) -> bytes:
        if (level, number) not in tiles:
            tiles[level, number] = read_tile(connection, level, number)
        return tiles[level, number]

    return [span_hash(span, tile) for span in spans]


def read_entry(number: int, leaf: bytes, crc: int) -> AuditRecord:
    what = f"the audit entry {number}"
    if not isinstance(leaf, bytes) or zlib.crc32(leaf) != crc:
        raise damage_error(what)
    try:
        entry = read_leaf(leaf)
    except msgspec.MsgspecError as error:
        raise damage_error(f"{what} ({error})") from None
    if entry.number != number:
        raise damage_error(what)
    return entry


def read_tile(connection: sqlite3.Connection, level: int, number: int) -> bytes:
    """The hashes of a tile, complete or not."""
    for root, crc, hashes in connection.execute(_TILE, (level, number)).fetchall():
        _check_root(level, number, root, crc)
        if not isinstance(hashes, bytes) or len(hashes) % len(root) or merkle_root(split_hashes(hashes)) != root:
            raise damage_error(f"tile {number} of level {level} of the audit trail")
        return hashes
    return _unfinished(connection, level, audit_size(connection), number)


def _unfinished(connection: sqlite3.Connection, level: int, size: int, number: int | None = None) -> bytes:
    """The content of the incomplete tile of a level; `number` must be its number."""
    count = row_lengths(size)[level]
    tile = size >> 8 * (level + 1)
    if number not in (None, tile):
        raise damage_error(f"tile {number} of level {level} of the audit trail is missing")
    hashes = _leaf_hashes(connection, tile, count) if level == 0 else _roots(connection, level, tile, count)
    if len(hashes) != count:
        raise damage_error(f"tile {tile} of level {level} of the audit trail is incomplete")
    return b"".join(hashes)


def _leaf_hashes(connection: sqlite3.Connection, tile: int, count: int) -> Sequence[bytes]:
    hashes = []
    for place, (number, leaf, crc) in enumerate(connection.execute(_LEAVES, (tile * TILE_WIDTH, count)).fetchall(), 1):
        if number != tile * TILE_WIDTH + place:
            raise damage_error(f"the audit entry {tile * TILE_WIDTH + place} is missing")
        read_entry(number, leaf, crc)
        hashes.append(leaf_hash(leaf))
    return hashes


def _roots(connection: sqlite3.Connection, level: int, tile: int, count: int) -> Sequence[bytes]:
    roots = []
    found = connection.execute(_ROOTS, (level - 1, tile * TILE_WIDTH, count)).fetchall()
    for place, (number, root, crc) in enumerate(found):
        if number != tile * TILE_WIDTH + place:
            raise damage_error(f"tile {tile * TILE_WIDTH + place} of level {level - 1} of the audit trail is missing")
        _check_root(level - 1, number, root, crc)
        roots.append(root)
    return roots


def _check_root(level: int, number: int, root: bytes, crc: int) -> None:
    if not isinstance(root, bytes) or _root_crc(level, number, root) != crc:
        raise damage_error(f"tile {number} of level {level} of the audit trail")
