"""The search index of one node, copied by nodes that start with an empty folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from support.postgresql import PostgresqlServer
from support.store_commands import make_registration, put
from waypost.search.ranker import HybridRanker
from waypost.stores.postgresql import index_files
from waypost.stores.postgresql.cluster import ClusterCipher
from waypost.stores.postgresql.store import PostgresqlStore

AGENTS = 40


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return postgresql.create_database()


async def open_store(url: str, folder: Path, name: str) -> PostgresqlStore:
    store = PostgresqlStore(url, folder / name, ClusterCipher(folder / "cluster.key"), on_history_change=lambda: None)
    await store.open(lambda changes: None)
    return store


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[PostgresqlStore]:
    """Of a node with an index of some agents."""
    store = await open_store(url, tmp_path, "first")
    await asyncio.gather(*(store.execute(put(make_registration(f"urn:agent:{number}"))) for number in range(AGENTS)))
    ranker = HybridRanker(store._replica.index_folder)
    ranker.index.open()
    async for registrations in store.scan():
        for registration in registrations:
            ranker.index.put(registration)
    ranker.index.maintain(await store.revision())
    ranker.close()
    yield store
    await store.close()


async def files_of(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    try:
        return {row["name"] for row in await connection.fetch("SELECT name FROM waypost.index_files")}
    finally:
        await connection.close()


async def indexed_revision(url: str, folder: Path) -> int:
    """Of the index that a node with an empty folder starts with."""
    started = await open_store(url, folder, "empty")
    await started.close()
    ranker = HybridRanker(started._replica.index_folder)
    try:
        return ranker.index.open()
    finally:
        ranker.close()


async def test_an_empty_node_starts_with_the_index_of_another_one(
    store: PostgresqlStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_files, "_PART_BYTES", 1000)  # files of many parts
    await store._index.save()
    written = await store.revision()
    await store.execute(put(make_registration("urn:agent:later")))
    assert await indexed_revision(url, tmp_path) == written, "later changes are in the log"


async def test_only_what_changed_is_copied_again(store: PostgresqlStore, url: str, tmp_path: Path) -> None:
    await store._index.save()
    before = await files_of(url)
    await store._index.save()
    assert await files_of(url) == before
    ranker = HybridRanker(store._replica.index_folder)
    ranker.index.open()
    ranker.index.remove("urn:agent:1")
    ranker.index.maintain(await store.revision())
    ranker.close()
    await store._index.save()
    after = await files_of(url)
    assert after != before
    assert len(after & before) > 1, "the manifest, and the rows"
    assert await indexed_revision(url, tmp_path) == await store.revision()


async def test_a_node_builds_its_index_without_whole_files(store: PostgresqlStore, url: str, tmp_path: Path) -> None:
    await store._index.save()
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE waypost.index_files SET data = data || 'x' WHERE name <> 'manifest'")
    await connection.close()
    assert await indexed_revision(url, tmp_path) == 0


async def test_an_index_of_a_history_that_was_lost_is_not_used(
    store: PostgresqlStore, url: str, tmp_path: Path
) -> None:
    await store._index.save()
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE waypost.log SET checksum = 'of another one'")
    await connection.close()
    assert await indexed_revision(url, tmp_path) == 0


async def test_a_node_of_another_history_leaves_no_index(store: PostgresqlStore, url: str) -> None:
    store._replica.checksum = b"of another history"
    await store._index.save()
    assert "manifest" not in await files_of(url)
