"""A command that fails in the middle leaves no rows behind, and affects no other command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.store_commands import Listener, everything, make_registration, put
from waypost.stores.sqlite.store import SqliteStore


class Mishap(Exception):
    """What no command should meet."""


@pytest.mark.parametrize("point", ["after_row", "after_event"])
async def test_a_new_agent_that_fails_between_its_rows_leaves_none_of_them(tmp_path: Path, point: str) -> None:
    passed = 0

    def third_fails(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == 3:
            raise Mishap

    store, listener = SqliteStore(tmp_path, failpoint=third_fails), Listener()
    await store.open(listener)
    names = [f"agent-{number}" for number in range(5)]
    results = await asyncio.gather(
        *(store.execute(put(make_registration(name))) for name in names), return_exceptions=True
    )
    assert [type(result) is Mishap for result in results] == [False, False, True, False, False]
    assert set(await everything(store)) == {*names} - {"agent-2"}
    assert listener.revisions == [1, 2, 3, 4]
    assert (await store.execute(put(make_registration("agent-2")))).revision == 5
    assert [event.id for event in await store.events(0, 10)] == ["agent-0", "agent-1", "agent-3", "agent-4", "agent-2"]
    await store.close()
    again = SqliteStore(tmp_path)
    await again.open(Listener())
    assert set(await everything(again)) == {*names}
    await again.close()
