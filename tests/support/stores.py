"""The store of the services that tests start. With `pytest --store postgresql` each is a node over a database of its own,
whatever store a test names; a service that is started again in the same data folder gets the same database."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from support.postgresql import PostgresqlServer, running_postgresql
from waypost.registry.ports import Store
from waypost.stores.postgresql import PostgresqlBackend
from waypost.stores.postgresql.schema import migrate

STORES: Final = ("own", "postgresql")

_PATIENCE_SECONDS: Final = 60.0
_TEMPLATE: Final = "template_waypost"
_urls: dict[Path, str] = {}
_numbers = itertools.count()
_chosen = "own"


def choose_store(name: str) -> None:
    """`own`: each test's own choice."""
    global _chosen
    _chosen = name


def find_test_store(data: Path, *, is_new: bool = False) -> str | None:
    """The URL of the database for this data folder; None unless tests run on PostgreSQL. `is_new`: instead of a store in memory,
    which is empty at each start."""
    if _chosen != "postgresql":
        return None
    data = data.resolve()
    if data not in _urls or is_new:
        _urls[data] = _create_database(f"test_{next(_numbers)}")
    return _urls[data]


def make_patient_store(url: str, data: Path) -> Store:
    """A store that waits for the database on a machine with much else to do."""
    return PostgresqlBackend(url, write_seconds=_PATIENCE_SECONDS).make_store(data)


def skip_own_stores(items: Sequence[pytest.Item]) -> None:
    """Skip tests that are about one store, or about one service alone."""
    for item in items if _chosen != "own" else ():
        if "own_store" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="has a store of its own"))


@cache
def _get_server() -> PostgresqlServer:
    """One server for each process of the tests."""
    running = ExitStack()
    atexit.register(running.close)
    server = running.enter_context(running_postgresql())
    server.sql(f"CREATE DATABASE {_TEMPLATE}")
    _run(_migrate(server.url(_TEMPLATE)))
    return server


def _create_database(name: str) -> str:
    server = _get_server()
    _run(_execute(server.url(), f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy"))
    return server.url(name)


def _run(work: object) -> None:
    """In a thread: the caller may have an event loop."""
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    thread.join()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _migrate(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await migrate(connection)
    finally:
        await connection.close()
