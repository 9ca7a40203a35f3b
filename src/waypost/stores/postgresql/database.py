"""Connections to PostgreSQL: the URL, a small pool, timeouts, and what its errors mean.

A pool in transaction mode (PgBouncer) may give every transaction another session. So no session setting is made and no session
lock is taken; limits of time are those of this side, and of the functions. Prepared statements are kept only on a connection
that is known to have no pool in between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from waypost.errors import ConfigurationError, StorageFull, StoreUnavailable, WaypostError

OLDEST_SERVER: Final = 14
CONNECT_SECONDS: Final = 2.0
STATEMENT_SECONDS: Final = 2.0
LONG_SECONDS: Final = 600.0  # for a statement at the start, or of a copy
RETRY_SECONDS: Final = 1
_NEXT_HOST_SECONDS: Final = 0.25  # a machine that lost its power or its network does not even refuse a connection
_POOL: Final = 4  # connections of a node, besides the one that listens; none in worker processes until they need one
_NO_SYNC: Final = "WP001"  # raised by our functions

# Errors of the connection, not of a statement: the outcome of what was sent is unknown.
LOST: Final = (
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
DATABASE_ERRORS: Final = (*LOST, asyncpg.PostgresError)


def write_error(error: BaseException) -> WaypostError:
    """The error for a caller whose write was not acknowledged."""
    if getattr(error, "sqlstate", None) == _NO_SYNC:
        return StoreUnavailable(
            "The database would acknowledge writes before they are durable (synchronous_commit = off).",
            hint="Set synchronous_commit to on for this database and role.",
            retry_after=5 * RETRY_SECONDS,
        )
    if isinstance(error, asyncpg.DiskFullError | asyncpg.OutOfMemoryError):
        return StorageFull(
            f"The database is out of space ({error}); nothing was written.",
            hint="Free space on the disk of PostgreSQL. Reads continue, and writes resume automatically.",
            retry_after=5 * RETRY_SECONDS,
        )
    if isinstance(error, LOST):
        return StoreUnavailable(
            "The database did not confirm the write; it may or may not be stored.",
            hint="Reads continue. Check whether it was stored, or repeat it with the same Idempotency-Key.",
            retry_after=RETRY_SECONDS,
        )
    return StoreUnavailable(f"The database refused the write ({error}).", retry_after=RETRY_SECONDS)


def away_error() -> StoreUnavailable:
    return StoreUnavailable(
        "The database cannot be reached; nothing was written.",
        hint="Reads continue and are marked as stale. Writes resume by themselves when the database is back.",
        retry_after=RETRY_SECONDS,
    )


def read_error(error: BaseException) -> StoreUnavailable:
    return StoreUnavailable(f"The database could not be read ({_text(error)}).", retry_after=RETRY_SECONDS)


def start_error(error: BaseException, url: str) -> WaypostError:
    """The error for a node that cannot start."""
    where = hide_password(url)
    if isinstance(error, asyncpg.InvalidPasswordError | asyncpg.InvalidAuthorizationSpecificationError):
        return ConfigurationError(
            f"PostgreSQL at {where} refused the user or the password ({_text(error)}).",
            path="store",
            hint="Check user and password of the URL, or put the password into PGPASSWORD or ~/.pgpass.",
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return ConfigurationError(
            f"The database of {where} does not exist ({_text(error)}).",
            path="store",
            hint="Create it: createdb NAME, owned by the role of the URL.",
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return ConfigurationError(
            f"The role of {where} lacks rights ({_text(error)}).",
            path="store",
            hint="Make the role the owner of the database, or grant it CREATE on the database.",
        )
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched | asyncpg.ReadOnlySQLTransactionError):
        return StoreUnavailable(
            f"No server of {where} accepts writes.", hint="Promote a standby, or name the primary in the URL too."
        )
    if isinstance(error, asyncpg.ClientConfigurationError | ValueError | ssl.SSLError):
        return ConfigurationError(
            f"The URL of the store is not usable: {_text(error)}.",
            path="store",
            hint="Write it like postgresql://USER:PASSWORD@HOST:5432/DATABASE.",
        )
    return StoreUnavailable(
        f"PostgreSQL at {where} cannot be reached ({_text(error)}).",
        hint="Check that it runs and that this machine may connect to it.",
    )


def _text(error: BaseException) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__


def hide_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}"


class Database:
    """A lazy pool: it connects with the first statement."""

    def __init__(self, url: str, statement_seconds: float = STATEMENT_SECONDS) -> None:
        self.url = url
        self._seconds = statement_seconds
        self._options = {**_OPTIONS, "command_timeout": statement_seconds}
        self._pool: asyncpg.Pool | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def connect(self, seconds: float | None = None) -> asyncpg.Connection:
        """A connection of its own, for the caller to close; `seconds` limits each statement. Of several hosts in the URL it is
        to one that accepts writes."""
        return await _connect(self.url, **{**self._options, "command_timeout": seconds or self._seconds})

    async def _get_pool(self) -> asyncpg.Pool:
        async with self._lock:
            if self._pool is None:
                if self._is_closed:
                    raise StoreUnavailable("The store is closed.", retry_after=RETRY_SECONDS)
                self._pool = await asyncpg.create_pool(
                    self.url, min_size=0, max_size=_POOL, connect=_connect, reset=_keep_session, **self._options
                )
            return self._pool

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[asyncpg.Connection]:
        pool = await self._get_pool()
        connection = await pool.acquire(timeout=self._seconds)
        try:
            yield connection
        except (*LOST, asyncio.CancelledError):
            with suppress(asyncpg.InterfaceError):  # already released: the connection ended by itself
                connection.terminate()  # asyncpg would wait for the server to cancel the statement
            raise
        finally:
            await pool.release(connection)

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async with asyncio.timeout(self._seconds), self.acquire() as connection:
            return list(await connection.fetch(statement, *values))

    async def forget_connections(self) -> None:
        """After a lost connection: the others are to the same server, which may be gone."""
        if self._pool is not None:
            await self._pool.expire_connections()

    async def close(self) -> None:
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await pool.close()
        except (*DATABASE_ERRORS, asyncio.CancelledError):
            pool.terminate()


class LogConnection:
    """A connection that one task keeps for the statements of each write and each poll. Without a pool in between they are
    prepared once: that saves one of two round trips, and most of the processor time of a small statement."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None
        self._prepared: dict[str, Any] | None = None  # None: there is a pool
        self._number = 0  # of the last prepared statement

    @asynccontextmanager
    async def use(self) -> AsyncIterator[LogConnection]:
        try:
            if self._connection is None:
                self._connection = await self._database.connect()
                self._prepared = {} if await is_direct(self._connection) else None
            yield self
        except (*LOST, asyncio.CancelledError):
            self.drop()
            raise
        except asyncpg.PostgresError:
            self._forget_statements()
            raise

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def transaction(self) -> Any:
        return self._get().transaction()

    async def execute(self, statement: str, *values: Any) -> str:
        return str(await self._get().execute(statement, *values))

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        if self._prepared is None:
            return list(await self._get().fetch(statement, *values))
        return list(await (await self._prepare(self._prepared, statement)).fetch(*values))

    async def fetchrow(self, statement: str, *values: Any) -> asyncpg.Record:
        if self._prepared is None:
            return await self._get().fetchrow(statement, *values)
        return await (await self._prepare(self._prepared, statement)).fetchrow(*values)

    async def has_row(self, statement: str, number: int) -> bool:
        """Whether a statement with the parameter $1 returns a row. Behind a pool the simple protocol is the quicker one."""
        if self._prepared is None:
            return await self.execute(statement.replace("$1", f"{number:d}")) != "SELECT 0"
        return bool(await self.fetch(statement, number))

    async def _prepare(self, prepared: dict[str, Any], statement: str) -> Any:
        if statement not in prepared:
            self._number += 1
            prepared[statement] = await self._get().prepare(statement, name=f"waypost_{self._number}")
        return prepared[statement]

    def _forget_statements(self) -> None:
        """One of them may be outdated, after a migration by a newer node."""
        if self._prepared is not None:
            self._prepared.clear()

    def _get(self) -> asyncpg.Connection:
        if self._connection is None:
            raise asyncpg.InterfaceError("the connection is closed")
        return self._connection


