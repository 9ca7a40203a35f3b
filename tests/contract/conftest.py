"""The stores that run the contract suites: every row of the table, and the row of a toy that only tests add."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from support import toy_store
from support.postgresql import DEBIAN_BINARIES, PostgresqlServer, embedded_binaries, running_postgresql
from waypost.settings.service import STORES
from waypost.stores import StoreBackend, get_backend
from waypost.stores.postgresql import PostgresqlBackend

_WRITE_SECONDS = 60.0  # on a machine with much else to do

_SERVERS = {"postgresql-18": embedded_binaries(), "postgresql-15": DEBIAN_BINARIES}
_ROWS = {
    **{name: row for name, row in STORES.items() if name != "postgresql://"},
    **dict.fromkeys(_SERVERS, STORES["postgresql://"]),
    "toy": toy_store.ROW,
}


@pytest.fixture(scope="session")
def postgresql_servers() -> Iterator[Callable[[str], PostgresqlServer]]:
    """One server of each version, started when a test needs it."""
    with ExitStack() as running:
        yield cache(lambda name: running.enter_context(running_postgresql(_SERVERS[name])))


def _make_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreBackend:
    name: str = request.param
    if name in _SERVERS:
        if not _SERVERS[name].is_dir() and "CI" not in os.environ:
            pytest.skip(f"{_SERVERS[name]} is not installed")
        url = request.getfixturevalue("postgresql_servers")(name).create_database()
        return PostgresqlBackend(url, write_seconds=_WRITE_SECONDS)
    monkeypatch.setitem(STORES, name, _ROWS[name])
    return get_backend(name)


@pytest.fixture(params=sorted(_ROWS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreBackend:
    return _make_backend(request, monkeypatch)


@pytest.fixture(params=sorted(name for name, kind in _ROWS.items() if kind.is_durable))
def durable_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreBackend:
    return _make_backend(request, monkeypatch)
