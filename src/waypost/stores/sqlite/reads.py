"""Reads of the SQLite store, for the leader and for followers.

A few rows are read on the event loop, which takes microseconds; more of them in a thread. Every statement is read to its
end, so that no old snapshot stays open.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from waypost import limits
from waypost.model.events import Event, RecordVersion
from waypost.model.registration import CatalogEntry, Registration
from waypost.registry.ports import AuditLogPage, AuditQuery, NewestDocument, Tombstone
from waypost.stores.commit import from_logged_event, store_closed_error
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.audit import audit_hashes, audit_page, audit_size
from waypost.stores.sqlite.database import FILE_NAME, ThreadReadLock, damage_error, open_reader, read_error
from waypost.stores.sqlite.snapshot import read_snapshot
from waypost.trust.transparency_log import Span

_FIELDS = "e.id, e.entry, e.crc, r.registration, r.crc"

_FROM = "FROM entries e LEFT JOIN registrations r USING (number)"

_IN_ONE = 64  # ids per statement; a prepared statement is kept for each length

_NUMBER = "SELECT number FROM entries WHERE id = ?"

_DOCUMENTS = "SELECT registration, documents FROM registrations WHERE number = ?"

_PAGE = f"SELECT {_FIELDS}, r.documents {_FROM} WHERE e.id > ? ORDER BY e.id LIMIT ?"

_HISTORY = "SELECT id, revision, version, crc FROM history WHERE id = ? ORDER BY revision DESC LIMIT ?"

_NOTES = "SELECT name, value, crc FROM notes WHERE name >= ? AND name < ? ORDER BY name LIMIT ?"

_NOTES_AFTER = "SELECT name, value, crc FROM notes WHERE name > ? AND name < ? ORDER BY name LIMIT ?"

_LAST_CHARACTER = "\U0010ffff"  # sorts after every name with the prefix

_Row = tuple[str, bytes, int, bytes | None, int, bytes | rows.Bare]


class SqliteReader:
    """A reading connection. Used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._run = connection.cursor().execute

    def fetch(self, ids: Collection[str], *, sources: bool) -> dict[str, Registration]:
        if not ids:
            return {}
        wanted = tuple(ids)
        if len(wanted) <= _IN_ONE:  # a single statement sees one snapshot
            found: list[_Row] = self._run(_registrations(len(wanted), sources), wanted).fetchall()
        else:
            with self._one_state():
                parts = [wanted[start : start + _IN_ONE] for start in range(0, len(wanted), _IN_ONE)]
                found = [
                    row for part in parts for row in self._run(_registrations(len(part), sources), part).fetchall()
                ]
        return {row[0]: _registration(row) for row in found}

    def document(self, entry: CatalogEntry, dialect: str) -> tuple[str, bytes] | None:
        """Find the row by number, else by id: an entry may be older than its row."""
        if entry.number:
            with suppress(LookupError):
                return self._document(entry.number, entry.id, dialect)
        number = self._number_of(entry.id)
        if number is not None:
            with suppress(LookupError):
                return self._document(number, entry.id, dialect)
        return None

    def _document(self, number: int, agent_id: str, dialect: str) -> tuple[str, bytes] | None:
        """Raises `LookupError` if the row is missing or belongs to another agent."""
        for registration, documents in self._run(_DOCUMENTS, (number,)).fetchall():
            return rows.read_document(agent_id, dialect, registration, documents)
        raise LookupError(agent_id)

    def newest_documents(self, numbers: Sequence[int]) -> dict[str, NewestDocument]:
        places = ", ".join("?" * len(numbers))
        statement = f"SELECT registration, documents FROM registrations WHERE number IN ({places})"  # noqa: S608 - only ?
        found = self._run(statement, tuple(numbers)).fetchall()
        return dict(filter(None, (rows.read_newest(registration, documents) for registration, documents in found)))

    def _number_of(self, agent_id: str) -> int | None:
        for (number,) in self._run(_NUMBER, (agent_id,)).fetchall():
            return int(number)
        return None

    def registrations(self, after: str, limit: int) -> list[Registration]:
        return [_registration(row) for row in self._run(_PAGE, (after, limit)).fetchall()]

    def entries(self, after: str, limit: int) -> list[CatalogEntry]:
        found = self._run("SELECT id, entry, crc FROM entries WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        return rows.read_entries(found.fetchall())

    def tombstone(self, agent_id: str) -> Tombstone | None:
        found = self._run("SELECT id, tombstone, crc FROM tombstones WHERE id = ?", (agent_id,)).fetchall()
        return rows.read_tombstone(*found[0]) if found else None

    def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        first, query = (prefix, _NOTES) if after < prefix else (after, _NOTES_AFTER)
        found = self._run(query, (first, prefix + _LAST_CHARACTER, -1 if limit is None else limit))
        return [(row[0], rows.read_note(*row)) for row in found.fetchall()]

    def history(self, agent_id: str, limit: int) -> list[RecordVersion]:
        return [rows.read_version(*row) for row in self._run(_HISTORY, (agent_id, limit)).fetchall()]

    def audit(self, query: AuditQuery) -> AuditLogPage:
        with self._one_state():
            return audit_page(self.connection, query)

    def audit_size(self) -> int:
        return audit_size(self.connection)

    def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        with self._one_state():
            return audit_hashes(self.connection, spans)

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        """All statements inside see the same commit."""
        if self.connection.in_transaction:
            yield
            return
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Begin a read transaction: all following statements see the same commit."""
        if not self.connection.in_transaction:
            self._run("BEGIN")

    def end(self) -> None:
        """A disk error may have ended the transaction already."""
        if self.connection.in_transaction:
            self._run("ROLLBACK")

    def events(self, after: int, limit: int) -> list[Event]:
        found = self._run(
            "SELECT revision, event, crc, record FROM events WHERE revision > ? ORDER BY revision LIMIT ?",
            (after, limit),
        )
        events = [rows.read_event(*row) for row in found.fetchall()]
        if events and events[-1].revision - events[0].revision != len(events) - 1:
            raise damage_error(f"events after {events[0].revision} are missing")
        renewed = self.fetch({event.id for event in events if event.type == "renewed"}, sources=False)
        return [from_logged_event(event, renewed.get(event.id)) for event in events]

    def revision(self) -> int:
        """The last allocated revision, also if its event is pruned."""
        ((newest, pruned),) = self._run(
            "SELECT (SELECT max(revision) FROM events), (SELECT value FROM meta WHERE name = 'pruned')"
        ).fetchall()
        return max(newest or 0, pruned or 0)

    def secret(self, name: str) -> bytes | None:
        for value, crc in self._run("SELECT value, crc FROM secrets WHERE name = ?", (name,)).fetchall():
            return rows.read_secret(name, value, crc)
        return None

    def oldest_event(self) -> int | None:
        ((oldest,),) = self._run("SELECT min(revision) FROM events").fetchall()
        return int(oldest) if oldest is not None else None


@cache
def _registrations(count: int, sources: bool) -> str:
    documents = "r.documents" if sources else rows.BARE
    return f"SELECT {_FIELDS}, {documents} {_FROM} WHERE e.id IN ({','.join('?' * count)})"


def _registration(row: _Row) -> Registration:
    agent_id, entry, entry_crc, registration, registration_crc, documents = row
    return rows.read_registration(agent_id, (entry, entry_crc), (registration, registration_crc), documents)


T = TypeVar("T")

_TURN_SECONDS = 0.02

_AT_ONCE = 64  # rows read on the event loop: at most a few milliseconds

_ENTRIES_PAGE = 8192

_SCAN_PAGE = 256


def _require_open(reader: SqliteReader | None) -> SqliteReader:
    if reader is None:
        raise store_closed_error()
    return reader


class SqliteReadStore(ABC):
    def __init__(self) -> None:
        self._loop_reader: SqliteReader | None = None  # for the event loop
        self._thread_reader: SqliteReader | None = None  # for one thread at a time
        self._thread_read_lock = ThreadReadLock()
        self._turn: asyncio.TimerHandle | None = None

    def _open_readers(self, path: Path) -> None:
        self._loop_reader, self._thread_reader = (
            SqliteReader(open_reader(path, mapped=True)),
            SqliteReader(open_reader(path)),
        )

    def _take_readers(self) -> list[sqlite3.Connection]:
        """The connections, to be closed; nothing is read afterwards, and no snapshot stays open."""
        readers = [reader for reader in (self._loop_reader, self._thread_reader) if reader is not None]
        self._loop_reader = self._thread_reader = None
        for reader in readers:
            with suppress(sqlite3.Error):
                reader.end()
        return [reader.connection for reader in readers]

    def _held(self) -> SqliteReader:
        """The reader of the event loop, inside a read snapshot that several reads share: opening one takes longer than finding a
        row. It ends when this process learns of a commit, and soon in any case, because an open snapshot prevents the WAL
        from being reset."""
        reader = _require_open(self._loop_reader)
        if self._turn is None:
            reader.begin()
            self._turn = asyncio.get_running_loop().call_later(_TURN_SECONDS, self.end_snapshot)
        return reader

    @property
    def has_snapshot(self) -> bool:
        return self._turn is not None

    def end_snapshot(self) -> None:
        """End the shared snapshot: later reads see the newest commit."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
            if self._loop_reader is not None:
                with suppress(sqlite3.Error):  # the next read reports it
                    self._loop_reader.end()

    def _read_here(self, read: Callable[[SqliteReader], T]) -> T:
        self.end_snapshot()
        try:
            return read(_require_open(self._loop_reader))
        except sqlite3.Error as error:
            raise read_error(error, FILE_NAME) from error

    async def _read_apart(self, read: Callable[[SqliteReader], T]) -> T:
        try:
            return await self._thread_read_lock.read(lambda: read(_require_open(self._thread_reader)))
        except sqlite3.Error as error:
            raise read_error(error, FILE_NAME) from error
        finally:
            self.end_snapshot()  # a commit seen here must be visible there

    @abstractmethod
    async def revision(self) -> int:
        """The last durable revision."""

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        if len(ids) <= _AT_ONCE:
            return self._read_here(lambda reader: reader.fetch(ids, sources=sources))
        return await self._read_apart(lambda reader: reader.fetch(ids, sources=sources))

    async def document(self, entry: CatalogEntry, dialect: str) -> tuple[str, bytes] | None:
        try:
            return self._held().document(entry, dialect)
        except sqlite3.Error as error:
            raise read_error(error, FILE_NAME) from error

    async def newest_documents(self, entries: Sequence[CatalogEntry]) -> dict[str, NewestDocument]:
        numbers = [entry.number for entry in entries if entry.number]
        return await self._read_apart(lambda reader: reader.newest_documents(numbers)) if numbers else {}

    async def entries(self) -> AsyncIterator[Sequence[CatalogEntry]]:
        whole = await self._read_apart(lambda reader: read_snapshot(reader.connection))
        if whole:
            yield whole
            return
        after = ""
        while page := await self._read_apart(partial(SqliteReader.entries, after=after, limit=_ENTRIES_PAGE)):
            yield page
            after = page[-1].id

    async def scan(self, ids: Sequence[str] | None = None) -> AsyncIterator[Sequence[Registration]]:
        if ids is not None:
            wanted = sorted(set(ids))
            for start in range(0, len(wanted), _SCAN_PAGE):
                part = wanted[start : start + _SCAN_PAGE]
                found = await self._read_apart(partial(SqliteReader.fetch, ids=part, sources=True))
                if found:
                    yield list(found.values())
            return
        after = ""
        while page := await self._read_apart(partial(SqliteReader.registrations, after=after, limit=_SCAN_PAGE)):
            yield page
            after = page[-1].id

    async def tombstone(self, agent_id: str) -> Tombstone | None:
        return self._read_here(lambda reader: reader.tombstone(agent_id))

    async def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        return await self._read_apart(lambda reader: reader.notes(prefix, after, limit))

    async def history(self, agent_id: str, limit: int = limits.HISTORY_VERSIONS) -> list[RecordVersion]:
        return self._read_here(lambda reader: reader.history(agent_id, limit))

    async def audit(self, query: AuditQuery) -> AuditLogPage:
        return await self._read_apart(lambda reader: reader.audit(query))

    async def audit_size(self) -> int:
        return self._read_here(SqliteReader.audit_size)

    async def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        return await self._read_apart(lambda reader: reader.audit_hashes(spans))

    async def events(self, after: int, limit: int) -> Sequence[Event]:
        if limit <= _AT_ONCE:
            return self._read_here(lambda reader: reader.events(after, limit))
        return await self._read_apart(lambda reader: reader.events(after, limit))

    async def oldest_event(self) -> int:
        oldest = self._read_here(SqliteReader.oldest_event)
        return oldest if oldest is not None else await self.revision() + 1
