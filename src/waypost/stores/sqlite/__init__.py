"""The default store: SQLite files in the data folder, durable when a write returns."""

from __future__ import annotations

from pathlib import Path

from waypost.stores.sqlite.key_value import SqliteKeyValueStore
from waypost.stores.sqlite.store import SqliteFollowerStore, SqliteStore


def make_store(folder: Path, *, read_only: bool = False) -> SqliteStore | SqliteFollowerStore:
    return SqliteFollowerStore(folder) if read_only else SqliteStore(folder)


def make_key_value_store(folder: Path) -> SqliteKeyValueStore:
    return SqliteKeyValueStore(folder)
