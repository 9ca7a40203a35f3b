"""The key-value store in PostgreSQL: each commit is one call of a function, commits that wait share a transaction, and each
read is one statement."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, WaypostError
from waypost.registry.ports import ANY_VALUE, KeyValueItem, KeyValueWrite
from waypost.stores.commit import store_closed_error
from waypost.stores.postgresql.database import (
    DATABASE_ERRORS,
    LOST,
    STATEMENT_SECONDS,
    Database,
    away_error,
    read_error,
    start_error,
    write_error,
)
from waypost.stores.postgresql.schema import migrate
from waypost.stores.sqlite.database import queue_full_error

_KEY_BYTES = 2000  # an index entry holds 2,704
_RANGE = """FROM waypost.items WHERE kind = $1 AND key >= $2 AND key < $3 AND key > $4
    AND (expires_at IS NULL OR expires_at > $5)"""
_COMMIT = "SELECT waypost.commit_items($1, $2, $3, $4, $5, $6, $7, $8)"
_AFTER_PREFIX = b"\xff"  # in no UTF-8 text


class _CommitRequest(msgspec.Struct, eq=False):
    """A commit waiting for its group."""

    arguments: tuple[Any, ...]
    future: asyncio.Future[bool]

    def fail(self, error: WaypostError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _arguments(writes: Sequence[KeyValueWrite], now: float) -> tuple[Any, ...]:
    """All expectations, and the last write of each key."""
    final = {(write.kind, _encode(write.key)): write for write in writes}
    checked = [write for write in writes if write.expected != ANY_VALUE]
    return (
        [kind for kind, _ in final],
        [key for _, key in final],
        [write.expires_at for write in final.values()],
        [write.value for write in final.values()],
        [write.kind for write in checked],
        [_encode(write.key) for write in checked],
        [write.expected for write in checked],
        now,
    )


class PostgresqlKeyValueStore:
    def __init__(self, url: str, statement_seconds: float = STATEMENT_SECONDS) -> None:
        self._statement_seconds = statement_seconds
        self._database = Database(url, statement_seconds)
        self._is_open = False
        self._waiting: deque[_CommitRequest] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        try:
            async with self._database.acquire() as connection:
                await migrate(connection)
        except LOST:
            pass  # a worker process may start while the database is away
        except DATABASE_ERRORS as error:
            raise start_error(error, self._database.url) from error
        self._is_open = True

    async def close(self) -> None:
        """Write and answer everything queued first."""
        self._is_open = False
        if self._writer is not None:
            await self._writer
        await self._database.close()

    async def healthy(self) -> bool:
        return self._is_open

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        self._require_open()
        if len(self._waiting) >= limits.WRITE_QUEUE:
            raise queue_full_error()
        request = _CommitRequest(_arguments(writes, now), asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_groups(), name="key-value groups")
        return await asyncio.shield(request.future)

    async def _write_groups(self) -> None:
        """Commits that wait share one transaction, and one round trip."""
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), limits.GROUP_COMMIT_MAX))]
            try:
                async with asyncio.timeout(self._statement_seconds), self._database.acquire() as connection:
                    rows = await connection.fetchmany(_COMMIT, [request.arguments for request in group])
            except DATABASE_ERRORS as error:
                for request in group:
                    request.fail(write_error(error))
                while isinstance(error, LOST) and self._waiting:  # they have waited as long
                    self._waiting.popleft().fail(away_error())
            else:
                for request, row in zip(group, rows, strict=True):
                    if not request.future.done():
                        request.future.set_result(bool(row[0]))

    async def get(self, kind: str, key: str, now: float) -> bytes | None:
        statement = """SELECT value FROM waypost.items
            WHERE kind = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)"""
        rows = await self._read(statement, kind, key.encode(), now)
        return rows[0][0] if rows else None

    async def scan(
        self, kind: str, now: float, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[KeyValueItem]:
        first = prefix.encode()
        rows = await self._read(
            f"SELECT key, value, expires_at {_RANGE} ORDER BY key LIMIT $6",
            kind,
            first,
            first + _AFTER_PREFIX,
            after.encode(),
            now,
            limit,
        )
        return [KeyValueItem(key=key.decode(), value=value, expires_at=expires_at) for key, value, expires_at in rows]

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int:
        first = prefix.encode()
        rows = await self._read(f"SELECT count(*) {_RANGE}", kind, first, first + _AFTER_PREFIX, b"", now)
        return int(rows[0][0])

    async def _read(self, statement: str, *values: object) -> list[Any]:
        self._require_open()
        try:
            return await self._database.fetch(statement, *values)
        except DATABASE_ERRORS as error:
            raise read_error(error) from error

    def _require_open(self) -> None:
        if not self._is_open:
            raise store_closed_error()


def _encode(key: str) -> bytes:
    encoded = key.encode()
    if len(encoded) > _KEY_BYTES:
        raise InvalidParameter(f"A key has more than {_KEY_BYTES} bytes.")
    return encoded
