"""Stores of records and of key-value items. `waypost.settings.service.STORES` is the table of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from waypost.registry.doctor import DatabaseFacts
from waypost.registry.ports import KeyValueStore, Store
from waypost.settings.service import STORES, find_store


class StoreBackend(Protocol):
    """A module that implements both ports. Its stores open nothing before `open`."""

    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        """`read_only`: for a process that follows the one that writes."""
        ...

    def make_key_value_store(self, folder: Path) -> KeyValueStore: ...


class ClusterStore(Store, Protocol):
    """A store that several nodes share."""

    races: int  # groups of writes that were decided again, because another node wrote what they had read

    @property
    def stale_seconds(self) -> float:
        """How long ago this node was known to have everything."""
        ...

    async def may_do(self, chore: str) -> bool:
        """Whether this node is to do a chore that one node of the cluster does."""
        ...

    async def confirm_reads(self) -> float | None:
        """Wait until reads here see everything that any node acknowledged before this call. If that cannot be known: how many
        seconds ago it was so."""
        ...

    async def estimate_staleness(self) -> float | None:
        """The same without asking the database: None while this node follows the others in time."""
        ...

    async def inspect_database(self) -> DatabaseFacts:
        """For `waypost doctor`."""
        ...


class SharedValue(Protocol):
    """A sealed value that all nodes share. `prepare` comes first and raises ConfigurationError."""

    async def prepare(self) -> None: ...

    async def read(self) -> tuple[int, bytes] | None:
        """Its version and value."""
        ...

    async def write(self, value: bytes, version: int) -> bool:
        """Replace this version, or 0 for none; False if another node was faster."""
        ...

    async def close(self) -> None: ...


class ClusterBackend(Protocol):
    def make_store(self, folder: Path, *, on_time: Callable[[float], None]) -> ClusterStore:
        """`on_time` gets the time of the database, first before the store is open."""
        ...

    def make_shared_secret(self, folder: Path, name: str) -> SharedValue: ...


def get_backend(store: str, key_file: Path | None = None) -> StoreBackend:
    """The backend of a value of the setting `store`. `key_file` is that of a store with a URL."""
    kind = find_store(store) or store
    module = import_module(STORES[kind].module)
    return cast(StoreBackend, module.make_backend(store, key_file) if kind != store else module)
