"""Stores over one PostgreSQL under faults, and seven deliberate mistakes that the checker must find."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.cluster_checker import find_violations
from support.cluster_workload import ClusterWorkload
from support.postgresql import (
    PGBOUNCER,
    PostgresqlServer,
    running_pgbouncer,
    running_postgresql,
    running_replication,
)
from waypost.errors import WaypostError
from waypost.stores.postgresql import replica, schema
from waypost.stores.postgresql import store as store_module
from waypost.stores.postgresql.group import DecidedGroup, GroupTransaction, LoggedGroup
from waypost.stores.postgresql.replica import LogRow
from waypost.stores.postgresql.store import PostgresqlStore

SECONDS = 2.0


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


async def test_no_guarantee_is_broken_by_restarts_of_the_database(tmp_path: Path) -> None:
    with running_postgresql() as server:
        workload = ClusterWorkload(server.create_database(), tmp_path)
        await workload.start()

        async def restart() -> None:
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)

        await workload.run(10.0, [workload.terminate_backends, restart, workload.terminate_backends, restart])
        await workload.run_chore_of_paused_node()
        history = await workload.finish()
    assert find_violations(history) == []
    assert len(history.writes) > 50
    assert len(history.reads) > 10
    assert len(history.notes) > 2


async def test_a_pool_in_transaction_mode_keeps_the_guarantees(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    if PGBOUNCER is None and "CI" not in os.environ:
        pytest.skip("pgbouncer is not installed")
    url = postgresql.create_database()
    with running_pgbouncer(postgresql, tmp_path) as port:
        workload = ClusterWorkload(url.replace(f":{postgresql.port}/", f":{port}/"), tmp_path)
        await workload.start()
        await workload.run(SECONDS)
        await workload.run_chore_of_paused_node()
        assert find_violations(await workload.finish()) == []
    assert workload.history.writes


async def test_a_promoted_standby_has_every_acknowledged_write(tmp_path: Path) -> None:
    with running_replication() as (primary, standby):
        url = primary.create_database()
        both = url.replace(f"127.0.0.1:{primary.port}", f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}")
        workload = ClusterWorkload(both, tmp_path)
        await workload.start()

        async def fail_over() -> None:
            await asyncio.to_thread(primary.stop)
            await asyncio.to_thread(standby.promote)
            workload.url = standby.url(url.rpartition("/")[2])

        await workload.run(8.0, [fail_over])
        history = await workload.finish()
    assert find_violations(history) == []
    assert len(history.writes) > 20


# --- Mutants --------------------------------------------------------------------------------------


class AcknowledgesBeforeCommit(PostgresqlStore):
    async def _put(self, group: Sequence[Any], started_at: float) -> asyncpg.Record:
        for request in group:
            if not request.future.done():
                request.future.set_result(self._result_of(request))
        return await super()._put(group, started_at)

    def _result_of(self, request: Any) -> Any:
        return next(result for each, result, _ in self._replies if each is request)

    async def _decide(self, group: list[Any]) -> list[Any]:
        self._replies = await super()._decide(group)
        return self._replies


class AnnouncesHeadEarly(PostgresqlStore):
    async def _reach(self, head: int) -> None:
        return


class NotesAreNotInTheFeed(GroupTransaction):
    def apply(self, group: LoggedGroup, base: int, decided: DecidedGroup | None = None) -> None:
        super().apply(group, base, decided)
        self.noted.clear()


_SEQUENCE = (
    "CREATE SEQUENCE waypost.positions",
    "CREATE SEQUENCE waypost.revisions",
)


async def _change_function(url: str, *changes: tuple[str, str], before: Sequence[str] = ()) -> None:
    """Replace parts of `store_group` in this database."""
    text = schema._STORE_GROUP.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    connection = await asyncpg.connect(url)
    try:
        await schema.migrate(connection)
        for statement in (*before, text):
            await connection.execute(statement)
    finally:
        await connection.close()


ROUNDS = 4  # a mistake need not show in one: two nodes must meet

MakeDatabase = Callable[[], Awaitable[str]]


async def _find_mistake(
    make_database: MakeDatabase, folder: Path, words: str, kind: type[PostgresqlStore] = PostgresqlStore
) -> bool:
    """Whether the checker says these words, or any, of a cluster with a mistake."""
    for number in range(ROUNDS):
        (folder / str(number)).mkdir()
        workload = ClusterWorkload(await make_database(), folder / str(number), kind=kind)
        await workload.start()
        await workload.run(SECONDS, [workload.terminate_backends])
        with suppress(WaypostError):  # a mistake may have ended the nodes
            await workload.run_chore_of_paused_node()
        if any(words in each for each in find_violations(await workload.finish())):
            return True
    return False


@pytest.fixture
def make_database(postgresql: PostgresqlServer) -> MakeDatabase:
    async def make() -> str:
        return await asyncio.to_thread(postgresql.create_database)

    return make


def _with_change(make_database: MakeDatabase, *changes: tuple[str, str], before: Sequence[str] = ()) -> MakeDatabase:
    async def make() -> str:
        url = await make_database()
        await _change_function(url, *changes, before=before)
        return url

    return make


async def test_the_checker_finds_a_missing_check_of_the_read_set(make_database: MakeDatabase, tmp_path: Path) -> None:
    changed = _with_change(make_database, ("IF conflicts IS NOT NULL THEN", "IF false THEN"))
    assert await _find_mistake(changed, tmp_path, "lost an update")


async def test_the_checker_finds_a_sequence_instead_of_the_lock(make_database: MakeDatabase, tmp_path: Path) -> None:
    pause = "PERFORM pg_sleep(0.01 * random());"  # between taking a number and the commit
    changed = _with_change(
        make_database,
        (f"    PERFORM pg_advisory_xact_lock({schema.LOCK});\n", ""),
        ("    base := head.last_revision;\n", "    base := nextval('waypost.revisions') - 1;\n"),
        ("position_ := head.position + 1;", f"position_ := nextval('waypost.positions'); {pause}"),
        before=_SEQUENCE,
    )
    assert await _find_mistake(changed, tmp_path, "")


async def test_the_checker_finds_an_acknowledgement_before_the_commit(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    assert await _find_mistake(make_database, tmp_path, "not in the log", AcknowledgesBeforeCommit)


async def test_the_checker_finds_a_feed_that_skips_a_gap(
    make_database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, count = replica.fetch_log, 0

    async def fetch_some(connection: asyncpg.Connection, after: int, checksum: bytes, limit: int) -> list[LogRow]:
        nonlocal count
        found = await fetch(connection, after, checksum, limit)
        count += len(found) > 1
        return found[1:] if len(found) > 1 and count % 3 == 0 else found

    monkeypatch.setattr(store_module, "fetch_log", fetch_some)
    assert await _find_mistake(make_database, tmp_path, "")


async def test_the_checker_finds_a_head_that_is_announced_early(make_database: MakeDatabase, tmp_path: Path) -> None:
    assert await _find_mistake(make_database, tmp_path, "was acknowledged before", AnnouncesHeadEarly)


async def test_the_checker_finds_notes_that_are_not_in_the_feed(
    make_database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "GroupTransaction", NotesAreNotInTheFeed)
    assert await _find_mistake(make_database, tmp_path, "the note")


async def test_the_checker_finds_chores_without_fencing(make_database: MakeDatabase, tmp_path: Path) -> None:
    changed = _with_change(make_database, ("IF p_chore IS NOT NULL AND NOT EXISTS", "IF false AND NOT EXISTS"))
    assert await _find_mistake(changed, tmp_path, "a chore of epoch")
