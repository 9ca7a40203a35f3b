"""A flipped bit or a truncated file (F17): a clear error or the right data, never wrong data."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.store_commands import Listener, everything, make_registration, make_source, put, renew, withdraw
from waypost.errors import ConfigurationError, StoreUnavailable
from waypost.model.events import Event
from waypost.model.registration import CatalogEntry, Registration
from waypost.registry.ports import AuditEntry, AuditQuery, Command, Decision, Tombstone
from waypost.stores.sqlite.database import FILE_NAME
from waypost.stores.sqlite.store import SqliteStore

FLIPS = 50
CUTS = 12
AGENTS = 120
ENTRIES = 600


@dataclass(frozen=True)
class Content:
    """All that can be read from a store."""

    entries: list[CatalogEntry]
    registrations: dict[str, Registration]
    events: list[Event]
    tombstone: Tombstone | None
    secret: bytes
    notes: list[tuple[str, bytes]]
    leaves: list[bytes]  # of the audit trail
    roots: list[bytes]


async def _read(folder: Path, *, check: bool) -> Content:
    """Like a service at its start: load the entries, then read on demand."""
    store = SqliteStore(folder, check=check)
    await store.open(Listener())
    try:
        entries = [entry async for page in store.entries() for entry in page]
        registrations = await everything(store)
        for agent_id in [entry.id for entry in entries]:
            assert await store.fetch([agent_id]) == {agent_id: registrations[agent_id]}
        return Content(
            entries=entries,
            registrations=registrations,
            events=list(await store.events(0, 10_000)),
            tombstone=await store.tombstone("gone"),
            secret=await store.secret("cursor", lambda: b"made anew"),
            notes=await store.notes(""),
            leaves=(await store.audit(AuditQuery(limit=1000))).leaves,
            roots=await store.audit_hashes([(0, ENTRIES), (0, 300), (256, 512), (5, 6)]),
        )
    finally:
        await store.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """A store of every kind of row, some of them longer than a page, stopped cleanly."""
    folder = tmp_path_factory.mktemp("intact")
    return folder, asyncio.run(_made(folder))


async def _made(folder: Path) -> Content:
    store = SqliteStore(folder)
    await store.open(Listener())
    for n in range(AGENTS):
        source = make_source("a2a", b'{"name": "%d"}' % n + b" " * (n * 90))
        text = "Translates invoices. " * (n % 40)
        await store.execute(put(make_registration(f"agent-{n}", text=text, aliases=(f"a-{n}",), sources=(source,))))
    await store.execute(renew("agent-7", now=1_790_000_100.0))
    await store.execute(put(make_registration("gone")))
    for n in range(ENTRIES):
        entry = AuditEntry(at=1_790_000_000.0, action="allow", subject="admin", object=f"rule-{n}")
        decision = Decision(outcome="noted", notes={f"allow:rule-{n % 50}": b"{}"}, audit=(entry,))
        await store.execute(Command(keys=(), decide=lambda held, decision=decision: decision))
    await store.execute(withdraw("gone"))
    await store.secret("cursor", lambda: b"a secret of 16 b")
    await store.close()
    return await _read(folder, check=True)


@pytest.fixture
def intact(made: tuple[Path, Content], tmp_path: Path) -> tuple[Path, Content]:
    """A copy of it."""
    folder, content = made
    return Path(shutil.copytree(folder, tmp_path / "intact")), content


@pytest.mark.parametrize(("clean", "check"), [(True, False), (False, False), (True, True)])
async def test_a_flipped_bit_is_an_error_or_does_no_harm(
    intact: tuple[Path, Content], tmp_path: Path, clean: bool, check: bool
) -> None:
    folder, content = intact
    if not clean:
        _make_unclean(folder)
    data = (folder / FILE_NAME).read_bytes()
    choice = random.Random(f"{clean} {check}")
    noticed = 0
    for n in range(FLIPS):
        damaged = bytearray(data)
        offset = choice.randrange(100 if n < 5 else len(data)) if n else 18
        damaged[offset] ^= 1 << choice.randrange(8)
        noticed += await _refused(tmp_path / "damaged", bytes(damaged), content, check=check, what=f"byte {offset}")
    assert noticed > FLIPS / 4


def _make_unclean(folder: Path) -> None:
    """As after a crash."""
    connection = sqlite3.connect(folder / FILE_NAME)
    with connection:
        connection.execute("UPDATE meta SET value = 0 WHERE name = 'clean'")
    connection.close()


async def test_a_cut_file_is_an_error_or_does_no_harm(intact: tuple[Path, Content], tmp_path: Path) -> None:
    folder, content = intact
    data = (folder / FILE_NAME).read_bytes()
    choice = random.Random(3)
    for length in (1, 50, 4096, len(data) - 1, len(data) - 4096, *(choice.randrange(len(data)) for _ in range(CUTS))):
        assert await _refused(tmp_path / "cut", data[:length], content, check=False, what=f"length {length}")


async def _refused(folder: Path, data: bytes, content: Content, *, check: bool, what: str) -> bool:
    """Whether the damage was noticed. If it was not, everything must be as it was."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(data)
    try:
        found = await _read(folder, check=check)
    except (StoreUnavailable, ConfigurationError):
        return True
    assert found == content, f"{what}: wrong data was served"
    return False


async def test_damage_in_one_record_leaves_the_others_readable(intact: tuple[Path, Content], tmp_path: Path) -> None:
    folder, content = intact
    data = (folder / FILE_NAME).read_bytes()
    assert b'{"name": "3"}' in data
    shutil.copytree(folder, tmp_path / "one")
    (tmp_path / "one" / FILE_NAME).write_bytes(data.replace(b'{"name": "3"}', b'{"name": "4"}'))
    store = SqliteStore(tmp_path / "one")
    await store.open(Listener())
    with pytest.raises(StoreUnavailable, match="the a2a document of 'agent-3' does not match its digest"):
        await store.fetch(["agent-3"])
    assert await store.fetch(["agent-4"]) == {"agent-4": content.registrations["agent-4"]}
    assert (await store.fetch(["agent-3"], sources=False))["agent-3"].id == "agent-3"
    await store.close()


async def test_a_damaged_entry_of_the_audit_trail_is_named(intact: tuple[Path, Content], tmp_path: Path) -> None:
    folder, content = intact
    data = (folder / FILE_NAME).read_bytes()
    shutil.copytree(folder, tmp_path / "one")
    (tmp_path / "one" / FILE_NAME).write_bytes(data.replace(b'"object":"rule-99"', b'"object":"rule-98"'))
    store = SqliteStore(tmp_path / "one")
    await store.open(Listener())
    with pytest.raises(StoreUnavailable, match="the audit entry 100"):
        await store.audit(AuditQuery(limit=1000))
    assert (await store.audit(AuditQuery(after=100, limit=1000))).leaves == content.leaves[100:]
    await store.close()


async def test_an_earlier_version_is_damaged_or_right(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open(Listener())
    for text in ("first", "second", "third"):
        await store.execute(put(make_registration("x", text=text)))
    await store.close()
    data = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(data.replace(b'"description":"first"', b'"description":"fivst"'))
    store = SqliteStore(tmp_path)
    await store.open(Listener())
    with pytest.raises(StoreUnavailable, match="the version 1 of 'x'"):
        await store.history("x")
    assert len(await store.history("x", 1)) == 1
    await store.close()
