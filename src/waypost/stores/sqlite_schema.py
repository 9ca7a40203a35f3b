"""The file: its pragmas, its tables, and the steps from each version of them to the next.

A step is never edited once it was released; a change of the tables is a new step at the end of the list.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from waypost.errors import ConfigurationError

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
Step = tuple[str, ...]

# entries        one short row for each agent, in the order of ids: all that a start must read
# registrations  the whole registration as JSON, the documents of its sources last, so that they are read only when asked for
# aliases        which agent holds a name
# events         the change log; a revision is taken together with its row
# crc            CRC-32 of what stands before it: SQLite does not notice a flipped bit in a row
_FIRST: Step = (
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
_SECOND: Step = (
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
_SILENT = ("entries", "aliases", "tombstones", "answers", "secrets", "meta", "notes")
MIGRATIONS: tuple[Step, ...] = (_FIRST, _SECOND)


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
    connection: sqlite3.Connection, failpoint: Failpoint, steps: Sequence[Step] = MIGRATIONS, name: str = FILE_NAME
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
    checks = ["integrity_check(1)"] if thorough else [f"quick_check({table})" for table in _SILENT]
    for check in checks:
        ((found, *_), *_) = connection.execute(f"PRAGMA {check}").fetchall()
        if found != "ok":
            return str(found).replace("\n", " ")
    return None
