"""The statements of reading. Each one is read to its end, so that no old state of the file is held on to for its sake."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache

from waypost.model.events import Event
from waypost.model.history import Version
from waypost.model.registration import Brief, Entry, Registration
from waypost.registry.ports import AuditPage, AuditQuery, Tombstone
from waypost.stores import sqlite_rows as rows
from waypost.stores.outcome import read_logged
from waypost.stores.sqlite_audit import audit_hashes, audit_page, audit_size
from waypost.stores.sqlite_faults import damaged
from waypost.trust.merkle import Span

_FIELDS = "e.id, e.entry, e.crc, r.registration, r.crc"
_FROM = "FROM entries e LEFT JOIN registrations r USING (number)"
_IN_ONE = 64  # ids in one statement; statements of each length are kept prepared
_NUMBER = "SELECT number FROM entries WHERE id = ?"
_BRIEFS = "SELECT registration, crc FROM registrations WHERE number IN"
_DOCUMENTS = "SELECT registration, documents FROM registrations WHERE number = ?"
_PAGE = f"SELECT {_FIELDS}, r.documents {_FROM} WHERE e.id > ? ORDER BY e.id LIMIT ?"
_HISTORY = "SELECT id, revision, version, crc FROM history WHERE id = ? ORDER BY revision DESC LIMIT ?"
_NOTES = "SELECT name, value, crc FROM notes WHERE name >= ? AND name < ? ORDER BY name LIMIT ?"
_NOTES_AFTER = "SELECT name, value, crc FROM notes WHERE name > ? AND name < ? ORDER BY name LIMIT ?"
_LAST_CHARACTER = "\U0010ffff"  # no name goes on with it

_Row = tuple[str, bytes, int, bytes | None, int, bytes | rows.Bare]


class Reader:
    """A reading connection, as values of the domain. Used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._run = connection.cursor().execute

    def fetch(self, ids: Collection[str], *, sources: bool) -> dict[str, Registration]:
        if not ids:
            return {}
        wanted = tuple(ids)
        if len(wanted) <= _IN_ONE:  # a statement sees one state of the file by itself
            found: list[_Row] = self._run(_registrations(len(wanted), sources), wanted).fetchall()
        else:
            with self._one_state():
                parts = [wanted[start : start + _IN_ONE] for start in range(0, len(wanted), _IN_ONE)]
                found = [
                    row for part in parts for row in self._run(_registrations(len(part), sources), part).fetchall()
                ]
        return {row[0]: _registration(row) for row in found}

    def briefs(self, entries: Sequence[Entry]) -> dict[str, Brief]:
        """By their numbers, and where those do not lead to them, by their ids: an entry may be older than what is kept."""
        found = self._numbered([entry.number for entry in entries if entry.number])
        lost = [entry.id for entry in entries if entry.id not in found]
        if lost:
            numbers = (self._number_of(agent_id) for agent_id in lost)
            found |= self._numbered([number for number in numbers if number is not None])
        return {entry.id: found[entry.id] for entry in entries if entry.id in found}

    def _numbered(self, numbers: Sequence[int]) -> dict[str, Brief]:
        """Seldom by more than one statement, each of which sees one state of the file: a brief says of which content it is."""
        found: dict[str, Brief] = {}
        for start in range(0, len(numbers), _IN_ONE):
            part = numbers[start : start + _IN_ONE]
            for row in self._run(_briefs(len(part)), part).fetchall():
                brief = rows.read_brief(*row)
                found[brief.record.id] = brief
        return found

    def document(self, entry: Entry, dialect: str) -> tuple[str, bytes] | None:
        """Likewise by its number, else by its id."""
        if entry.number:
            with suppress(LookupError):
                return self._document(entry.number, entry.id, dialect)
        number = self._number_of(entry.id)
        if number is not None:
            with suppress(LookupError):
                return self._document(number, entry.id, dialect)
        return None

    def _document(self, number: int, agent_id: str, dialect: str) -> tuple[str, bytes] | None:
        """Raises `LookupError` where nobody, or somebody else, is kept there."""
        for registration, documents in self._run(_DOCUMENTS, (number,)).fetchall():
            return rows.read_document(agent_id, dialect, registration, documents)
        raise LookupError(agent_id)

    def _number_of(self, agent_id: str) -> int | None:
        for (number,) in self._run(_NUMBER, (agent_id,)).fetchall():
            return int(number)
        return None

    def registrations(self, after: str, limit: int) -> list[Registration]:
        return [_registration(row) for row in self._run(_PAGE, (after, limit)).fetchall()]

    def entries(self, after: str, limit: int) -> list[Entry]:
        found = self._run("SELECT id, entry, crc FROM entries WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        return rows.read_entries(found.fetchall())

    def tombstone(self, agent_id: str) -> Tombstone | None:
        found = self._run("SELECT id, tombstone, crc FROM tombstones WHERE id = ?", (agent_id,)).fetchall()
        return rows.read_tombstone(*found[0]) if found else None

    def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        first, query = (prefix, _NOTES) if after < prefix else (after, _NOTES_AFTER)
        found = self._run(query, (first, prefix + _LAST_CHARACTER, -1 if limit is None else limit))
        return [(row[0], rows.read_note(*row)) for row in found.fetchall()]

    def history(self, agent_id: str, limit: int) -> list[Version]:
        return [rows.read_version(*row) for row in self._run(_HISTORY, (agent_id, limit)).fetchall()]

    def audit(self, query: AuditQuery) -> AuditPage:
        with self._one_state():
            return audit_page(self.connection, query)

    def audit_size(self) -> int:
        return audit_size(self.connection)

    def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        with self._one_state():
            return audit_hashes(self.connection, spans)

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        """All statements within see the same commit."""
        if self.connection.in_transaction:
            yield
            return
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """From here on all statements see the same commit, and none has to ask anew which one that is."""
        if not self.connection.in_transaction:
            self._run("BEGIN")

    def end(self) -> None:
        """A fault of the disk may have ended it already."""
        if self.connection.in_transaction:
            self._run("ROLLBACK")

    def events(self, after: int, limit: int) -> list[Event]:
        found = self._run(
            "SELECT revision, event, crc, record FROM events WHERE revision > ? ORDER BY revision LIMIT ?",
            (after, limit),
        )
        events = [rows.read_event(*row) for row in found.fetchall()]
        if events and events[-1].revision - events[0].revision != len(events) - 1:
            raise damaged(f"events after {events[0].revision} are missing")
        renewed = self.fetch({event.id for event in events if event.type == "renewed"}, sources=False)
        return [read_logged(event, renewed.get(event.id)) for event in events]

    def revision(self) -> int:
        """The last one that was taken, also when its event is pruned."""
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


@cache
def _briefs(count: int) -> str:
    return f"{_BRIEFS} ({','.join('?' * count)})"


def _registration(row: _Row) -> Registration:
    agent_id, entry, entry_crc, registration, registration_crc, documents = row
    return rows.read_registration(agent_id, (entry, entry_crc), (registration, registration_crc), documents)