async def is_direct(connection: asyncpg.Connection) -> bool:
    """Whether there is no pool in between: a pool tells a process id of its own."""
    pid = connection.get_server_pid()
    return bool(
        await connection.execute(f"SELECT FROM (SELECT pg_backend_pid() AS id) AS own WHERE id = {pid:d}") == "SELECT 1"
    )


async def _connect(url: str, **options: Any) -> asyncpg.Connection:
    """Connect to the first host of the URL that accepts writes. asyncpg asks one host after the other within one timeout, so
    that a host which does not answer at all would keep it from the others; here the next one is asked meanwhile."""
    hosts = iter(split_hosts(url))
    attempts: set[asyncio.Task[asyncpg.Connection]] = set()
    errors: list[BaseException] = []
    try:
        while (host := next(hosts, None)) is not None or attempts:
            if host is not None:
                attempts.add(asyncio.create_task(asyncpg.connect(host, **options)))
            seconds = None if host is None else _NEXT_HOST_SECONDS
            done, _ = await asyncio.wait(attempts, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                attempts.remove(attempt)
                if (error := attempt.exception()) is None:
                    return attempt.result()
                errors.append(error)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_discard)
    # What a server said tells more than that another one said nothing.
    raise next((error for error in errors if not isinstance(error, OSError)), errors[-1])


def _discard(attempt: asyncio.Task[asyncpg.Connection]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()


def split_hosts(url: str) -> list[str]:
    """A URL for each host of a URL."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]


async def _keep_session(_: asyncpg.Connection) -> None:
    """There is nothing to reset in a session that nothing was set in; asyncpg would send four statements."""


_OPTIONS: Final[dict[str, Any]] = {
    "statement_cache_size": 0,
    "timeout": CONNECT_SECONDS,
    "target_session_attrs": "read-write",
}


async def check_server(connection: asyncpg.Connection) -> None:
    """Refuse servers on which the guarantees do not hold."""
    version = connection.get_server_version().major
    if version < OLDEST_SERVER:
        raise ConfigurationError(
            f"The server is PostgreSQL {version}; {OLDEST_SERVER} or newer is needed.", path="store", hint="Upgrade it."
        )
    if await connection.fetchval("SELECT current_setting('synchronous_commit')") == "off":
        raise ConfigurationError(
            "synchronous_commit is off: the database would acknowledge writes before they are durable.",
            path="store",
            hint="Run: ALTER DATABASE name SET synchronous_commit = on (also check the role's settings).",
        )
    if await connection.fetchval("SHOW server_encoding") != "UTF8":
        raise ConfigurationError(
            "The encoding of the database is not UTF8.", path="store", hint="Create it with --encoding=UTF8."
        )
