"""Stores of records and of key-value items. `waypost.settings.service.STORES` is the table of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from waypost.registry.doctor import DatabaseFacts
from waypost.registry.ports import KeyValueStore, Store, VectorExchange
from waypost.responses.service import NodeStats
from waypost.settings.service import STORES, find_store


class StoreBackend(Protocol):
    """A module that implements both ports. Its stores open nothing before `open`."""

    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        """`read_only`: for a process that follows the one that writes."""
        ...

    def make_key_value_store(self, folder: Path) -> KeyValueStore: ...


class ClusterStats:
    """Figures of a node for its metrics, since it started."""

    __slots__ = (
        "feed_lag_seconds",
        "groups",
        "is_away",
        "lost_races",
        "rows",
        "vectors_computed",
        "vectors_read",
        "writes",
    )

    def __init__(self) -> None:
        self.groups = 0  # that this node put into the log
        self.writes = 0  # in these groups
        self.lost_races = 0  # groups that were decided again, because another node wrote what they had read
        self.rows = 0  # of the log, that this node applied
        self.feed_lag_seconds = 0.0  # from the commit of the last row to its arrival here
        self.is_away = False  # the database
        self.vectors_computed = 0  # agents whose vectors this node computed and stored
        self.vectors_read = 0  # agents whose vectors this node read


class ClusterStore(Store, Protocol):
    """A store that several nodes share."""

    stats: ClusterStats
    nodes: tuple[NodeStats, ...]  # as they were when the database last answered; this one is among them
    vectors: VectorExchange

    @property
    def stale_seconds(self) -> float:
        """How long ago this node was known to have everything."""
        ...

    @property
    def has_other_history(self) -> bool:
        """Whether the database lost changes that this node has: the store is to be opened again."""
        ...

    async def may_do(self, chore: str) -> bool:
        """Whether this node is to do a chore that one node of the cluster does."""
        ...

    @property
    def position(self) -> int:
        """Of this node in the log of the cluster."""
        ...

    async def confirm_reads(self, position: int = 0) -> float | None:
        """Wait until reads here see everything that any node acknowledged before this call. If that cannot be known: how many
        seconds ago it was so."""
        ...

    async def estimate_staleness(self, position: int = 0) -> float | None:
        """The same without asking the database, unless this node has not reached the position: None while it follows the
        others in time."""
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
    def make_store(
        self, folder: Path, *, name: str, on_time: Callable[[float], None], on_nodes: Callable[[int], None]
    ) -> ClusterStore:
        """`name` is what this node is called in lists of nodes. `on_time` gets the time of the database, first before
        the store is open; `on_nodes` the number of nodes that are alive, every few seconds."""
        ...

    def make_shared_secret(self, folder: Path, name: str) -> SharedValue: ...


def get_backend(store: str, key_file: Path | None = None) -> StoreBackend:
    """The backend of a value of the setting `store`. `key_file` is that of a store with a URL."""
    kind = find_store(store) or store
    module = import_module(STORES[kind].module)
    return cast(StoreBackend, module.make_backend(store, key_file) if kind != store else module)
