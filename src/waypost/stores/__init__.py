"""Stores of records and of key-value items. `waypost.settings.service.STORES` is the table of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from waypost.registry.ports import KeyValueStore, Store
from waypost.settings.service import STORES, find_store


class StoreBackend(Protocol):
    """A module that implements both ports. Its stores open nothing before `open`."""

    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        """`read_only`: for a process that follows the one that writes."""
        ...

    def make_key_value_store(self, folder: Path) -> KeyValueStore: ...


def get_backend(store: str, key_file: Path | None = None) -> StoreBackend:
    """The backend of a value of the setting `store`. `key_file` is that of a store with a URL."""
    kind = find_store(store) or store
    module = import_module(STORES[kind].module)
    return cast(StoreBackend, module.make_backend(store, key_file) if kind != store else module)
