"""One suite for every key-value store: tasks, mailboxes, swarms and invitations rely on this behaviour."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from waypost.errors import StorageFull, StoreUnavailable
from waypost.registry.ports import KeyValueStore, KeyValueWrite
from waypost.stores import StoreBackend
from waypost.stores.sqlite.key_value import KEY_VALUE_FILE, SqliteKeyValueStore

NOW = 1_000.0


def put(key: str, value: bytes, kind: str = "task", **members: object) -> KeyValueWrite:
    return KeyValueWrite(kind=kind, key=key, value=value, **members)  # type: ignore[arg-type]


def drop(key: str, kind: str = "task") -> KeyValueWrite:
    return KeyValueWrite(kind=kind, key=key, value=None)


@pytest.fixture
async def items(backend: StoreBackend, tmp_path: Path) -> AsyncIterator[KeyValueStore]:
    made = backend.make_key_value_store(tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_stored_items_are_returned_and_removed_ones_are_not(items: KeyValueStore) -> None:
    assert await items.commit([put("a", b"one"), put("a", b"other", kind="swarm")], NOW)
    assert await items.get("task", "a", NOW) == b"one"
    assert await items.get("swarm", "a", NOW) == b"other"
    assert await items.commit([drop("a")], NOW)
    assert await items.get("task", "a", NOW) is None
    assert await items.get("swarm", "a", NOW) == b"other"


async def test_removing_a_missing_key_succeeds(items: KeyValueStore) -> None:
    assert await items.commit([drop("nobody")], NOW)


async def test_a_commit_that_expects_something_else_writes_nothing(items: KeyValueStore) -> None:
    await items.commit([put("a", b"one")], NOW)
    assert not await items.commit([put("b", b"two"), put("a", b"three", expected=b"two")], NOW)
    assert not await items.commit([put("b", b"two"), put("a", b"three", expected=None)], NOW)
    assert await items.get("task", "b", NOW) is None
    assert await items.get("task", "a", NOW) == b"one"
    assert await items.commit([put("b", b"two", expected=None), put("a", b"three", expected=b"one")], NOW)
    assert await items.get("task", "a", NOW) == b"three"


async def test_of_many_concurrent_writers_one_succeeds(items: KeyValueStore) -> None:
    won = await asyncio.gather(*(items.commit([put("a", b"%d" % n, expected=None)], NOW) for n in range(50)))
    assert sum(won) == 1
    assert await items.get("task", "a", NOW) == b"%d" % won.index(True)


async def test_expired_items_are_not_returned(items: KeyValueStore) -> None:
    await items.commit([put("a", b"one", expires_at=NOW + 10), put("b", b"two")], NOW)
    assert await items.get("task", "a", NOW + 9.9) == b"one"
    assert await items.get("task", "a", NOW + 10) is None
    assert [kept.key for kept in await items.scan("task", NOW + 10)] == ["b"]
    assert await items.count("task", NOW + 10) == 1
    assert await items.commit([put("a", b"new", expected=None)], NOW + 10)
    assert await items.get("task", "a", NOW + 100) == b"new"


async def test_a_scan_gives_one_kind_in_the_order_of_keys_from_a_place_on(items: KeyValueStore) -> None:
    await items.commit([put(key, key.encode()) for key in ("b/2", "a/1", "b/10", "c", "b/ü", "b")], NOW)
    await items.commit([put("b/3", b"other", kind="swarm")], NOW)
    assert [kept.key for kept in await items.scan("task", NOW)] == ["a/1", "b", "b/10", "b/2", "b/ü", "c"]
    found = await items.scan("task", NOW, prefix="b/")
    assert [(kept.key, kept.value) for kept in found] == [("b/10", b"b/10"), ("b/2", b"b/2"), ("b/ü", "b/ü".encode())]
    assert [kept.key for kept in await items.scan("task", NOW, prefix="b/", after="b/10", limit=1)] == ["b/2"]
    assert [kept.key for kept in await items.scan("task", NOW, after="b/2")] == ["b/ü", "c"]
    assert await items.count("task", NOW, prefix="b/") == 3
    assert await items.count("task", NOW) == 6


async def test_concurrent_writes_are_all_stored(items: KeyValueStore) -> None:
    done = await asyncio.gather(*(items.commit([put(f"{n:04}", b"x")], NOW) for n in range(700)))
    assert all(done)
    assert await items.count("task", NOW) == 700


async def test_a_closed_store_refuses_calls(items: KeyValueStore) -> None:
    assert await items.healthy()
    await items.close()
    assert not await items.healthy()
    with pytest.raises(StoreUnavailable):
        await items.commit([put("a", b"one")], NOW)
    with pytest.raises(StoreUnavailable):
        await items.get("task", "a", NOW)
    with pytest.raises(StoreUnavailable):
        await items.scan("task", NOW)


# --- Durable stores -------------------------------------------------------------------------------


async def test_items_survive_a_reopening(durable_backend: StoreBackend, tmp_path: Path) -> None:
    items = durable_backend.make_key_value_store(tmp_path)
    await items.open()
    await items.commit([put("a", b"one", expires_at=NOW + 5)], NOW)
    await items.close()
    again = durable_backend.make_key_value_store(tmp_path)
    await again.open()
    assert await again.get("task", "a", NOW) == b"one"
    await again.close()


# --- The SQLite store -----------------------------------------------------------------------------


async def test_only_the_owner_of_the_file_can_read_it(tmp_path: Path) -> None:
    items = SqliteKeyValueStore(tmp_path)
    await items.open()
    await items.close()
    assert (tmp_path / KEY_VALUE_FILE).stat().st_mode & 0o077 == 0


async def test_processes_share_one_file(tmp_path: Path) -> None:
    """Every process writes to the file itself: its lock orders them, and each sees the commits of the others."""
    first, second = SqliteKeyValueStore(tmp_path), SqliteKeyValueStore(tmp_path)
    await first.open()
    await second.open()
    both = [items.commit([put(f"{n}", b"x", expected=None)], NOW) for n in range(40) for items in (first, second)]
    assert sum(await asyncio.gather(*both)) == 40
    assert await first.count("task", NOW) == await second.count("task", NOW) == 40
    await first.commit([put("new", b"told")], NOW)
    assert await second.get("task", "new", NOW) == b"told"
    await first.close()
    assert await second.commit([put("later", b"x")], NOW)
    await second.close()


async def test_a_full_disk_refuses_writes_and_keeps_reads(tmp_path: Path) -> None:
    items = SqliteKeyValueStore(tmp_path, max_pages=40)
    await items.open()
    told = await asyncio.gather(
        *(items.commit([put(f"{n:03}", os.urandom(8_000))], NOW) for n in range(10)), return_exceptions=True
    )
    assert set(told) == {True}
    kept = len(told)
    with pytest.raises(StorageFull):
        await items.commit([put("large", os.urandom(160_000))], NOW)
    assert await items.count("task", NOW) == kept
    await items.commit([drop(f"{n:03}") for n in range(kept)], NOW)
    assert await items.commit([put("again", b"x" * 8_000)], NOW)
    await items.close()


async def test_a_failing_disk_stops_all_writes_and_none_is_acknowledged(tmp_path: Path) -> None:
    failing = False

    def failpoint(name: str) -> None:
        if failing and name == "before_commit":
            raise OSError(5, "Input/output error")

    items = SqliteKeyValueStore(tmp_path, failpoint=failpoint)
    await items.open()
    await items.commit([put("a", b"one")], NOW)
    failing = True
    told = await asyncio.gather(*(items.commit([put(f"{n}", b"x")], NOW) for n in range(5)), return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable) for each in told)
    failing = False
    assert not await items.healthy()
    with pytest.raises(StoreUnavailable):
        await items.commit([put("b", b"two")], NOW)
    assert await items.get("task", "a", NOW) == b"one"
    assert await items.count("task", NOW) == 1
    await items.close()


async def test_a_changed_row_is_detected_and_affects_no_other(tmp_path: Path) -> None:
    items = SqliteKeyValueStore(tmp_path)
    await items.open()
    await items.commit([put("a", b"one"), put("b", b"two")], NOW)
    other = sqlite3.connect(tmp_path / KEY_VALUE_FILE)
    other.execute("UPDATE things SET value = ? WHERE key = 'a'", (b"own",))
    other.commit()
    other.close()
    with pytest.raises(StoreUnavailable, match="damaged"):
        await items.get("task", "a", NOW)
    told = await asyncio.gather(
        items.commit([put("a", b"x", expected=b"one")], NOW),
        items.commit([put("c", b"three")], NOW),
        return_exceptions=True,
    )
    assert isinstance(told[0], StoreUnavailable)
    assert told[1] is True
    await items.close()


async def test_expired_items_are_deleted_from_the_file(tmp_path: Path) -> None:
    items = SqliteKeyValueStore(tmp_path)
    await items.open()
    await items.commit([put(f"{n}", b"x", expires_at=NOW + 1) for n in range(20)], NOW)
    await items.commit([put("kept", b"x")], NOW + 2)
    other = sqlite3.connect(tmp_path / KEY_VALUE_FILE)
    assert other.execute("SELECT count(*) FROM things").fetchone() == (1,)
    other.close()
    await items.close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from waypost.registry.ports import KeyValueWrite
from waypost.stores import StoreBackend
from waypost.stores.sqlite.key_value import SqliteKeyValueStore

async def main():
    items = SqliteKeyValueStore(Path(sys.argv[1]))
    await items.open()
    async def one(number):
        pair = [KeyValueWrite(kind=kind, key=str(number), value=b"x") for kind in ("left", "right")]
        await items.commit(pair, 1000.0)
        print(number, flush=True)
    for start in range(0, 100000, 8):
        await asyncio.gather(*(one(start + n) for n in range(8)))

asyncio.run(main())
"""


async def test_no_answered_commit_is_lost_or_halved_by_a_kill(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(100)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.read().split()
    process.stdout.close()
    process.wait()
    items = SqliteKeyValueStore(tmp_path)
    await items.open()
    left = {kept.key for kept in await items.scan("left", NOW, limit=100_000)}
    right = {kept.key for kept in await items.scan("right", NOW, limit=100_000)}
    await items.close()
    assert left == right
    assert set(told) <= left


async def test_a_reader_that_stops_waiting_does_not_have_the_file_closed_under_it(tmp_path: Path) -> None:
    for _ in range(10):
        items = SqliteKeyValueStore(tmp_path)
        await items.open()
        await items.commit([put(f"{number:04d}", b"x" * 400) for number in range(300)], NOW)
        readers = [asyncio.create_task(items.scan("task", NOW, limit=300)) for _ in range(4)]
        await asyncio.sleep(0)
        for reader in readers:
            reader.cancel()
        await items.close()
        assert {type(end) for end in await asyncio.gather(*readers, return_exceptions=True)} == {asyncio.CancelledError}
