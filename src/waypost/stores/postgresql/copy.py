"""Copies of a whole store: from a data folder with SQLite into an empty database, and back.

Revisions, events and the audit trail stay as they are, so that cursors of watches and proofs of the audit trail remain valid.
Both copies are verified: what was written is read again and compared by a digest.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec

from waypost.errors import ConfigurationError, StoreUnavailable
from waypost.model.events import AuditRecord, read_leaf
from waypost.model.times import parse_rfc3339
from waypost.registry.audit_trail import audit_leaf
from waypost.registry.ports import AuditEntry, KeyValueWrite
from waypost.stores.postgresql.cluster import ClusterCipher
from waypost.stores.postgresql.database import DATABASE_ERRORS, LONG_SECONDS, Database, check_server, start_error
from waypost.stores.postgresql.group import (
    LoggedGroup,
    LoggedWrite,
    StoredAnswer,
    StoredRegistration,
    encode,
    key_of,
)
from waypost.stores.postgresql.replica import Progress, Replica
from waypost.stores.postgresql.schema import migrate
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.database import FILE_NAME, open_reader
from waypost.stores.sqlite.key_value import KEY_VALUE_FILE, SqliteKeyValueStore
from waypost.stores.sqlite.reads import SqliteReader
from waypost.stores.sqlite.store import SqliteStore

_PAGE: Final = 500
_CURSOR_SECRET: Final = "cursor"


class StoreSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a store. Equal digests mean equal agents, notes and audit trails at the same revision."""

    agents: int
    revision: int
    audit_entries: int
    items: int
    digest: str  # SHA-256, hex


async def copy_to_postgresql(folder: Path, url: str, cipher: ClusterCipher, progress: Progress) -> StoreSummary:
    """Copy a data folder, whose service must not run, into a database without records."""
    store = SqliteStore(folder)
    await store.open(lambda changes: None)  # locks the folder, and migrates and checks the file
    items = SqliteKeyValueStore(folder)
    await items.open()
    try:
        async with _connect(url, cipher) as connection:
            await _require_empty(connection)
            with closing(open_reader(folder / FILE_NAME)) as source:
                async with connection.transaction():
                    await _Importer(connection, source, cipher, progress).copy()
                    await _import_items(connection, items.path, progress)
                expected = _summarize(source, _count_items(items.path))
            found = await _summarize_database(connection, _name(progress, "compared"))
    finally:
        await items.close()
        await store.close()
    return _compare(expected, found)


async def copy_to_sqlite(url: str, cipher: ClusterCipher, folder: Path, progress: Progress) -> StoreSummary:
    """Copy a database into an empty data folder. Nodes may go on; what they write meanwhile is not in the copy."""
    if (folder / FILE_NAME).exists():
        raise ConfigurationError(f"{folder} has records already.", path="TO", hint="Name an empty or new folder.")
    async with _connect(url, cipher) as connection:
        replica = Replica(folder, lambda point: None, subfolder="")
        replica.open()
        try:
            # One snapshot for the copy and for the comparison: nodes may write meanwhile.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await replica.load(connection, progress)
                sealed = await connection.fetchval("SELECT sealed FROM waypost.secrets WHERE name = $1", _CURSOR_SECRET)
                if sealed is not None:
                    secret = rows.secret_row(_CURSOR_SECRET, cipher.open(_CURSOR_SECRET, sealed))
                    replica.connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?, ?)", secret)
                replica.connection.execute("DROP TABLE replica")
                await _export_items(connection, folder, progress)
                expected = await _summarize_database(connection, _name(progress, "compared"))
            found = _summarize(replica.connection, _count_items(folder / KEY_VALUE_FILE))
        finally:
            replica.close()
    return _compare(expected, found)


@asynccontextmanager
async def _connect(url: str, cipher: ClusterCipher) -> AsyncIterator[asyncpg.Connection]:
    try:
        connection = await Database(url).connect(LONG_SECONDS)
    except (*DATABASE_ERRORS, ValueError) as error:
        raise start_error(error, url) from error
    try:
        await check_server(connection)
        await migrate(connection)
        await cipher.check(connection)
        yield connection
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise start_error(error, url) from error
    finally:
        connection.terminate()


async def _require_empty(connection: asyncpg.Connection) -> None:
    head = await connection.fetchval("SELECT max(position) FROM waypost.log")
    if head or await connection.fetchval("SELECT EXISTS (SELECT FROM waypost.items)"):
        raise ConfigurationError(
            "The database has records already.", path="TO", hint="Name an empty database; stop nodes that use it."
        )


