"""The snapshot that start-up reads instead of every entry always equals the entries."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from pathlib import Path

import msgspec
import pytest

from support.store_commands import Listener, make_registration, make_source, put, renew, withdraw
from waypost.model.registration import CatalogEntry
from waypost.stores.sqlite.database import FILE_NAME, open_reader
from waypost.stores.sqlite.snapshot import read_snapshot
from waypost.stores.sqlite.store import SqliteStore

AGENTS = 60


async def _opened(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    await store.open(Listener())
    return store


@pytest.fixture
async def stopped(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    store = await _opened(folder)
    for number in range(AGENTS):
        source = make_source("a2a", b'{"name": "%d"}' % number)
        await store.execute(put(make_registration(f"agent-{number:03}", aliases=(f"a-{number}",), sources=(source,))))
    await store.close()
    return folder


def _snapshot(folder: Path) -> list[CatalogEntry] | None:
    connection = open_reader(folder / FILE_NAME)
    try:
        found = read_snapshot(connection)
        return None if found is None else list(found)
    finally:
        connection.close()


async def _entries(store: SqliteStore) -> list[CatalogEntry]:
    return [entry async for page in store.entries() for entry in page]


async def _without_snapshot(folder: Path) -> list[CatalogEntry]:
    other = folder.with_name("other")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(folder, other)
    connection = sqlite3.connect(other / FILE_NAME)
    with connection:
        connection.execute("DROP TABLE snapshot")
    connection.close()
    store = await _opened(other)
    try:
        return await _entries(store)
    finally:
        await store.close()


async def test_entries_of_an_earlier_release_know_their_rows_from_the_first_clean_stop_on(stopped: Path) -> None:
    connection = sqlite3.connect(stopped / FILE_NAME)
    with connection:
        connection.execute("DROP TABLE snapshot")
        for agent_id, row in connection.execute("SELECT id, entry FROM entries").fetchall():
            entry, *rest = msgspec.json.decode(row)
            older = msgspec.json.encode(
                (entry[:-2], *rest)
            )  # without its last members: the number and the stored bytes
            connection.execute(
                "UPDATE entries SET entry = ?, crc = ? WHERE id = ?", (older, zlib.crc32(older), agent_id)
            )
    numbers = dict(connection.execute("SELECT id, number FROM entries").fetchall())
    connection.close()
    store = await _opened(stopped)
    assert {entry.number for entry in await _entries(store)} == {0}
    await store.close()
    found = _snapshot(stopped)
    assert found is not None
    assert {entry.id: entry.number for entry in found} == numbers


async def test_a_clean_stop_leaves_all_entries_in_the_order_of_ids(stopped: Path) -> None:
    found = _snapshot(stopped)
    assert found is not None
    assert [entry.id for entry in found] == [f"agent-{number:03}" for number in range(AGENTS)]
    assert found == await _without_snapshot(stopped)


async def test_changes_after_a_snapshot_are_read_from_the_entries(stopped: Path) -> None:
    store = await _opened(stopped)
    await store.execute(put(make_registration("agent-000a")))
    await store.execute(put(make_registration("agent-007", text="other words")))
    await store.execute(renew("agent-009", now=1_790_000_100.0))
    await store.execute(withdraw("agent-011"))
    found = _snapshot(stopped)  # as after a kill: nothing was taken since
    assert found is not None
    assert found == await _entries(store)
    assert {entry.revision for entry in found if entry.id in ("agent-007", "agent-009")} == {AGENTS + 2, AGENTS + 3}
    assert "agent-011" not in [entry.id for entry in found]
    await store.close()
    assert found == await _without_snapshot(stopped)


async def test_few_changes_do_not_rewrite_the_snapshot_at_shutdown(stopped: Path) -> None:
    before = _taken_at(stopped)
    store = await _opened(stopped)
    await store.execute(put(make_registration("one-more")))
    await store.close()
    assert _taken_at(stopped) == before
    store = await _opened(stopped)
    for number in range(5):
        await store.execute(put(make_registration(f"more-{number}")))
    await store.close()
    assert _taken_at(stopped) == before + 6


def _taken_at(folder: Path) -> int:
    connection = sqlite3.connect(folder / FILE_NAME)
    ((revision,),) = connection.execute("SELECT max(revision) FROM snapshot").fetchall()
    connection.close()
    return int(revision)


@pytest.mark.parametrize(
    "harm",
    [
        "DROP TABLE snapshot",
        "DELETE FROM snapshot",
        "UPDATE snapshot SET data = zeroblob(length(data))",
        "UPDATE snapshot SET data = NULL",
        "UPDATE snapshot SET data = 'text'",
        "UPDATE snapshot SET crc = crc + 1",
        "UPDATE snapshot SET revision = revision - 1",
        "UPDATE snapshot SET revision = revision + 1",
        "UPDATE snapshot SET parts = 2",
        "UPDATE snapshot SET part = 2",
    ],
)
async def test_one_that_is_lost_or_damaged_is_passed_over(stopped: Path, harm: str) -> None:
    expected = _snapshot(stopped)
    connection = sqlite3.connect(stopped / FILE_NAME)
    with connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        try:
            connection.execute(harm)
        except sqlite3.IntegrityError:  # the column refuses it by itself
            connection.execute("DELETE FROM snapshot")
    connection.close()
    assert _snapshot(stopped) is None
    store = await _opened(stopped)
    assert await _entries(store) == expected
    await store.close()


async def test_a_snapshot_of_another_release_is_ignored_and_rewritten_at_shutdown(stopped: Path) -> None:
    expected = _snapshot(stopped)
    connection = sqlite3.connect(stopped / FILE_NAME)
    with connection:
        for part, revision, data in connection.execute("SELECT part, revision, data FROM snapshot").fetchall():
            names, columns = msgspec.msgpack.decode(data)
            older = msgspec.msgpack.encode((names[:-1], columns[:-1]))
            crc = zlib.crc32(older, zlib.crc32(b"%d %d" % (part, revision)))
            connection.execute("UPDATE snapshot SET data = ?, crc = ? WHERE part = ?", (older, crc, part))
    connection.close()
    assert _snapshot(stopped) is None
    await (await _opened(stopped)).close()
    assert _snapshot(stopped) == expected


async def test_one_that_the_log_does_not_reach_back_to_is_passed_over(stopped: Path) -> None:
    store = await _opened(stopped)
    await store.execute(put(make_registration("agent-000a")))
    await store.execute(put(make_registration("agent-000b")))
    await store.prune(events_before=2_000_000_000.0, keep_events=1, now=1_790_000_000.0)
    assert _snapshot(stopped) is None
    assert len(await _entries(store)) == AGENTS + 2
    await store.close()
