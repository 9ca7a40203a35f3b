"""What an error of SQLite means: whose fault it is, whether it passes, and what to tell the caller."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from waypost.errors import ConfigurationError, StorageFull, StoreUnavailable, WaypostError

SqliteFault = Literal["full", "broken", "passing"]

_PRIMARY = 0xFF  # the low byte of an extended result code is the plain one

_BROKEN = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY)
# The shared-memory file cannot grow: that is a lack of space, reported as an I/O error.
_NO_SPACE_FOR_INDEX = sqlite3.SQLITE_IOERR_SHMSIZE

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_RETRY_SECONDS = 1

_FULL_RETRY_SECONDS = 5


def code_of(error: sqlite3.Error) -> int:
    """The extended result code; 0 for errors that the Python module raises by itself."""
    return int(getattr(error, "sqlite_errorcode", 0))


def fault_of(error: sqlite3.Error | OSError) -> SqliteFault:
    """`full` passes when space is back, `passing` by itself; `broken` does not: nothing may be written after it.

    After a failed fsync the kernel may have dropped the pages, and a second fsync would report success for data that is
    gone. So an I/O error ends all writing; a restart reads what really is on the disk.
    """
    if isinstance(error, OSError):
        return "full" if error.errno in _NO_SPACE else "broken"
    code = code_of(error)
    if code & _PRIMARY == sqlite3.SQLITE_FULL or code == _NO_SPACE_FOR_INDEX:
        return "full"
    return "broken" if code & _PRIMARY in _BROKEN else "passing"


def write_error(error: sqlite3.Error | OSError) -> WaypostError:
    """What a caller is told whose write was not committed."""
    match fault_of(error):
        case "full":
            return StorageFull(
                "The disk is full; nothing was written.",
                hint="Free some space where the data folder is. Reads go on, and writes do so by themselves afterwards.",
                retry_after=_FULL_RETRY_SECONDS,
            )
        case "broken":
            return StoreUnavailable(
                f"The disk reported an error ({error}); the store is read-only now.",
                hint="Check the disk, then restart the service: it reads again what is really there.",
            )
        case "passing":
            return StoreUnavailable(f"The store could not write ({error}).", retry_after=_RETRY_SECONDS)


def queue_full_error() -> StoreUnavailable:
    return StoreUnavailable(
        "Too many writes are waiting.", hint="Send fewer at once, and try again.", retry_after=_RETRY_SECONDS
    )


def read_error(error: sqlite3.Error) -> StoreUnavailable:
    if code_of(error) & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damage_error(str(error))
    return StoreUnavailable(f"The store could not read ({error}).", retry_after=_RETRY_SECONDS)


def damage_error(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The stored data is damaged: {what}.",
        hint="Stop the service and restore the data folder from a copy. Nothing wrong is served from it.",
    )


def open_error(error: sqlite3.Error | OSError, path: str) -> WaypostError:
    """Why the file cannot be opened."""
    if isinstance(error, sqlite3.Error) and code_of(error) & _PRIMARY in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    ):
        return damage_error(f"{path}: {error}")
    if fault_of(error) == "full":
        return StorageFull(f"The disk is full; {path} cannot be opened.", hint="Free some space.")
    return ConfigurationError(
        f"{path} cannot be opened ({error}).", path="data", hint="Choose a folder that can be written, with --data."
    )


# ---- One connection that threads read in turns. Knows nothing of what is read.

T = TypeVar("T")


class ThreadReadLock:
    """Whoever stops waiting leaves its thread reading: the turn is over only when the thread has ended, so that nobody else
    reads on the same connection or closes it meanwhile."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()

    async def read(self, read: Callable[[], T]) -> T:
        reading = asyncio.create_task(self._read(read))
        reading.add_done_callback(_consume_exception)
        return await asyncio.shield(reading)

    async def _read(self, read: Callable[[], T]) -> T:
        async with self.alone:
            return await asyncio.to_thread(read)