def _name(progress: Progress, prefix: str) -> Progress:
    return lambda table, count: progress(f"{prefix} {table}", count)


def _compare(expected: StoreSummary, found: StoreSummary) -> StoreSummary:
    if expected != found:
        raise StoreUnavailable(f"The copy differs from the original: {found} instead of {expected}.")
    return found


# --- SQLite to PostgreSQL -------------------------------------------------------------------------


class _Importer:
    def __init__(
        self,
        connection: asyncpg.Connection,
        source: sqlite3.Connection,
        cipher: ClusterCipher,
        progress: Progress,
    ) -> None:
        self._connection = connection
        self._source = source
        self._cipher = cipher
        self._progress = progress

    async def copy(self) -> None:
        await self._connection.execute("LOCK TABLE waypost.log IN EXCLUSIVE MODE")
        self._source.execute("BEGIN")
        await self._copy("agents", ("key", "id", "revision", "data"), self._agents())
        aliases = self._source.execute("SELECT alias, id FROM aliases")
        names = ((key_of(alias), alias.encode(), agent_id.encode()) for alias, agent_id in aliases)
        await self._copy("aliases", ("key", "alias", "id"), names)
        await self._copy("tombstones", ("key", "id", "forget_at", "data"), self._tombstones())
        notes = self._source.execute("SELECT name, value, crc FROM notes")
        checked = ((key_of(row[0]), row[0].encode(), rows.read_note(*row)) for row in notes)
        await self._copy("notes", ("key", "name", "value"), checked)
        await self._copy("answers", ("key", "forget_at", "data"), self._answers())
        await self._copy("history", ("key", "revision", "id", "data"), self._history())
        leaves = self._source.execute("SELECT number, leaf FROM audit ORDER BY number")
        await self._copy("audit", ("number", "entry"), ((number, encode(_entry_of(leaf))) for number, leaf in leaves))
        tiles = self._source.execute("SELECT level, number, root, hashes FROM audit_tiles")
        await self._copy("audit_tiles", ("level", "number", "root", "hashes"), tiles)
        await self._copy_events()
        for value, crc in self._source.execute("SELECT value, crc FROM secrets WHERE name = ?", (_CURSOR_SECRET,)):
            secret = rows.read_secret(_CURSOR_SECRET, value, crc)
            await self._connection.execute(
                "INSERT INTO waypost.secrets (name, sealed) VALUES ($1, $2)",
                _CURSOR_SECRET,
                self._cipher.seal(_CURSOR_SECRET, secret),
            )

    async def _copy(self, table: str, columns: Sequence[str], found: Iterator[tuple[Any, ...]]) -> None:
        count = 0
        while part := [row for _, row in zip(range(_PAGE), found, strict=False)]:
            await self._connection.copy_records_to_table(
                table, schema_name="waypost", columns=columns, records=part, timeout=LONG_SECONDS
            )
            count += len(part)
            self._progress(table, count)

    def _agents(self) -> Iterator[tuple[Any, ...]]:
        reader, after = SqliteReader(self._source), ""
        while page := reader.registrations(after, _PAGE):
            for registration in page:
                data = encode(StoredRegistration.of(registration))
                yield key_of(registration.id), registration.id.encode(), registration.revision, data
            after = page[-1].id

    def _tombstones(self) -> Iterator[tuple[Any, ...]]:
        for agent_id, data, crc in self._source.execute("SELECT id, tombstone, crc FROM tombstones"):
            tombstone = rows.read_tombstone(agent_id, data, crc)
            yield key_of(agent_id), agent_id.encode(), tombstone.forget_at, data

    def _answers(self) -> Iterator[tuple[Any, ...]]:
        for key, forget_at, fingerprint, data, crc in self._source.execute("SELECT * FROM answers"):
            result = rows.read_answer(data, crc)
            revision = result.registration.revision if result.registration is not None else 0
            stored = StoredAnswer(key, fingerprint, forget_at, data, result.revision, revision)
            yield key_of(key), forget_at, encode(stored)

    def _history(self) -> Iterator[tuple[Any, ...]]:
        for agent_id, revision, data, crc in self._source.execute("SELECT id, revision, version, crc FROM history"):
            yield (
                key_of(agent_id),
                revision,
                agent_id.encode(),
                encode(rows.read_version(agent_id, revision, data, crc)),
            )

    async def _copy_events(self) -> None:
        """As groups of the log that only new nodes read. The first row gets another checksum, so that no node which has seen
        the empty log goes on from it."""
        ((pruned,),) = self._source.execute("SELECT coalesce(max(value), 0) FROM meta WHERE name = 'pruned'").fetchall()
        await self._connection.execute("INSERT INTO waypost.meta VALUES ('pruned', $1)", pruned)
        checksum, position, base = secrets.token_bytes(32), 0, pruned
        await self._connection.execute(
            "UPDATE waypost.log SET checksum = $1, first_revision = $2 + 1, last_revision = $2 WHERE position = 0",
            checksum,
            pruned,
        )
        node = secrets.token_bytes(16)
        found = self._source.execute("SELECT revision, event, crc, record FROM events ORDER BY revision")
        while part := found.fetchmany(_PAGE):
            writes = []
            for revision, data, crc, record in part:
                rows.read_event(revision, data, crc, record)
                writes.append(LoggedWrite(event=data, record=record))
            position += 1
            payload = encode(LoggedGroup(base, tuple(writes), node))
            checksum = hashlib.sha256(checksum + position.to_bytes(8) + base.to_bytes(8) + payload).digest()
            await self._connection.execute(
                """INSERT INTO waypost.log (position, first_revision, last_revision, node, number, names, payload, checksum)
                VALUES ($1, $2, $3, encode($4, 'hex')::uuid, $1, '{}', $5, $6)""",
                position,
                base + 1,
                base + len(part),
                node,
                payload,
                checksum,
            )
            base += len(part)
            self._progress("events", base - pruned)


