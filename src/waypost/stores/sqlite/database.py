"""The SQLite file: error classification, connections, schema and migrations.

A migration step is never edited after its release; a schema change is a new step at the end of the list.
"""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from waypost.errors import ConfigurationError, DamagedStore, StorageFull, StoreUnavailable, WaypostError

SqliteFault = Literal["full", "broken", "passing"]

_PRIMARY = 0xFF  # the low byte of an extended result code is the primary code

_BROKEN = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY)
# The shared-memory file cannot grow: lack of space, reported as an I/O error.
_NO_SPACE_FOR_INDEX = sqlite3.SQLITE_IOERR_SHMSIZE

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_RETRY_SECONDS = 1

_FULL_RETRY_SECONDS = 5


def code_of(error: sqlite3.Error) -> int:
    """The extended result code; 0 for errors raised by the Python module itself."""
    return int(getattr(error, "sqlite_errorcode", 0))


def is_damage(error: sqlite3.Error) -> bool:
    return code_of(error) & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def fault_of(error: sqlite3.Error | OSError) -> SqliteFault:
    """`full` ends when there is space again, `passing` by itself; after `broken` nothing may be written.

    After a failed fsync the kernel may have dropped dirty pages, and a second fsync would report success for lost data. So
    an I/O error ends all writing; a restart reads what is on disk.
    """
    if isinstance(error, OSError):
        return "full" if error.errno in _NO_SPACE else "broken"
    code = code_of(error)
    if code & _PRIMARY == sqlite3.SQLITE_FULL or code == _NO_SPACE_FOR_INDEX:
        return "full"
    return "broken" if code & _PRIMARY in _BROKEN else "passing"


def write_error(error: sqlite3.Error | OSError) -> WaypostError:
    """The error for a caller whose write was not committed."""
    match fault_of(error):
        case "full":
            return StorageFull(
                "The disk is full; nothing was written.",
                hint="Free space on the disk of the data folder. Reads continue, and writes resume automatically.",
                retry_after=_FULL_RETRY_SECONDS,
            )
        case "broken":
            return StoreUnavailable(
                f"The disk reported an error ({error}); the store is now read-only.",
                hint="Check the disk, then restart the service: it reloads what is on disk.",
            )
        case "passing":
            return StoreUnavailable(f"The store could not write ({error}).", retry_after=_RETRY_SECONDS)


def queue_full_error() -> StoreUnavailable:
    return StoreUnavailable(
        "Too many writes are queued.", hint="Send fewer concurrent writes and try again.", retry_after=_RETRY_SECONDS
    )


def read_error(error: sqlite3.Error, file: str) -> StoreUnavailable:
    if is_damage(error):
        return damage_error(f"{file}: {error}")
    return StoreUnavailable(f"The store could not read ({error}).", retry_after=_RETRY_SECONDS)


def damage_error(what: str) -> DamagedStore:
    return DamagedStore(
        f"The stored data is damaged: {what}.",
        hint="Damaged data is never served. `waypost check` lists all damage; restore the newest backup into an empty folder "
        "with `waypost restore FILE --data DIR`.",
    )


def open_error(error: sqlite3.Error | OSError, path: str) -> WaypostError:
    """The error for a file that cannot be opened."""
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return damage_error(f"{path}: {error}")
    if fault_of(error) == "full":
        return StorageFull(f"The disk is full; {path} cannot be opened.", hint="Free some space.")
    return ConfigurationError(
        f"{path} cannot be opened ({error}).", path="data", hint="Choose a writable folder with --data."
    )


T = TypeVar("T")


class ThreadReadLock:
    """Threads share one connection in turns. A cancelled caller leaves its thread reading: the turn ends when the thread does,
    so that nobody else uses or closes the connection meanwhile."""

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
    """Ignore the failure of a read that was cancelled."""
    if not task.cancelled():
        task.exception()


FILE_NAME = "waypost.sqlite3"

APPLICATION_ID = 0x57415950  # "WAYP": files of other programs are refused

STATEMENTS = 512  # prepared statements per connection: one per length of an IN list

_WRITER_CACHE_KIB = 16 * 1024

_READER_CACHE_KIB = 16 * 1024  # the page cache of this process; the kernel caches the file too

_MAPPED_BYTES = 128 * 1024 * 1024  # of the file: mapped pages count as memory of the process; others take a system call

_LOG_KEPT_BYTES = 48 * 1024 * 1024  # a WAL that grew beyond this in a burst is truncated

_BUSY_SECONDS = 1.0  # seconds a reader waits for a recovery after a crash

Failpoint = Callable[[str], None]

MigrationStep = tuple[str, ...]

# entries        one short row per agent, ordered by id: all that a start must read
# registrations  the registration as JSON, with the documents last, so that they are read only on demand
# aliases        alias to agent id
# events         the change log; a revision is allocated together with its row
# crc            CRC-32 of the preceding column: SQLite does not detect a flipped bit in a row
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
# notes          small facts beside the records: pins, rules, revocations
# audit          leaves of the hash tree, numbered from 1 without gaps; the oldest may be pruned
# audit_tiles    hashes of that tree in full tiles of 256, never pruned; the root is their checksum
# history        replaced versions, by their revision
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
# Tables in which a lost row leaves no trace; lost registrations and events are detected otherwise.
_QUICK_CHECKED_TABLES = ("entries", "aliases", "tombstones", "answers", "secrets", "meta", "notes")

MIGRATIONS: tuple[MigrationStep, ...] = (_FIRST, _SECOND)


@contextmanager
def readable_messages() -> Iterator[None]:
    """Python raises UnicodeDecodeError instead of the error of SQLite, if its message quotes a damaged schema."""
    try:
        yield
    except UnicodeDecodeError:
        error = sqlite3.DatabaseError("malformed database schema")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error from None


@readable_messages()
def open_writer(path: Path, *, max_pages: int | None = None) -> sqlite3.Connection:
    """Open the writing connection, used by one thread at a time."""
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
            f"The file system of {path.parent} does not support a write-ahead log.",
            path="data",
            hint="Choose a folder on a local disk, with --data.",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # the writer checkpoints after answering
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


@readable_messages()
def open_reader(path: Path, *, mapped: bool = False) -> sqlite3.Connection:
    """A read-only connection. Each statement sees the newest commit. `mapped`: for single rows at random."""
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
    """Migrate to the newest schema, one transaction per step: a crash leaves the previous version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise ConfigurationError(
            f"{name} was written by a newer release (schema version {version}, this release knows {len(steps)}).",
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
    """Describe structural damage of the file, or return None.

    `thorough` reads every page and compares each index with its table. Otherwise only tables in which a lost row would go
    unnoticed are checked, which takes no longer than reading the entries.
    """
    checks = ["integrity_check(1)"] if thorough else [f"quick_check({table})" for table in _QUICK_CHECKED_TABLES]
    for check in checks:
        ((found, *_), *_) = connection.execute(f"PRAGMA {check}").fetchall()
        if found != "ok":
            return str(found).replace("\n", " ")
    return None
