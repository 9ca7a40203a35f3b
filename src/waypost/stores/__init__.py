"""Stores of records and of key-value items. `waypost.settings.service.STORES` is the table of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from waypost.registry.ports import KeyValueStore, Store
from waypost.settings.service import STORES


class StoreBackend(Protocol):
    """A module that implements both ports. Its stores open nothing before `open`."""

    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        """`read_only`: for a process that follows the one that writes."""
        ...

    def make_key_value_store(self, folder: Path) -> KeyValueStore: ...


def get_backend(name: str) -> StoreBackend:
    return cast(StoreBackend, import_module(STORES[name].module))
