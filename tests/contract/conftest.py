"""The stores that run the contract suites: every row of the table, and the row of a toy that only tests add."""

from __future__ import annotations

import pytest

from support import toy_store
from waypost.settings.service import STORES
from waypost.stores import StoreBackend, get_backend

_ROWS = {**STORES, "toy": toy_store.ROW}


@pytest.fixture(params=sorted(_ROWS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreBackend:
    monkeypatch.setitem(STORES, request.param, _ROWS[request.param])
    return get_backend(request.param)


@pytest.fixture(params=sorted(name for name, kind in _ROWS.items() if kind.is_durable))
def durable_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreBackend:
    monkeypatch.setitem(STORES, request.param, _ROWS[request.param])
    return get_backend(request.param)