def _entry_of(leaf: bytes) -> AuditEntry:
    record: AuditRecord = read_leaf(leaf)
    members = {name: value for name, value in msgspec.structs.asdict(record).items() if name not in ("number", "at")}
    entry = AuditEntry(at=parse_rfc3339(record.at) + 0.0005, **members)  # a leaf has whole milliseconds, rounded down
    if audit_leaf(entry, record.number) != leaf:
        raise StoreUnavailable(f"The audit entry {record.number} has a form that cannot be copied.")
    return entry


# --- Items of the key-value store -----------------------------------------------------------------


async def _import_items(connection: asyncpg.Connection, path: Path, progress: Progress) -> None:
    with closing(open_reader(path)) as source:
        found = source.execute("SELECT kind, key, expires_at, value FROM things")
        count = 0
        while part := found.fetchmany(_PAGE):
            records = [(kind, key.encode(), expires_at, value) for kind, key, expires_at, value in part]
            await connection.copy_records_to_table(
                "items", schema_name="waypost", columns=("kind", "key", "expires_at", "value"), records=records
            )
            count += len(part)
            progress("items", count)


async def _export_items(connection: asyncpg.Connection, folder: Path, progress: Progress) -> None:
    items = SqliteKeyValueStore(folder)
    await items.open()
    try:
        found = await connection.fetch("SELECT kind, key, expires_at, value FROM waypost.items")
        for start in range(0, len(found), _PAGE):
            writes = [
                KeyValueWrite(kind=kind, key=key.decode(), value=value, expires_at=expires_at)
                for kind, key, expires_at, value in found[start : start + _PAGE]
            ]
            await items.commit(writes, 0.0)
            progress("items", start + len(writes))
    finally:
        await items.close()


# --- Digest ---------------------------------------------------------------------------------------


async def _summarize_database(connection: asyncpg.Connection, progress: Progress) -> StoreSummary:
    """What a new node would load."""
    with tempfile.TemporaryDirectory(prefix="waypost-copy-") as folder:
        replica = Replica(Path(folder), lambda point: None)
        replica.open()
        try:
            await replica.load(connection, progress)
            return _summarize(replica.connection, await connection.fetchval("SELECT count(*) FROM waypost.items"))
        finally:
            replica.close()


def _count_items(path: Path) -> int:
    with closing(open_reader(path)) as source:
        ((count,),) = source.execute("SELECT count(*) FROM things").fetchall()
    return int(count)


def _summarize(connection: sqlite3.Connection, items: int) -> StoreSummary:
    reader, digest, agents, after = SqliteReader(connection), hashlib.sha256(), 0, ""

    def add(*parts: bytes) -> None:
        for part in parts:
            digest.update(len(part).to_bytes(8) + part)

    while page := reader.registrations(after, _PAGE):
        for registration in page:
            add(*rows.registration_row(registration))
        agents += len(page)
        after = page[-1].id
    for name, value in reader.notes(""):
        add(name.encode(), value)
    size = reader.audit_size()
    if size:
        add(*reader.audit_hashes([(0, size)]))
    return StoreSummary(
        agents=agents, revision=reader.revision(), audit_entries=size, items=items, digest=digest.hexdigest()
    )
