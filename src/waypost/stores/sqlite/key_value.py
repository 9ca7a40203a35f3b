"""The durable key-value store: `meeting.db` in the data folder.

Every process of a service reads and writes it. Transactions are short, and SQLite's lock orders them; a commit of another
process is visible to the next statement. Writers of one process share commits. Reads have their own connections.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from waypost import limits
from waypost.errors import WaypostError
from waypost.files import make_folder
from waypost.registry.ports import ANY_VALUE, KeyValueItem, KeyValueWrite
from waypost.stores.commit import store_closed_error
from waypost.stores.sqlite.database import (
    Failpoint,
    MigrationStep,
    ThreadReadLock,
    damage_error,
    fault_of,
    migrate,
    open_error,
    open_reader,
    open_writer,
    queue_full_error,
    read_error,
    write_error,
)
from waypost.stores.sqlite.integrity import find_lost_commits

KEY_VALUE_FILE = "meeting.db"

T = TypeVar("T")
_Row = tuple[str, float | None, int, bytes]

# things   a value by kind and key, in scan order
# crc      CRC-32 of the value: SQLite does not detect a flipped bit in a row
_STEPS: tuple[MigrationStep, ...] = (
    (
        """CREATE TABLE things (
            kind TEXT NOT NULL, key TEXT NOT NULL, expires_at REAL, crc INTEGER NOT NULL, value BLOB NOT NULL,
            PRIMARY KEY (kind, key)
        ) WITHOUT ROWID""",
        "CREATE INDEX things_by_time ON things (expires_at) WHERE expires_at IS NOT NULL",
    ),
)
_ROW = "SELECT key, expires_at, crc, value FROM things WHERE kind = ? AND key = ?"
_RANGE = "FROM things WHERE kind = ? AND key >= ? AND key < ? AND key > ? AND (expires_at IS NULL OR expires_at > ?)"
_PUT = "INSERT OR REPLACE INTO things (kind, key, expires_at, crc, value) VALUES (?, ?, ?, ?, ?)"
_EXPIRED = "SELECT kind, key FROM things WHERE expires_at <= ? LIMIT ?"
_LAST_CHARACTER = "\U0010ffff"  # sorts after every key with the prefix
_LOCK_SECONDS = 10  # lock timeout; a commit takes milliseconds
_SWEPT = 64  # expired rows deleted per commit
_CHECKPOINT_BYTES = 4 * limits.MIB
_PAGE_BYTES = 4 * limits.KIB


class _CommitRequest:
    """A commit waiting for its group."""

    __slots__ = ("done", "future", "now", "refusal", "writes")

    def __init__(self, writes: Sequence[KeyValueWrite], now: float, future: asyncio.Future[bool]) -> None:
        self.writes = writes
        self.now = now
        self.future = future
        self.done = False
        self.refusal: WaypostError | None = None


def _nothing(_: str) -> None:
    """The default failpoint: does nothing."""


class SqliteKeyValueStore:
    """`max_pages` limits the file like a full disk; `failpoint` is called at points where tests simulate a crash."""

    def __init__(self, folder: Path, *, failpoint: Failpoint = _nothing, max_pages: int | None = None) -> None:
        self.path = folder / KEY_VALUE_FILE
        self._failpoint = failpoint
        self._max_pages = max_pages
        self._writer: sqlite3.Connection | None = None
        self._loop_reader: sqlite3.Connection | None = None  # for the event loop
        self._thread_reader: sqlite3.Connection | None = None  # for one thread at a time
        self._thread_read_lock = ThreadReadLock()
        self._disk: ThreadPoolExecutor | None = None
        self._waiting: deque[_CommitRequest] = deque()
        self._working: asyncio.Task[None] | None = None
        self._logged_bytes = 0  # since the last checkpoint
        self.broken: sqlite3.Error | OSError | None = None

    # --- Life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        await asyncio.to_thread(self._open_file)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="waypost-keeper")

    def _open_file(self) -> None:
        try:
            make_folder(self.path.parent)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            lost = find_lost_commits(self.path)
            if lost is not None:
                raise damage_error(lost)
            self._writer = open_writer(self.path, max_pages=self._max_pages)
            self._writer.execute(f"PRAGMA busy_timeout = {_LOCK_SECONDS * 1000}")
            migrate(self._writer, self._failpoint, _STEPS, KEY_VALUE_FILE)
            self._loop_reader, self._thread_reader = open_reader(self.path), open_reader(self.path)
        except (sqlite3.Error, OSError) as error:
            self._close_file()
            raise open_error(error, str(self.path)) from error
        except WaypostError:
            self._close_file()
            raise

    async def close(self) -> None:
        """Write and answer everything queued first."""
        disk, self._disk = self._disk, None
        if disk is None:
            return
        if self._working is not None:
            await self._working
        disk.shutdown()
        async with self._thread_read_lock.alone:
            await asyncio.to_thread(self._close_file)

    def _close_file(self) -> None:
        for connection in (self._loop_reader, self._thread_reader, self._writer):
            if connection is not None:
                connection.close()
        self._loop_reader = self._thread_reader = self._writer = None

    async def healthy(self) -> bool:
        return self._disk is not None and self.broken is None

    # --- Writes ----------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        if self._disk is None:
            raise store_closed_error()
        if self.broken is not None:
            raise write_error(self.broken)
        if len(self._waiting) >= limits.WRITE_QUEUE:
            raise queue_full_error()
        for write in writes:
            write.key.encode()  # encoding errors fail here, without affecting the group
        loop = asyncio.get_running_loop()
        turn = _CommitRequest(writes, now, loop.create_future())
        self._waiting.append(turn)
        if self._working is None:
            self._working = loop.create_task(self._write_groups(self._disk), name="keeper")
        return await asyncio.shield(turn.future)

    async def _write_groups(self, disk: ThreadPoolExecutor) -> None:
        """Write groups until the queue is empty."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), limits.GROUP_COMMIT_MAX))]
                failure = await loop.run_in_executor(disk, self._write, group)
                _settle(group, failure)
                if failure is None and self._logged_bytes >= _CHECKPOINT_BYTES:
                    await loop.run_in_executor(disk, self._checkpoint)
        finally:
            self._working = None

    def _write(self, group: Sequence[_CommitRequest]) -> sqlite3.Error | OSError | None:
        connection = self._writer
        if connection is None or self.broken is not None:
            return self.broken or sqlite3.ProgrammingError("the file is closed")
        try:
            connection.execute("BEGIN IMMEDIATE")
            for turn in group:
                turn.done = self._apply(connection, turn)
            _sweep(connection, max(turn.now for turn in group))
            self._failpoint("before_commit")
            connection.execute("COMMIT")
            self._failpoint("after_commit")
        except (sqlite3.Error, OSError) as error:
            self._fail(connection, error)
            return error
        return None

    def _apply(self, connection: sqlite3.Connection, turn: _CommitRequest) -> bool:
        """All writes of a commit or none: expectations are checked before the first write."""
        try:
            for write in turn.writes:
                if (
                    write.expected != ANY_VALUE
                    and _value(connection, write.kind, write.key, turn.now) != write.expected
                ):
                    return False
        except WaypostError as refusal:  # damage is reported to its caller, not to the group
            turn.refusal = refusal
            return False
        for write in turn.writes:
            if write.value is None:
                connection.execute("DELETE FROM things WHERE kind = ? AND key = ?", (write.kind, write.key))
            else:
                row = (write.kind, write.key, write.expires_at, zlib.crc32(write.value), write.value)
                connection.execute(_PUT, row)
            self._logged_bytes += 2 * _PAGE_BYTES + len(write.value or b"")
        return True

    def _fail(self, connection: sqlite3.Connection, error: sqlite3.Error | OSError) -> None:
        if fault_of(error) == "broken":
            self.broken = error
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            self.broken = self.broken or second

    def _checkpoint(self) -> None:
        """Checkpoint the WAL after callers were answered; readers are not blocked."""
        self._logged_bytes = 0
        if self._writer is None:
            return
        try:
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            self._fail(self._writer, error)

    # --- Reads -----------------------------------------------------------------------------------

    async def get(self, kind: str, key: str, now: float) -> bytes | None:
        if self._loop_reader is None:
            raise store_closed_error()
        try:
            return _value(self._loop_reader, kind, key, now)
        except sqlite3.Error as error:
            raise read_error(error, KEY_VALUE_FILE) from error

    async def scan(
        self, kind: str, now: float, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[KeyValueItem]:
        bounds = (kind, prefix, prefix + _LAST_CHARACTER, after, now, limit)
        statement = f"SELECT key, expires_at, crc, value {_RANGE} ORDER BY key LIMIT ?"
        rows = await self._read(lambda connection: connection.execute(statement, bounds).fetchall())
        return [_kept(row) for row in rows]

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int:
        bounds = (kind, prefix, prefix + _LAST_CHARACTER, "", now)
        rows = await self._read(lambda connection: connection.execute(f"SELECT count(*) {_RANGE}", bounds).fetchall())
        return int(rows[0][0])

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._thread_read_lock.read(lambda: read(_open(self._thread_reader)))
        except sqlite3.Error as error:
            raise read_error(error, KEY_VALUE_FILE) from error


def _open(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise store_closed_error()
    return connection


def _value(connection: sqlite3.Connection, kind: str, key: str, now: float) -> bytes | None:
    for row in connection.execute(_ROW, (kind, key)).fetchall():
        if row[1] is None or row[1] > now:
            return _kept(row).value
    return None


def _kept(row: _Row) -> KeyValueItem:
    key, expires_at, crc, value = row
    if zlib.crc32(value) != crc:
        raise damage_error(f"{KEY_VALUE_FILE}: the value of {key!r} is damaged")
    return KeyValueItem(key=key, value=value, expires_at=expires_at)


def _sweep(connection: sqlite3.Connection, now: float) -> None:
    """Delete some expired rows."""
    over = connection.execute(_EXPIRED, (now, _SWEPT)).fetchall()
    if over:
        connection.executemany("DELETE FROM things WHERE kind = ? AND key = ?", over)


def _settle(group: Sequence[_CommitRequest], failure: sqlite3.Error | OSError | None) -> None:
    """Fail the whole group: none of it was committed."""
    for turn in group:
        if turn.future.done():
            continue
        if failure is not None:
            turn.future.set_exception(write_error(failure))
        elif turn.refusal is not None:
            turn.future.set_exception(turn.refusal)
        else:
            turn.future.set_result(turn.done)
