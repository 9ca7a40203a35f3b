"""What a node notices of a connection pool between it and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from support.postgresql import PGBOUNCER, PostgresqlServer, running_pgbouncer
from waypost.stores.postgresql.cluster import ClusterCipher
from waypost.stores.postgresql.database import DATABASE_ERRORS, Database, LogConnection
from waypost.stores.postgresql.store import PostgresqlStore

WAIT_SECONDS = 20.0


@pytest.fixture
def pooled_url(postgresql: PostgresqlServer, tmp_path: Path) -> Iterator[str]:
    """The URL of a new database behind a pool in transaction mode."""
    if PGBOUNCER is None and "CI" not in os.environ:
        pytest.skip("pgbouncer is not installed")
    with running_pgbouncer(postgresql, tmp_path) as port:
        yield postgresql.create_database().replace(f":{postgresql.port}/", f":{port}/")


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[PostgresqlStore]:
    store = PostgresqlStore(url, folder / "node", ClusterCipher(folder / "cluster.key"), write_seconds=60.0)
    await store.open(lambda changes: None)
    try:
        yield store
    finally:
        await store.close()


async def test_doctor_hears_notifications_without_a_pool(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    async with opened(postgresql.create_database(), tmp_path) as store:
        ends_at = time.monotonic() + WAIT_SECONDS
        while not (await store.inspect_database()).hears:
            assert time.monotonic() < ends_at, "nothing was heard"
            await asyncio.sleep(0.05)


async def test_doctor_hears_no_notifications_behind_a_pool(pooled_url: str, tmp_path: Path) -> None:
    async with opened(pooled_url, tmp_path) as store:
        for _ in range(30):  # over some probes of the listening connection
            assert not (await store.inspect_database()).hears
            await asyncio.sleep(0.1)


async def test_doctor_counts_connections_of_other_roles(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.create_database()
    name = url.rpartition("/")[2]
    postgresql.sql("CREATE ROLE erin LOGIN", f"ALTER DATABASE {name} OWNER TO erin")
    others = [await asyncpg.connect(url) for _ in range(20)]
    try:
        async with opened(postgresql.url(name, user="erin"), tmp_path) as store:
            assert (await store.inspect_database()).connections > len(others)
    finally:
        for other in others:
            await other.close()


async def test_statements_are_prepared_once_without_a_pool(postgresql: PostgresqlServer) -> None:
    assert await _count_prepared(postgresql.create_database()) == 1


async def test_statements_are_not_prepared_behind_a_pool(pooled_url: str) -> None:
    assert await _count_prepared(pooled_url) == 0


async def _count_prepared(url: str) -> int:
    """After the same statement three times, on a connection of a node."""
    database = Database(url, 30.0)
    log = LogConnection(database)
    try:
        async with log.use() as connection:
            for number in range(3):
                assert [row[0] for row in await connection.fetch("SELECT $1::bigint", number)] == [number]
            named = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::bigint'"
            return int((await database.fetch(named))[0][0]) + int(await log._get().fetchval(named))
    finally:
        log.drop()
        await database.close()


async def test_a_connection_that_ended_is_replaced_and_its_statements_prepared_again(
    postgresql: PostgresqlServer,
) -> None:
    database = Database(postgresql.create_database(), 30.0)
    log = LogConnection(database)
    try:
        async with log.use() as connection:
            ((pid,),) = await connection.fetch("SELECT pg_backend_pid()")
        await database.fetch("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(DATABASE_ERRORS):
            async with log.use() as connection:
                await connection.fetch("SELECT pg_backend_pid()")
        async with log.use() as connection:
            assert [row[0] for row in await connection.fetch("SELECT pg_backend_pid()")] != [pid]
    finally:
        log.drop()
        await database.close()
