"""The audit trail in SQLite: a rolled back entry is not in the tree."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from support.store_commands import NOW, Listener
from waypost.errors import StoreUnavailable
from waypost.model.events import read_leaf
from waypost.registry.ports import AuditEntry, AuditQuery, Command, Decision
from waypost.stores.sqlite.store import SqliteStore
from waypost.trust.transparency_log import leaf_hash, merkle_root


class Trouble:
    """A disk that fails once, at a failpoint, when armed."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.is_due = False

    def __call__(self, point: str) -> None:
        if point == self.point and self.is_due:
            self.is_due = False
            raise sqlite3.OperationalError("for once")


def _command(name: str) -> Command:
    entry = AuditEntry(at=NOW, action="allow", subject="admin", object=name)
    return Command(keys=(), decide=lambda held: Decision(outcome="noted", audit=(entry,), notes={name: b"1"}))


@pytest.mark.parametrize("point", ["after_audit", "before_commit"])
@pytest.mark.parametrize("before", [0, 255, 300])
async def test_entries_of_a_lost_transaction_leave_no_trace(tmp_path: Path, point: str, before: int) -> None:
    trouble = Trouble(point)
    store = SqliteStore(tmp_path, failpoint=trouble)
    told: list[str] = []
    await store.open(Listener(), told.extend)
    await asyncio.gather(*(store.execute(_command(f"first-{n}")) for n in range(before)))
    trouble.is_due = True
    lost = await asyncio.gather(*(store.execute(_command(f"lost-{n}")) for n in range(3)), return_exceptions=True)
    assert [type(result) for result in lost] == [StoreUnavailable] * 3
    assert await store.audit_size() == before
    await asyncio.gather(*(store.execute(_command(f"later-{n}")) for n in range(5)))
    leaves = (await store.audit(AuditQuery(limit=1000))).leaves
    assert [read_leaf(leaf).number for leaf in leaves] == list(range(1, before + 6))
    assert not any(b"lost" in leaf for leaf in leaves)
    assert not any(name.startswith("lost") for name in (*told, *(name for name, _ in await store.notes(""))))
    assert await store.audit_hashes([(0, len(leaves))]) == [merkle_root(list(map(leaf_hash, leaves)))]
    await store.close()