def _consume_exception(task: asyncio.Task[T]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not task.cancelled():
        task.exception()


# ---- The file: its pragmas, its tables, and the steps from each version of them to the next.
#
# A step is never edited once it was released; a change of the tables is a new step at the end of the list.

FILE_NAME = "waypost.sqlite3"

APPLICATION_ID = 0x57415950  # "WAYP": a file of another program is refused

STATEMENTS = 512  # prepared statements kept for each connection: one for each length of an IN list

_WRITER_CACHE_KIB = 16 * 1024

_READER_CACHE_KIB = 16 * 1024  # the system caches the file as well; these pages are counted as ours

_MAPPED_BYTES = (
    1024 * 1024 * 1024
)  # of the file, read without a call for each page; the system's memory, given back at need

_LOG_KEPT_BYTES = 48 * 1024 * 1024  # a log that grew beyond it in a burst gives its space back

_BUSY_SECONDS = 1.0  # one process writes; only a recovery after a crash can make a reader wait

Failpoint = Callable[[str], None]

MigrationStep = tuple[str, ...]

# entries        one short row for each agent, in the order of ids: all that a start must read
# registrations  the whole registration as JSON, the documents of its sources last, so that they are read only when asked for
# aliases        which agent holds a name
# events         the change log; a revision is taken together with its row
# crc            CRC-32 of what stands before it: SQLite does not notice a flipped bit in a row
_FIRST: MigrationStep = (
    """CREATE TABLE entries (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL, entry BLOB NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE registrations (
        number INTEGER PRIMARY KEY, registration BLOB NOT NULL, crc INTEGER NOT NULL, documents BLOB NOT NULL
    )""",
    "CREATE TABLE aliases (alias TEXT PRIMARY KEY, id TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE tombstones (
        id TEXT PRIMARY KEY, forget_at REAL NOT NULL, tombstone BLOB NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX tombstones_by_time ON tombstones (forget_at)",
    """CREATE TABLE events (
        revision INTEGER PRIMARY KEY, at REAL NOT NULL, event BLOB NOT NULL, crc INTEGER NOT NULL, record BLOB
    )""",
    """CREATE TABLE answers (
        key TEXT PRIMARY KEY, forget_at REAL NOT NULL, fingerprint TEXT NOT NULL, answer BLOB NOT NULL,
        crc INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX answers_by_time ON answers (forget_at)",
    "CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
# notes          small facts beside the records: pins, rules, marks, revocations
# audit          who did what: the leaves of a hash tree, numbered from 1 without a gap; the oldest may have gone
# audit_tiles    the hashes of that tree in full tiles of 256, which stay; their root is the checksum of the hashes
# history        what an update replaced, by the revision that it had
_SECOND: MigrationStep = (
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE audit (number INTEGER PRIMARY KEY, leaf BLOB NOT NULL, crc INTEGER NOT NULL)",
    """CREATE TABLE audit_tiles (
        level INTEGER NOT NULL, number INTEGER NOT NULL, root BLOB NOT NULL, crc INTEGER NOT NULL, hashes BLOB NOT NULL,
        PRIMARY KEY (level, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE history (
        revision INTEGER PRIMARY KEY, id TEXT NOT NULL, version BLOB NOT NULL, crc INTEGER NOT NULL
    )""",
    "CREATE INDEX history_by_id ON history (id, revision)",
)
# Where a lost row leaves no trace: of a registration the entry tells, of an event the numbers of its neighbours.
_QUICK_CHECKED_TABLES = ("entries", "aliases", "tombstones", "answers", "secrets", "meta", "notes")

MIGRATIONS: tuple[MigrationStep, ...] = (_FIRST, _SECOND)


def open_writer(path: Path, *, max_pages: int | None = None) -> sqlite3.Connection:
    """The one connection that writes. It is used by one thread at a time, though not always the same."""
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
    )
    try:
        _prepare(connection, path)
        if max_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {int(max_pages)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    _refuse_foreign(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConfigurationError(
            f"The file system of {path.parent} cannot keep a write-ahead log.",
            path="data",
            hint="Choose a folder on a local disk, with --data.",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # the writer does it itself, after its callers are answered
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_KEPT_BYTES}")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA temp_store = MEMORY")


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and tables:
        raise ConfigurationError(
            f"{path} belongs to another program.", path="data", hint="Choose another folder with --data."
        )


def open_reader(path: Path, *, mapped: bool = False) -> sqlite3.Connection:
    """A connection that cannot write. Each statement sees the newest commit. `mapped` is for single rows from anywhere."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )
    connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
    if mapped:
        connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
    return connection


def migrate(
    connection: sqlite3.Connection,
    failpoint: Failpoint,
    steps: Sequence[MigrationStep] = MIGRATIONS,
    name: str = FILE_NAME,
) -> None:
    """Bring the tables to the newest version, one transaction for each step: a crash leaves the version before it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise ConfigurationError(
            f"{name} was written by a newer release (its version is {version}, this release knows {len(steps)}).",
            path="data",
            hint="Install that release again, or choose another folder with --data.",
        )
    for number in range(version, len(steps)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in steps[number]:
                connection.execute(statement)
                failpoint("during_migration")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def find_damage(connection: sqlite3.Connection, *, thorough: bool) -> str | None:
    """What is wrong with the structure of the file; None when nothing is.

    `thorough` reads every page and compares each index with its table. Without it only the tables are looked at in which a
    lost row would not be missed; that takes no longer than reading the entries, which a start does anyway.
    """
    checks = ["integrity_check(1)"] if thorough else [f"quick_check({table})" for table in _QUICK_CHECKED_TABLES]
    for check in checks:
        ((found, *_), *_) = connection.execute(f"PRAGMA {check}").fetchall()
        if found != "ok":
            return str(found).replace("\n", " ")
    return None
