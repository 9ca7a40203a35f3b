"""A snapshot of all entries in a few rows, so that a start need not read 100,000 rows.

It is written at a clean stop, in the same file, and is only a cache: changes since then are read from the entries, and a
missing, damaged, outdated or foreign snapshot is ignored. Its table is not part of the schema and may be dropped.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from waypost.errors import StoreUnavailable
from waypost.model.registration import CatalogEntry
from waypost.registry.catalog.entry_columns import FIELDS, EntryColumns
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.database import Failpoint

_PART = 8192  # entries per row
_SHARE = 20  # rewritten when one in so many entries may have changed
_TABLE = """CREATE TABLE IF NOT EXISTS snapshot (
    part INTEGER PRIMARY KEY, parts INTEGER NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL, crc INTEGER NOT NULL
)"""
_NEWEST = "SELECT (SELECT max(revision) FROM events), (SELECT value FROM meta WHERE name = 'pruned')"
_NAMES = tuple(field.encode_name for field in FIELDS)

# A column holds its values; repeated values are stored once with their positions and shared in memory. Values that are
# mostly unique and costly to decode stay encoded until they are needed.
_Column = tuple[list[Any], list[int]]
_LAZY_COLUMNS = frozenset(("tags",))
_COLUMN_TYPES: Any = tuple(
    tuple[list[msgspec.Raw if field.name in _LAZY_COLUMNS else field.type], list[int]]  # type: ignore[misc]
    for field in FIELDS
)
_names_decoder = msgspec.msgpack.Decoder(tuple[tuple[str, ...], msgspec.Raw])
_decoder: msgspec.msgpack.Decoder[tuple[tuple[str, ...], tuple[_Column, ...]]] = msgspec.msgpack.Decoder(
    tuple[tuple[str, ...], tuple[_COLUMN_TYPES]]
)


# --- Write ----------------------------------------------------------------------------------------


def take_snapshot(connection: sqlite3.Connection, failpoint: Failpoint) -> None:
    """Write all entries, unless the last snapshot is still good. A failure loses nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_worth_it(connection):
            _write(connection, failpoint)
        connection.execute("COMMIT")
    except (sqlite3.Error, StoreUnavailable):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_worth_it(connection: sqlite3.Connection) -> bool:
    connection.execute(_TABLE)
    ((taken,),) = connection.execute("SELECT max(revision) FROM snapshot").fetchall()
    ((agents,),) = connection.execute("SELECT count(*) FROM entries").fetchall()
    return (_revision(connection) - (taken or 0)) * _SHARE > int(agents) or _is_of_another_release(connection)


def _is_of_another_release(connection: sqlite3.Connection) -> bool:
    for (data,) in connection.execute("SELECT data FROM snapshot ORDER BY part LIMIT 1").fetchall():
        try:
            return bool(_names_decoder.decode(data)[0] != _NAMES)
        except (msgspec.MsgspecError, TypeError):
            return True
    return False


def _write(connection: sqlite3.Connection, failpoint: Failpoint) -> None:
    revision = _revision(connection)
    connection.execute("DELETE FROM snapshot")
    count = 0
    for count, entries in enumerate(_pages(connection), start=1):
        data = msgspec.msgpack.encode((_NAMES, _columns(entries)))
        row = (count, 0, revision, data, _checksum(count, revision, data))
        connection.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?, ?)", row)
        failpoint("during_snapshot")
    connection.execute("UPDATE snapshot SET parts = ?", (count,))


def _pages(connection: sqlite3.Connection) -> Iterator[list[CatalogEntry]]:
    """With row numbers, which entries of an earlier release lack."""
    after = ""
    statement = "SELECT id, entry, crc, number FROM entries WHERE id > ? ORDER BY id LIMIT ?"
    while found := connection.execute(statement, (after, _PART)).fetchall():
        page = rows.read_entries([row[:3] for row in found])
        numbers = [row[3] for row in found]
        yield [
            entry if entry.number == number else msgspec.structs.replace(entry, number=number)
            for entry, number in zip(page, numbers, strict=True)
        ]
        after = page[-1].id


