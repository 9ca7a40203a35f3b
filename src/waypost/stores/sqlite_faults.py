"""What an error of SQLite means: whose fault it is, whether it passes, and what to tell the caller."""

from __future__ import annotations

import errno
import sqlite3
from typing import Literal

from waypost.errors import ConfigurationError, StorageFull, StoreUnavailable, WaypostError

Fault = Literal["full", "broken", "passing"]

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


def fault_of(error: sqlite3.Error | OSError) -> Fault:
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


def write_refusal(error: sqlite3.Error | OSError) -> WaypostError:
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


def queue_refusal() -> StoreUnavailable:
    return StoreUnavailable(
        "Too many writes are waiting.", hint="Send fewer at once, and try again.", retry_after=_RETRY_SECONDS
    )


def read_refusal(error: sqlite3.Error) -> StoreUnavailable:
    if code_of(error) & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(str(error))
    return StoreUnavailable(f"The store could not read ({error}).", retry_after=_RETRY_SECONDS)


def damaged(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The stored data is damaged: {what}.",
        hint="Stop the service and restore the data folder from a copy. Nothing wrong is served from it.",
    )


def open_refusal(error: sqlite3.Error | OSError, path: str) -> WaypostError:
    """Why the file cannot be opened."""
    if isinstance(error, sqlite3.Error) and code_of(error) & _PRIMARY in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    ):
        return damaged(f"{path}: {error}")
    if fault_of(error) == "full":
        return StorageFull(f"The disk is full; {path} cannot be opened.", hint="Free some space.")
    return ConfigurationError(
        f"{path} cannot be opened ({error}).", path="data", hint="Choose a folder that can be written, with --data."
    )
