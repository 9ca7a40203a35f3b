"""Reading from the file, for a store that writes it and for one that does not.

A few rows are read where they are asked for, which takes microseconds; more of them in a thread, so that nobody else waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from waypost import limits
from waypost.model.events import Event
from waypost.model.history import Version
from waypost.model.registration import Brief, Entry, Registration
from waypost.registry.ports import AuditPage, AuditQuery, Tombstone
from waypost.stores.outcome import closed_refusal
from waypost.stores.reading_turn import ReadingTurn
from waypost.stores.sqlite_faults import read_refusal
from waypost.stores.sqlite_reader import Reader
from waypost.stores.sqlite_schema import open_reader
from waypost.stores.sqlite_snapshot import read_snapshot
from waypost.trust.merkle import Span

T = TypeVar("T")

_TURN_SECONDS = 0.02
_AT_ONCE = 64  # rows that are read on the event loop: at most a few milliseconds
_ENTRIES_PAGE = 8192
_SCAN_PAGE = 256


def _open(reader: Reader | None) -> Reader:
    if reader is None:
        raise closed_refusal()
    return reader


class SqliteReads(ABC):
    def __init__(self) -> None:
        self._near: Reader | None = None  # for the event loop
        self._far: Reader | None = None  # for one thread at a time
        self._far_turn = ReadingTurn()
        self._turn: asyncio.TimerHandle | None = None

    def _open_readers(self, path: Path) -> None:
        self._near, self._far = Reader(open_reader(path, mapped=True)), Reader(open_reader(path))

    def _take_readers(self) -> list[sqlite3.Connection]:
        """The connections, to be closed; nothing is read after this, and none of them holds on to a state of the file."""
        readers = [reader for reader in (self._near, self._far) if reader is not None]
        self._near = self._far = None
        for reader in readers:
            with suppress(sqlite3.Error):
                reader.end()
        return [reader.connection for reader in readers]

    def _held(self) -> Reader:
        """The reader of the event loop, in a turn of many reads that see one state of the file: to ask for the newest one
        takes longer than to find a row. The turn is over as soon as this process hears of a commit, and soon in any case:
        a state that is held on to keeps the log from being written from its start."""
        reader = _open(self._near)
        if self._turn is None:
            reader.begin()
            self._turn = asyncio.get_running_loop().call_later(_TURN_SECONDS, self.end_turn)
        return reader

    @property
    def is_in_turn(self) -> bool:
        return self._turn is not None

    def end_turn(self) -> None:
        """What is read after this sees the newest commit."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
            if self._near is not None:
                with suppress(sqlite3.Error):  # whoever reads next is told
                    self._near.end()

    def _read_here(self, read: Callable[[Reader], T]) -> T:
        self.end_turn()
        try:
            return read(_open(self._near))
        except sqlite3.Error as error:
            raise read_refusal(error) from error

    async def _read_apart(self, read: Callable[[Reader], T]) -> T:
        try:
            return await self._far_turn.read(lambda: read(_open(self._far)))
        except sqlite3.Error as error:
            raise read_refusal(error) from error
        finally:
            self.end_turn()  # who was told here of a commit will see it there

    @abstractmethod
    async def revision(self) -> int:
        """The last revision that is durable."""

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        if len(ids) <= _AT_ONCE:
            return self._read_here(lambda reader: reader.fetch(ids, sources=sources))
        return await self._read_apart(lambda reader: reader.fetch(ids, sources=sources))

    async def briefs(self, entries: Sequence[Entry]) -> dict[str, Brief]:
        if len(entries) > _AT_ONCE:
            return await self._read_apart(lambda reader: reader.briefs(entries))
        try:
            return self._held().briefs(entries)
        except sqlite3.Error as error:
            raise read_refusal(error) from error

    async def document(self, entry: Entry, dialect: str) -> tuple[str, bytes] | None:
        try:
            return self._held().document(entry, dialect)
        except sqlite3.Error as error:
            raise read_refusal(error) from error

    async def entries(self) -> AsyncIterator[Sequence[Entry]]:
        whole = await self._read_apart(lambda reader: read_snapshot(reader.connection))
        if whole:
            yield whole
            return
        after = ""
        while page := await self._read_apart(partial(Reader.entries, after=after, limit=_ENTRIES_PAGE)):
            yield page
            after = page[-1].id

    async def scan(self, ids: Sequence[str] | None = None) -> AsyncIterator[Sequence[Registration]]:
        if ids is not None:
            wanted = sorted(set(ids))
            for start in range(0, len(wanted), _SCAN_PAGE):
                part = wanted[start : start + _SCAN_PAGE]
                found = await self._read_apart(partial(Reader.fetch, ids=part, sources=True))
                if found:
                    yield list(found.values())
            return
        after = ""
        while page := await self._read_apart(partial(Reader.registrations, after=after, limit=_SCAN_PAGE)):
            yield page
            after = page[-1].id

    async def tombstone(self, agent_id: str) -> Tombstone | None:
        return self._read_here(lambda reader: reader.tombstone(agent_id))

    async def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        return await self._read_apart(lambda reader: reader.notes(prefix, after, limit))

    async def history(self, agent_id: str, limit: int = limits.HISTORY_VERSIONS) -> list[Version]:
        return self._read_here(lambda reader: reader.history(agent_id, limit))

    async def audit(self, query: AuditQuery) -> AuditPage:
        return await self._read_apart(lambda reader: reader.audit(query))

    async def audit_size(self) -> int:
        return self._read_here(Reader.audit_size)

    async def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        return await self._read_apart(lambda reader: reader.audit_hashes(spans))

    async def events(self, after: int, limit: int) -> Sequence[Event]:
        if limit <= _AT_ONCE:
            return self._read_here(lambda reader: reader.events(after, limit))
        return await self._read_apart(lambda reader: reader.events(after, limit))

    async def oldest_event(self) -> int:
        oldest = self._read_here(Reader.oldest_event)
        return oldest if oldest is not None else await self.revision() + 1
