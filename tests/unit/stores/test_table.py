"""A new store is a module and one row: settings accept it, and a service runs on it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.service import profile, service
from waypost.errors import ConfigurationError
from waypost.settings import Settings
from waypost.settings.stores import STORES, StoreKind
from waypost.stores.memory import MemoryKeyValueStore, MemoryStore


class ToyStore(MemoryStore):
    pass


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("toy_store")
    module.make_store = lambda folder, *, read_only=False: ToyStore()  # type: ignore[attr-defined]
    module.make_key_value_store = lambda folder: MemoryKeyValueStore()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_store", module)
    monkeypatch.setitem(STORES, "toy", StoreKind(module="toy_store", doc="for this test", is_durable=False))


@pytest.mark.usefixtures("toy")
async def test_a_service_runs_on_a_store_of_one_row(tmp_path: Path) -> None:
    async with service(tmp_path, store="toy") as bench:
        assert isinstance(bench.application.store, ToyStore)
        assert (await bench.as_("alice").post("/api/v1/agents", json=profile("a"))).status_code == 201
        assert (await bench.as_("alice").get("/api/v1/agents/a")).status_code == 200


@pytest.mark.usefixtures("toy")
def test_a_store_that_is_not_durable_has_one_process(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        Settings(data=tmp_path, store="toy", workers=2)
