"""The default store: one SQLite file in the data folder, durable when a write returns.

Writes go through `GroupWriter`; reads have their own connections (`SqliteReads`). One process writes a data folder: the
lock belongs to an open file, so it ends with the process. Followers open the file read-only.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from waypost import limits
from waypost.errors import ConfigurationError, StoreUnavailable, WaypostError
from waypost.files import make_folder
from waypost.registry.ports import Command, CommandResult, CommittedChange, NoteListener
from waypost.stores.commit import gather_results, store_closed_error
from waypost.stores.sqlite.audit import audit_size
from waypost.stores.sqlite.database import (
    FILE_NAME,
    Failpoint,
    damage_error,
    find_damage,
    migrate,
    open_error,
    open_writer,
)
from waypost.stores.sqlite.group_commit import GroupCommitWriter
from waypost.stores.sqlite.integrity import find_lost_commits
from waypost.stores.sqlite.reads import SqliteReader, SqliteReadStore
from waypost.stores.sqlite.snapshot import take_snapshot
from waypost.stores.sqlite.transaction import WriteTransaction

LOCK_FILE = "waypost.lock"


class FolderLock:
    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file: int | None = None

    def take(self) -> None:
        """Lock the folder, or report which process holds it."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            raise ConfigurationError(
                f"The data folder {self._path.parent} is in use by another process{f' ({holder})' if holder else ''}.",
                path="data",
                hint="Stop that process, or choose another folder with --data.",
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"pid {os.getpid()}\n".encode("ascii"), 0)
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


_ROOM_BYTES = 4 * limits.DOCUMENT_BYTES  # the largest document with its record and event, and some reserve

_SMALLEST_FILE = 512

_PROBE_SECONDS = 1.0  # interval at which `healthy` retries after a full disk


def _nothing(_: str) -> None:
    """The default failpoint: does nothing."""


class SqliteStore(SqliteReadStore):
    """`check` verifies the whole file at start, even after a clean stop. `failpoint` is called at points where tests
    simulate a crash; `max_pages` limits the file like a full disk."""

    def __init__(
        self, folder: Path, *, check: bool = False, failpoint: Failpoint = _nothing, max_pages: int | None = None
    ) -> None:
        super().__init__()
        self.path = folder / FILE_NAME
        self._check = check
        self._failpoint = failpoint
        self._max_pages = max_pages
        self._lock = FolderLock(folder)
        self._tables: WriteTransaction | None = None
        self._writer: GroupCommitWriter | None = None
        self._probed_at = 0.0

    # --- Lifecycle -------------------------------------------------------------------------------

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        self._tables = tables = await asyncio.to_thread(self._open_file)
        self._writer = GroupCommitWriter(tables, listener, self._failpoint, noted, before_told=self.end_snapshot)

    def _open_file(self) -> WriteTransaction:
        try:
            make_folder(self.path.parent)
            self._lock.take()
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            lost = find_lost_commits(self.path)
            if lost is not None:
                raise damage_error(lost)
            if 0 < self.path.stat().st_size < _SMALLEST_FILE:  # SQLite would treat an empty file as new
                raise damage_error(f"{self.path} was truncated")
            return self._open_tables()
        except (sqlite3.Error, OSError) as error:
            self._lock.release()
            raise open_error(error, str(self.path)) from error
        except WaypostError:
            self._lock.release()
            raise

    def _open_tables(self) -> WriteTransaction:
        connection = open_writer(self.path, max_pages=self._max_pages)
        try:
            migrate(connection, self._failpoint)
            self._find_damage(connection)
            tables = WriteTransaction(connection, self._failpoint)
            self._open_readers(self.path)
            return tables
        except BaseException:
            connection.close()
            raise

    def _find_damage(self, connection: sqlite3.Connection) -> None:
        """After a clean stop compare the counts; otherwise check the structure."""
        noted = dict(connection.execute("SELECT name, value FROM meta").fetchall())
        if noted.get("clean"):
            self._compare(connection, noted)
        if self._check or noted.get("clean") == 0:
            wrong = find_damage(connection, thorough=self._check)
            if wrong is not None:
                raise damage_error(f"{self.path}: {wrong}")

    def _compare(self, connection: sqlite3.Connection, noted: dict[str, int]) -> None:
        ((page_bytes,),) = connection.execute("PRAGMA page_size").fetchall()
        if self.path.stat().st_size % page_bytes:  # SQLite detects truncation in whole pages only
            raise damage_error(f"{self.path} was truncated")
        for name, value in _numbers(connection).items():
            if noted.get(name, value) != value:
                raise damage_error(f"{self.path} has {value} {name}, but had {noted[name]} when it was closed")

    async def close(self) -> None:
        """Write and answer everything queued, then checkpoint."""
        writer, self._writer = self._writer, None
        if writer is None or self._tables is None:
            return
        await writer.close()
        async with self._thread_read_lock.alone:
            await asyncio.to_thread(self._close_file, self._tables, clean=writer.broken is None)

    def _close_file(self, tables: WriteTransaction, *, clean: bool) -> None:
        """The last connection to close checkpoints the WAL, unless it is read-only. After a disk error that must not happen, so
        readers are closed last."""
        readers = self._take_readers()
        try:
            if clean:
                take_snapshot(tables.connection, self._failpoint)
                _note_clean(tables)
        finally:
            for connection in (*readers, tables.connection) if clean else (tables.connection, *readers):
                connection.close()
            self._lock.release()

    async def healthy(self) -> bool:
        """After a full disk: whether there is space again, by checking and then by writing."""
        writer = self._writer
        if writer is None or writer.broken is not None:
            return False
        if writer.full and time.monotonic() - self._probed_at >= _PROBE_SECONDS and self._has_room():
            self._probed_at = time.monotonic()
            try:
                await writer.submit(lambda tables: tables.mark("probe", int(time.time())))
            except WaypostError:
                return False
        return not writer.full

    def _has_room(self) -> bool:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize >= _ROOM_BYTES

    # --- Writes ----------------------------------------------------------------------------------

    def _open_writer(self) -> GroupCommitWriter:
        if self._writer is None:
            raise store_closed_error()
        return self._writer

    async def execute(self, command: Command) -> CommandResult:
        return await self._open_writer().submit(lambda tables: tables.execute(command))

    async def execute_all(self, commands: Sequence[Command]) -> list[CommandResult | WaypostError]:
        works = [partial(WriteTransaction.execute, command=command) for command in commands]
        return await gather_results(self._open_writer().submit_all(works))

    async def prune(
        self,
        *,
        events_before: float,
        keep_events: int,
        now: float,
        keep_audit: int = limits.AUDIT_KEEP,
        keep_bytes: int = limits.WATCH_KEEP_BYTES,
    ) -> int:
        work = partial(
            WriteTransaction.prune,
            events_before=events_before,
            keep_events=keep_events,
            now=now,
            keep_audit=keep_audit,
            keep_bytes=keep_bytes,
        )
        total = 0
        while count := await self._open_writer().submit(work):
            total += count
        return total

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        return await self._open_writer().submit(lambda tables: tables.secret(name, make))

    async def revision(self) -> int:
        return self._open_writer().revision