def _columns(entries: Sequence[CatalogEntry]) -> list[_Column]:
    return [_column(values) for values in zip(*map(msgspec.structs.astuple, entries), strict=True)]


def _column(values: tuple[Any, ...]) -> _Column:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    if 4 * len(places) > len(values):
        return list(values), []
    return list(places), [places[value] for value in values]


def _revision(connection: sqlite3.Connection) -> int:
    ((newest, pruned),) = connection.execute(_NEWEST).fetchall()
    return max(newest or 0, pruned or 0)


def _checksum(part: int, revision: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(b"%d %d" % (part, revision)))


# --- Read -----------------------------------------------------------------------------------------


class _LazyColumn(Sequence[Any]):
    """A column whose values are decoded one by one."""

    def __init__(self, type_: Any, raws: list[msgspec.Raw]) -> None:
        self._decode = msgspec.msgpack.Decoder(type_).decode
        self._raws = raws

    def __len__(self) -> int:
        return len(self._raws)

    def __getitem__(self, row: Any) -> Any:
        return [*map(self._decode, self._raws[row])] if isinstance(row, slice) else self._decode(self._raws[row])

    def __iter__(self) -> Iterator[Any]:
        return map(self._decode, self._raws)


def read_snapshot(connection: sqlite3.Connection) -> Sequence[CatalogEntry] | None:
    """All entries ordered by id, up to date; None if they must be read one by one."""
    connection.execute("BEGIN")  # one read snapshot
    try:
        return _read(connection)
    except (sqlite3.Error, StoreUnavailable, msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return None  # errors are found when the entries are read
    finally:
        connection.execute("ROLLBACK")


def _read(connection: sqlite3.Connection) -> Sequence[CatalogEntry] | None:
    found = connection.execute("SELECT part, parts, revision, data, crc FROM snapshot ORDER BY part").fetchall()
    if not found:
        return None
    revision, parts = found[0][2], found[0][1]
    columns: list[list[Any]] = [[] for _ in FIELDS]
    for number, row in enumerate(found, start=1):
        if row[:3] != (number, parts, revision) or _checksum(number, revision, row[3]) != row[4]:
            return None
        for column, values in zip(columns, _read_columns(row[3]), strict=True):
            column += values
    late = [
        _LazyColumn(field.type, column) if field.name in _LAZY_COLUMNS else column
        for field, column in zip(FIELDS, columns, strict=True)
    ]
    roll = EntryColumns(late)
    return _apply_changes_since(connection, roll, revision) if parts == len(found) else None


def _read_columns(data: bytes) -> list[list[Any]]:
    names, columns = _decoder.decode(data)
    if names != _NAMES:
        raise ValueError("written by another release")
    values = [_expand_column(*column) for column in columns]
    if len(set(map(len, values))) != 1:
        raise ValueError("columns of different lengths")
    return values


def _expand_column(held: list[Any], places: list[int]) -> list[Any]:
    if not places:
        return held
    return held * len(places) if len(held) == 1 else list(map(held.__getitem__, places))


def _apply_changes_since(
    connection: sqlite3.Connection, entries: Sequence[CatalogEntry], revision: int
) -> Sequence[CatalogEntry] | None:
    """Apply later changes. None if the log does not reach back, or if reading all entries is faster."""
    newest = _revision(connection)
    if newest == revision:
        return entries
    if revision > newest or newest - revision > len(entries) // 4 + 1:
        return None
    events = connection.execute(
        "SELECT revision, event, crc, record FROM events WHERE revision > ? ORDER BY revision", (revision,)
    ).fetchall()
    if [row[0] for row in events] != list(range(revision + 1, newest + 1)):
        return None
    held = {entry.id: entry for entry in entries}
    for agent_id in {rows.read_event(*row).id for row in events}:
        held.pop(agent_id, None)
        row = connection.execute("SELECT id, entry, crc FROM entries WHERE id = ?", (agent_id,)).fetchall()
        held.update((entry.id, entry) for entry in rows.read_entries(row))
    return sorted(held.values(), key=lambda entry: entry.id)
