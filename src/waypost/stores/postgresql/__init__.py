"""The store of several nodes: PostgreSQL, with a replica in the data folder of each node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from waypost.errors import ConfigurationError
from waypost.settings import REPLICA_FOLDER

try:
    import asyncpg  # noqa: F401 - checked before the modules below import it
except ImportError as error:
    raise ConfigurationError(
        "The store postgresql:// needs the package asyncpg, which is not installed.",
        path="store",
        hint="Run: pip install 'waypost[postgresql]'",
    ) from error

from waypost.stores.postgresql.cluster import CLUSTER_KEY_FILE, ClusterCipher, SharedSecret
from waypost.stores.postgresql.database import STATEMENT_SECONDS
from waypost.stores.postgresql.key_value import PostgresqlKeyValueStore
from waypost.stores.postgresql.store import WRITE_SECONDS, PostgresqlStore
from waypost.stores.sqlite.store import SqliteFollowerStore


class PostgresqlBackend:
    def __init__(self, url: str, key_file: Path | None = None, write_seconds: float = WRITE_SECONDS) -> None:
        """`key_file`: by default in the data folder. `write_seconds`: how long a write may take."""
        self.url = url
        self._write_seconds = write_seconds
        self._key_file = key_file

    def make_store(
        self,
        folder: Path,
        *,
        read_only: bool = False,
        name: str = "",
        on_time: Callable[[float], None] = lambda seconds: None,
        on_nodes: Callable[[int], None] = lambda count: None,
    ) -> PostgresqlStore | SqliteFollowerStore:
        """`name` is what this node is called in lists of nodes. `on_time` gets the time of the database, first before
        the store is open; `on_nodes` the number of nodes."""
        if read_only:  # a worker process follows the replica
            return SqliteFollowerStore(folder / REPLICA_FOLDER)
        return PostgresqlStore(
            self.url,
            folder,
            self._make_cipher(folder),
            name=name,
            on_time=on_time,
            on_nodes=on_nodes,
            write_seconds=self._write_seconds,
        )

    def make_key_value_store(self, folder: Path) -> PostgresqlKeyValueStore:
        return PostgresqlKeyValueStore(self.url, max(STATEMENT_SECONDS, self._write_seconds))

    def make_shared_secret(self, folder: Path, name: str) -> SharedSecret:
        return SharedSecret(self.url, self._make_cipher(folder), name)

    def _make_cipher(self, folder: Path) -> ClusterCipher:
        return ClusterCipher(self._key_file or folder / CLUSTER_KEY_FILE)


def make_backend(url: str, key_file: Path | None = None) -> PostgresqlBackend:
    return PostgresqlBackend(url, key_file)
