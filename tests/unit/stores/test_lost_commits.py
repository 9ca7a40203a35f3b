"""Damage in the middle of a write-ahead log, which SQLite ignores together with every commit after it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from support.store_commands import Listener, everything, make_registration, put
from waypost.errors import DamagedStore
from waypost.stores.sqlite.database import FILE_NAME
from waypost.stores.sqlite.integrity import check_database, find_lost_commits
from waypost.stores.sqlite.store import SqliteStore

LOG = f"{FILE_NAME}-wal"
FRAME = 24 + 4096


async def _crash(folder: Path) -> None:
    store = SqliteStore(folder / "live")
    await store.open(Listener())
    for number in range(30):
        await store.execute(put(make_registration(f"agent-{number}")))
    assert find_lost_commits(folder / "live" / FILE_NAME) is None, "of a store that is in use"
    shutil.copytree(folder / "live", folder / "crashed")
    await store.close()


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A store whose commits are still in its log."""
    asyncio.run(_crash(tmp_path))
    (tmp_path / "crashed" / f"{FILE_NAME}-shm").unlink()
    return tmp_path / "crashed"


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


async def test_an_intact_log_is_read(crashed: Path) -> None:
    assert find_lost_commits(crashed / FILE_NAME) is None
    store = SqliteStore(crashed)
    await store.open(Listener())
    assert len(await everything(store)) == 30
    await store.close()
    assert find_lost_commits(crashed / FILE_NAME) is None


@pytest.mark.parametrize("offset", [3, 17, 30, 32 + 9 * FRAME + 4, 32 + 9 * FRAME + 9, 32 + 9 * FRAME + 1000])
async def test_damage_before_other_commits_ends_the_start(crashed: Path, offset: int) -> None:
    """In the header of the log, in that of a frame, and in a page."""
    _flip(crashed / LOG, offset)
    (problem, *_) = check_database(crashed / FILE_NAME)
    assert LOG in problem.message
    with pytest.raises(DamagedStore, match=LOG) as refused:
        await SqliteStore(crashed).open(Listener())
    assert "waypost restore" in (refused.value.hint or "")


@pytest.mark.parametrize("lost_bytes", [1, 100, FRAME - 1])
async def test_a_torn_end_is_what_a_crash_leaves(crashed: Path, lost_bytes: int) -> None:
    content = (crashed / LOG).read_bytes()
    (crashed / LOG).write_bytes(content[:-lost_bytes])
    assert find_lost_commits(crashed / FILE_NAME) is None
    store = SqliteStore(crashed)
    await store.open(Listener())
    assert len(await everything(store)) >= 29
    await store.close()


async def test_frames_from_before_a_restart_of_the_log_are_no_damage(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open(Listener())
    for number in range(30):
        await store.execute(put(make_registration(f"agent-{number}")))
    assert store._tables is not None
    store._tables.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    await store.execute(put(make_registration("after the checkpoint")))
    assert find_lost_commits(tmp_path / FILE_NAME) is None
    await store.close()
