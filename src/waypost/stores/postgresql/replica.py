"""The local copy of the data in SQLite: reads, searches and worker processes use it as they use the default store.

It is only a cache of PostgreSQL. A damaged one, or one of another history, is removed and loaded again.
"""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from waypost.errors import DamagedStore
from waypost.files import make_folder
from waypost.registry.catalog.entries import entry_of
from waypost.registry.ports import CommittedChange
from waypost.settings import INDEX_FOLDER, REPLICA_FOLDER
from waypost.stores.postgresql.database import LogConnection
from waypost.stores.postgresql.group import (
    DecidedGroup,
    GroupTransaction,
    decode_answer,
    decode_audit_entry,
    decode_group,
    decode_registration,
    decode_tombstone,
    decode_version,
    read_event,
)
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.audit import load_trail
from waypost.stores.sqlite.database import FILE_NAME, Failpoint, find_damage, migrate, open_writer
from waypost.stores.sqlite.snapshot import take_snapshot
from waypost.stores.sqlite.store import FolderLock
from waypost.trust.transparency_log import Tile

_CHECKPOINT_BYTES = 16 << 20
_GROUP_BYTES = 64 << 10  # of the WAL for each group, besides its rows
_LOAD_ROWS = 1000

Progress = Callable[[str, int], None]  # a table, and how many of its rows are copied


def show_nothing(table: str, count: int) -> None:
    """The progress of a load that nobody watches."""


# The row that the replica has already is read again, without its payload: the database may have lost it.
_LOG_FROM = """SELECT position, first_revision, CASE WHEN position > $1 THEN payload ELSE '' END, checksum,
    extract(epoch FROM clock_timestamp() - committed_at)::double precision FROM waypost.log
    WHERE position >= $1 ORDER BY position LIMIT $2"""


# Those of agents that were registered again are gone, even before they are pruned.
_TOMBSTONES = (
    "SELECT data FROM waypost.tombstones t WHERE NOT EXISTS (SELECT FROM waypost.agents a WHERE a.key = t.key)"
)


class LogRow(msgspec.Struct, frozen=True, gc=False):
    position: int
    first_revision: int
    payload: bytes
    checksum: bytes
    age_seconds: float  # when it was read


