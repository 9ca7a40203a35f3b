"""Stores over one PostgreSQL under faults, and seven deliberate mistakes that the checker must find."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.cluster_checker import find_violations
from support.cluster_workload import ClusterWorkload
from support.postgresql import PostgresqlServer, running_postgresql
from waypost.errors import WaypostError
from waypost.stores.postgresql import replica, schema
from waypost.stores.postgresql import store as store_module
from waypost.stores.postgresql.group import GroupTransaction, LoggedGroup
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
    assert len(history.writes) > 200
    assert len(history.reads) > 50
    assert len(history.notes) > 10


# --- Mutants --------------------------------------------------------------------------------------


class AcknowledgesBeforeCommit(PostgresqlStore):
    async def _put(self, group: Sequence[Any], started_at: float) -> asyncpg.Record:
        for request in group:
            if not request.future.done():
                request.future.set_result(self._result_of(request))
        return await super()._put(group, started_at)

    def _result_of(self, request: Any) -> Any:
        return next(result for each, result, _ in self._replies if each is request)

    async def _decide(self, group: Sequence[Any]) -> list[Any]:
        self._replies = await super()._decide(group)
        return self._replies


class AnnouncesHeadEarly(PostgresqlStore):
    async def _reach(self, head: int) -> None:
        return


class NotesAreNotInTheFeed(GroupTransaction):
    def apply(self, group: LoggedGroup, base: int) -> None:
        super().apply(group, base)
        self.noted.clear()


_SEQUENCE = (
    "CREATE SEQUENCE waypost.positions",
    "CREATE SEQUENCE waypost.revisions",
)


async def _change_function(url: str, *changes: tuple[str, str], before: Sequence[str] = ()) -> None:
    """Replace parts of `put_group` in this database."""
    text = schema._PUT_GROUP.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
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


async def _run(url: str, folder: Path, kind: type[PostgresqlStore] = PostgresqlStore) -> list[str]:
    workload = ClusterWorkload(url, folder, kind=kind)
    await workload.start()
    await workload.run(SECONDS, [workload.terminate_backends])
    with suppress(WaypostError):  # a mistake may have ended the nodes
        await workload.run_chore_of_paused_node()
    return find_violations(await workload.finish())


async def test_the_checker_finds_a_missing_check_of_the_read_set(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.create_database()
    await _change_function(url, ("IF conflicts IS NOT NULL THEN", "IF false THEN"))
    assert any("lost an update" in each for each in await _run(url, tmp_path))


async def test_the_checker_finds_a_sequence_instead_of_the_lock(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.create_database()
    await _change_function(
        url,
        (f"    PERFORM pg_advisory_xact_lock({schema.LOCK});\n", ""),
        ("    base := head.last_revision;\n", "    base := nextval('waypost.revisions') - 1;\n"),
        (
            "position_ := head.position + 1;",
            "position_ := nextval('waypost.positions'); PERFORM pg_sleep(0.01 * random());",
        ),
        before=_SEQUENCE,
    )
    assert await _run(url, tmp_path)


async def test_the_checker_finds_an_acknowledgement_before_the_commit(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    assert any(
        "not in the log" in each
        for each in await _run(postgresql.create_database(), tmp_path, AcknowledgesBeforeCommit)
    )


async def test_the_checker_finds_a_feed_that_skips_a_gap(
    postgresql: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, count = replica.fetch_log, 0

    async def fetch_some(connection: asyncpg.Connection, after: int, limit: int) -> list[LogRow]:
        nonlocal count
        found = await fetch(connection, after, limit)
        count += bool(found)
        return found[1:] if len(found) > 1 and count % 5 == 0 else found

    monkeypatch.setattr(store_module, "fetch_log", fetch_some)
    assert await _run(postgresql.create_database(), tmp_path)


async def test_the_checker_finds_a_head_that_is_announced_early(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    violations = await _run(postgresql.create_database(), tmp_path, AnnouncesHeadEarly)
    assert any("was acknowledged before" in each for each in violations)


async def test_the_checker_finds_notes_that_are_not_in_the_feed(
    postgresql: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "GroupTransaction", NotesAreNotInTheFeed)
    violations = await _run(postgresql.create_database(), tmp_path)
    assert any("the note" in each for each in violations)


async def test_the_checker_finds_chores_without_fencing(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.create_database()
    await _change_function(url, ("IF p_chore IS NOT NULL AND NOT EXISTS", "IF false AND NOT EXISTS"))
    assert any("a chore of epoch" in each for each in await _run(url, tmp_path))
