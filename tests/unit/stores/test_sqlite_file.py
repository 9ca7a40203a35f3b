"""The SQLite file: locking, migrations, and pragmas."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.store_commands import Listener, everything, make_registration, put
from waypost.errors import ConfigurationError, StoreUnavailable
from waypost.stores.sqlite.database import FILE_NAME, MIGRATIONS, migrate, open_writer
from waypost.stores.sqlite.store import SqliteStore


def _nothing(_: str) -> None:
    pass


class Stop(BaseException):
    """A crash that a test survives."""


async def _filled(folder: Path, count: int = 1) -> None:
    store = SqliteStore(folder)
    await store.open(Listener())
    for n in range(count):
        await store.execute(put(make_registration(f"agent-{n}")))
    await store.close()


async def test_a_second_store_on_the_same_folder_is_refused_with_the_holder(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path), SqliteStore(tmp_path)
    await first.open(Listener())
    with pytest.raises(ConfigurationError, match=r"in use by another process \(pid \d+\)") as refusal:
        await second.open(Listener())
    assert refusal.value.hint
    await first.close()
    await second.open(Listener())
    await second.close()


async def test_the_lock_vanishes_with_a_killed_process(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from waypost.stores.sqlite.store import FolderLock;"
        "FolderLock(Path(sys.argv[1])).take(); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    store = SqliteStore(tmp_path)
    with pytest.raises(ConfigurationError):
        await store.open(Listener())
    holder.kill()
    holder.wait(60)
    holder.stdout.close()
    await store.open(Listener())
    await store.close()


async def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    await _filled(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigurationError, match="newer release"):
        await SqliteStore(tmp_path).open(Listener())


async def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(ConfigurationError, match="another program"):
        await SqliteStore(tmp_path).open(Listener())


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await SqliteStore(tmp_path).open(Listener())


async def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError) as refusal:
        await SqliteStore(tmp_path / "file").open(Listener())
    assert refusal.value.path == "data"


async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    await _filled(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / FILE_NAME).stat().st_mode & 0o777 == 0o600


async def test_the_file_is_durable_by_its_pragmas(tmp_path: Path) -> None:
    connection = open_writer(tmp_path / FILE_NAME)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


async def test_a_clean_stop_leaves_one_file_without_a_log(tmp_path: Path) -> None:
    await _filled(tmp_path)
    assert not (tmp_path / f"{FILE_NAME}-wal").exists()


async def test_a_store_that_was_only_read_stays_clean(tmp_path: Path) -> None:
    await _filled(tmp_path)
    store = SqliteStore(tmp_path)
    await store.open(Listener())
    assert len(await everything(store)) == 1
    noted = sqlite3.connect(tmp_path / FILE_NAME)
    assert noted.execute("SELECT value FROM meta WHERE name = 'clean'").fetchone() == (1,)
    await store.execute(put(make_registration("another")))
    assert noted.execute("SELECT value FROM meta WHERE name = 'clean'").fetchone() == (0,)
    noted.close()
    await store.close()


# --- Migrations -----------------------------------------------------------------------------------

_GROWN = (*MIGRATIONS, ("ALTER TABLE meta ADD COLUMN unit TEXT", "UPDATE meta SET unit = 'agents'"))


async def test_a_migration_keeps_existing_rows(tmp_path: Path) -> None:
    await _filled(tmp_path)
    connection = open_writer(tmp_path / FILE_NAME)
    migrate(connection, _nothing, _GROWN)
    migrate(connection, _nothing, _GROWN)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(_GROWN),)
    assert connection.execute("SELECT unit FROM meta WHERE name = 'agents'").fetchone() == ("agents",)
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    connection.close()


@pytest.mark.parametrize("statements", [1, 2])
async def test_a_crash_within_a_step_leaves_the_version_before_it(tmp_path: Path, statements: int) -> None:
    await _filled(tmp_path)
    reached = 0

    def crash(point: str) -> None:
        nonlocal reached
        reached += point == "during_migration"
        if reached == statements:
            raise Stop

    connection = open_writer(tmp_path / FILE_NAME)
    with pytest.raises(Stop):
        migrate(connection, crash, _GROWN)
    connection.close()
    connection = open_writer(tmp_path / FILE_NAME)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert [row[1] for row in connection.execute("PRAGMA table_info(meta)")] == ["name", "value"]
    migrate(connection, _nothing, _GROWN)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(_GROWN),)
    connection.close()


async def test_a_file_of_the_first_version_is_brought_forward(tmp_path: Path) -> None:
    await _filled(tmp_path)
    connection = open_writer(tmp_path / FILE_NAME)
    for table in ("notes", "audit", "audit_tiles", "history"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = SqliteStore(tmp_path)
    await store.open(Listener())
    assert len(await everything(store)) == 1
    assert await store.notes("") == []
    await store.execute(put(make_registration("another")))
    await store.close()