class Replica:
    """The writing connection. `position` and `checksum` are those of the last row of the log that it has."""

    def __init__(self, folder: Path, failpoint: Failpoint, *, subfolder: str = REPLICA_FOLDER) -> None:
        """Without a `subfolder` the file is that of a new store, which is not removed if it cannot be opened."""
        self._is_store = not subfolder
        self._data = folder
        self.folder = folder / subfolder
        self.path = self.folder / FILE_NAME
        self.index_folder = self.folder / INDEX_FOLDER
        self._failpoint = failpoint
        self._lock = FolderLock(folder)
        self._logged_bytes = 0
        self.connection: sqlite3.Connection
        self.tables: GroupTransaction
        self.position = 0
        self.checksum = b""

    # --- Open and close --------------------------------------------------------------------------

    def open(self) -> None:
        make_folder(self._data)
        self._lock.take()
        try:
            self._open()
        except (sqlite3.DatabaseError, DamagedStore):
            if self._is_store:
                raise
            self.clear()

    def _open(self) -> None:
        make_folder(self.folder)
        self.connection = open_writer(self.path)
        try:
            migrate(self.connection, self._failpoint)
            self.connection.execute("PRAGMA synchronous = NORMAL")  # PostgreSQL has what a power cut loses here
            self.connection.execute("CREATE TABLE IF NOT EXISTS replica (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
            if find_damage(self.connection, thorough=False) is not None:
                raise sqlite3.DatabaseError("damaged")
            self.tables = GroupTransaction(self.connection, self._failpoint)
            state = dict(self.connection.execute("SELECT name, value FROM replica").fetchall())
            self.position, self.checksum = int(state.get("position", -1)), bytes(state.get("checksum", b""))
        except BaseException:
            self.connection.close()
            raise

    @property
    def is_empty(self) -> bool:
        return self.position < 0

    def clear(self) -> None:
        """Remove the files and begin with an empty replica. The search index beside them belongs to the same history."""
        if hasattr(self, "connection"):
            self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._open()

    def close(self) -> None:
        """Save a snapshot of the entries for a quick start."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            take_snapshot(self.connection, self._failpoint)
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error:
            pass  # it is loaded again
        finally:
            self.connection.close()
            self._lock.release()

    # --- Write -----------------------------------------------------------------------------------

    def commit(self, position: int, checksum: bytes) -> tuple[list[CommittedChange], dict[str, bytes | None]]:
        """Commit the open transaction, which is the group at this position."""
        self.tables.before_commit()
        self._set_position(position, checksum)
        self.connection.execute("COMMIT")
        self._logged_bytes += self.tables.written_bytes + _GROUP_BYTES
        self.position, self.checksum = position, checksum
        return self.tables.settle()

    def roll_back(self) -> None:
        self.tables.roll_back()

    def apply(
        self, found: Sequence[LogRow], decided: DecidedGroup | None = None
    ) -> tuple[list[CommittedChange], dict[str, bytes | None]]:
        """Apply rows of the log, in one transaction. `decided`: a group of this node that is among them."""
        self.tables.begin()
        try:
            for row in found:
                self.tables.apply(decode_group(row.payload), row.first_revision - 1, decided)
            return self.commit(found[-1].position, found[-1].checksum)
        except BaseException:
            self.roll_back()
            raise

    def _set_position(self, position: int, checksum: bytes) -> None:
        values = (("position", position), ("checksum", checksum))
        self.connection.executemany("INSERT OR REPLACE INTO replica VALUES (?, ?)", values)

    def checkpoint_if_due(self) -> bool:
        """Whether `checkpoint` should be called, in a thread."""
        return self._logged_bytes >= _CHECKPOINT_BYTES

    def checkpoint(self) -> None:
        self._logged_bytes = 0
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # --- Load ------------------------------------------------------------------------------------

    async def load(self, connection: asyncpg.Connection, progress: Progress = show_nothing) -> None:
        """Copy everything from PostgreSQL, as it is at one moment."""
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            head = await connection.fetchrow("SELECT * FROM waypost.log ORDER BY position DESC LIMIT 1")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                for load in (self._load_agents, self._load_small_tables, self._load_events, self._load_audit):
                    await load(connection, progress)
                meta = await connection.fetch("SELECT name, value FROM waypost.meta")
                self._insert("meta", 2, ((row["name"], row["value"]) for row in meta))
                self._insert("meta", 2, [("clean", 0)])
                if not meta and head["last_revision"] == 0:
                    self._insert("meta", 2, [("pruned", 0)])
                self._set_position(head["position"], head["checksum"])
                self.connection.execute("COMMIT")
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
        self.tables.reset()
        self.position, self.checksum = head["position"], head["checksum"]

    async def _load_agents(self, connection: asyncpg.Connection, progress: Progress) -> None:
        """In pages: with a million agents, each statement and each copy counts."""
        cursor = await connection.cursor("SELECT revision, data FROM waypost.agents")
        count = 0
        while page := await cursor.fetch(_LOAD_ROWS):
            entries, registrations = [], []
            for number, (revision, encoded) in enumerate(page, count + 1):
                stored = decode_registration(encoded)
                registration = stored.read_bare(revision)
                entry = rows.entry_row(msgspec.structs.replace(entry_of(registration), number=number), registration)
                entries.append((registration.id, number, entry, zlib.crc32(entry)))
                registrations.append((number, stored.data, zlib.crc32(stored.data), stored.documents))
            self._insert("entries", 4, entries)
            self._insert("registrations", 4, registrations)
            count += len(page)
            progress("agents", count)

    async def _load_small_tables(self, connection: asyncpg.Connection, progress: Progress) -> None:
        async for row in connection.cursor("SELECT alias, id FROM waypost.aliases", prefetch=_LOAD_ROWS):
            self._insert("aliases", 2, [(row["alias"].decode(), row["id"].decode())])
        async for row in connection.cursor(_TOMBSTONES, prefetch=_LOAD_ROWS):
            self._insert("tombstones", 4, [rows.tombstone_row(decode_tombstone(row["data"]))])
        async for row in connection.cursor("SELECT name, value FROM waypost.notes", prefetch=_LOAD_ROWS):
            self._insert("notes", 3, [rows.note_row(row["name"].decode(), row["value"])])
        async for row in connection.cursor("SELECT id, revision, data FROM waypost.history", prefetch=_LOAD_ROWS):
            version = msgspec.structs.replace(decode_version(row["data"]), revision=row["revision"])
            self._insert("history", 4, [rows.version_row(row["id"].decode(), version)])

    async def _load_events(self, connection: asyncpg.Connection, progress: Progress) -> None:
        """Events and stored answers are in the log: their revisions depend on that of their group."""
        pruned = await connection.fetchval("SELECT value FROM waypost.meta WHERE name = 'pruned'") or 0
        count = 0
        async for row in connection.cursor(
            "SELECT first_revision, payload FROM waypost.log WHERE position > 0 ORDER BY position", prefetch=100
        ):
            group = decode_group(row["payload"])
            move = group.move(row["first_revision"] - 1)
            events = [read_event(write, move) for write in group.writes if write.event is not None]
            self._insert("events", 5, [rows.event_row(event) for event in events if event.revision > pruned])
            count += len(events)
            progress("events", count)
        # An answer keeps the revisions that its node assumed; they matter to nobody after the first call was answered.
        async for row in connection.cursor("SELECT data FROM waypost.answers", prefetch=_LOAD_ROWS):
            stored = decode_answer(row["data"])
            values = (stored.key, stored.forget_at, stored.fingerprint, stored.result, zlib.crc32(stored.result))
            self._insert("answers", 5, [values])

    async def _load_audit(self, connection: asyncpg.Connection, progress: Progress) -> None:
        tiles = [
            Tile(row["level"], row["number"], row["root"], row["hashes"])
            for row in await connection.fetch("SELECT * FROM waypost.audit_tiles ORDER BY level, number")
        ]
        entries = await connection.fetch("SELECT number, entry FROM waypost.audit ORDER BY number")
        load_trail(self.connection, tiles, [(row["number"], decode_audit_entry(row["entry"])) for row in entries])
        progress("audit", len(entries))

    def _insert(self, table: str, columns: int, values: Iterable[tuple[Any, ...]]) -> None:
        marks = ",".join("?" * columns)
        self.connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)  # noqa: S608 - the names are ours


class HistoryChanged(Exception):
    """The log is another one than that of the replica, or no longer reaches back to it."""


async def fetch_log(
    connection: asyncpg.Connection | LogConnection, after: int, checksum: bytes, limit: int
) -> list[LogRow]:
    """The rows of the log after the one with this position and checksum."""
    found = [LogRow(*row) for row in await connection.fetch(_LOG_FROM, after, limit + 1)]
    if not found:
        raise HistoryChanged("the database lost the end of its log, which the replica has")
    for place, row in enumerate(found, after):
        if row.position != place:
            raise HistoryChanged(f"the log was pruned before this node read it (row {place} of the log)")
    if found[0].checksum != checksum:
        raise HistoryChanged("the database has another history than the replica")
    return found[1:]