def _numbers(connection: sqlite3.Connection) -> dict[str, int]:
    """The counts stored at a clean stop and compared at the next start."""
    ((agents, newest, oldest),) = connection.execute(
        "SELECT (SELECT count(*) FROM entries), (SELECT max(revision) FROM events), (SELECT min(revision) FROM events)"
    ).fetchall()
    events = newest - oldest + 1 if newest is not None else 0
    return {"agents": agents, "events": events, "audit entries": audit_size(connection)}


def _note_clean(tables: WriteTransaction) -> None:
    """Store the counts, then checkpoint. On a full disk only the counts are missing."""
    try:
        for name, value in {**_numbers(tables.connection), "clean": 1}.items():
            tables.mark(name, value)
        tables.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        return


class SqliteFollowerStore(SqliteReadStore):
    """A read-only store for followers. It notifies no listeners: a follower reads the events. The file must exist and be
    migrated."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / FILE_NAME

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        try:
            await asyncio.to_thread(self._open_readers, self.path)
        except (sqlite3.Error, OSError) as error:
            raise open_error(error, str(self.path)) from error

    async def close(self) -> None:
        async with self._thread_read_lock.alone:
            for connection in self._take_readers():
                connection.close()

    async def healthy(self) -> bool:
        return self._loop_reader is not None

    async def revision(self) -> int:
        return self._read_here(SqliteReader.revision)

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        found = self._read_here(lambda reader: reader.secret(name))
        if found is None:
            raise StoreUnavailable(f"The secret {name!r} does not exist yet.", hint="Start the leader process first.")
        return found

    async def execute(self, command: Command) -> CommandResult:
        raise _reads_only()

    async def execute_all(self, commands: Sequence[Command]) -> list[CommandResult | WaypostError]:
        raise _reads_only()

    async def prune(
        self,
        *,
        events_before: float,
        keep_events: int,
        now: float,
        keep_audit: int = limits.AUDIT_KEEP,
        keep_bytes: int = limits.WATCH_KEEP_BYTES,
    ) -> int:
        raise _reads_only()


def _reads_only() -> WaypostError:
    return StoreUnavailable("This process is read-only.", hint="Send the write to the leader process.")
