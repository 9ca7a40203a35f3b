"""The file that another process writes, opened for reading only. What was committed there is seen by the next
statement, unless it belongs to a turn of reads (`SqliteReads`) that began before."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from waypost import limits
from waypost.errors import StoreUnavailable, WaypostError
from waypost.registry.ports import Answer, Command, Committed, Noted
from waypost.stores.sqlite_faults import open_refusal
from waypost.stores.sqlite_reader import Reader
from waypost.stores.sqlite_reads import SqliteReads
from waypost.stores.sqlite_schema import FILE_NAME


class SqliteFollower(SqliteReads):
    """Its listeners hear nothing by themselves: whoever follows reads the events. The file must be there, and migrated."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / FILE_NAME

    async def open(self, listener: Callable[[Sequence[Committed]], None], noted: Noted | None = None) -> None:
        try:
            await asyncio.to_thread(self._open_readers, self.path)
        except (sqlite3.Error, OSError) as error:
            raise open_refusal(error, str(self.path)) from error

    async def close(self) -> None:
        async with self._far_turn.alone:
            for connection in self._take_readers():
                connection.close()

    async def healthy(self) -> bool:
        return self._near is not None

    async def revision(self) -> int:
        return self._read_here(Reader.revision)

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        found = self._read_here(lambda reader: reader.secret(name))
        if found is None:
            raise StoreUnavailable(f"The secret {name!r} is not made yet.", hint="Start the writing process first.")
        return found

    async def execute(self, command: Command) -> Answer:
        raise _reads_only()

    async def prune(
        self, *, events_before: float, keep_events: int, now: float, keep_audit: int = limits.AUDIT_KEEP
    ) -> int:
        raise _reads_only()


def _reads_only() -> WaypostError:
    return StoreUnavailable("This process only reads.", hint="Send the write to the process that writes.")
