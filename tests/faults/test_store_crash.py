"""The store is killed at a random moment (F01) and at each failpoint (F02); acknowledged writes survive."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from support.crashing_writer import AGENTS, WRITERS, agent_id, command_for
from support.store_commands import Listener, everything, held_for
from waypost.model.events import read_leaf
from waypost.model.record import record_bytes
from waypost.registry.catalog.entries import entry_of
from waypost.registry.ports import AuditQuery
from waypost.stores.sqlite.store import SqliteStore
from waypost.trust.transparency_log import leaf_hash

TESTS = Path(__file__).parents[1]
KILLS, KILLS_LONG = 12, 60
SECONDS = 30
POINTS = (
    ("before_begin", 9),
    ("after_row", 31),
    ("after_event", 31),
    ("after_audit", 7),
    ("before_commit", 7),
    ("after_commit", 7),
    ("before_publish", 7),
    ("before_reply", 7),
    ("during_prune", 3),
    ("during_checkpoint", 1),
    ("during_migration", 1),
    ("during_migration", 5),
)


@dataclass
class History:
    """The output of the writers: the last acknowledged step of each agent, and the unacknowledged step of each writer."""

    answered: dict[str, int | None] = field(default_factory=dict)  # None: withdrawn
    under_way: dict[str, tuple[str, int]] = field(default_factory=dict)  # agent → operation, step
    revision: int = 0

    def hear(self, lines: Iterator[str]) -> None:
        for line in lines:
            match line.split():
                case ["begin", _, agent, operation, step]:
                    self.under_way[agent] = (operation, int(step))
                case ["done", _, agent, operation, step, revision]:
                    self.answered[agent] = int(step) if operation == "put" else None
                    del self.under_way[agent]
                    self.revision = max(self.revision, int(revision))

    def allows(self, agent: str, step: int | None) -> bool:
        allowed = {self.answered.get(agent)}
        if agent in self.under_way:
            operation, planned = self.under_way[agent]
            allowed.add(planned if operation == "put" else None)
        return step in allowed


def _start(data: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "support.crashing_writer", str(data), *map(str, arguments)],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
    )


def _kill_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Kill when it has said so much. Counting lines instead of seconds makes every machine kill in the midst of work."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if len(said) == lines:
            process.kill()
    process.wait(SECONDS)
    process.stdout.close()
    return [line for line in said if line.endswith("\n")]


async def _check(data: Path, history: History) -> None:
    """Nothing answered is lost, nothing is half there, and rows, log and names tell the same."""
    store = SqliteStore(data)
    await store.open(Listener())
    found = await everything(store)
    steps = {agent: int(each.record.description.removeprefix("step ")) for agent, each in found.items()}
    for agent in (agent_id(writer, number) for writer in range(WRITERS) for number in range(AGENTS)):
        assert history.allows(agent, steps.get(agent)), f"{agent} is at {steps.get(agent)}: {history}"
        assert list((await held_for(store, f"alias of {agent}")).registrations) == [agent] * (agent in found)
    entries = [entry async for page in store.entries() for entry in page]
    assert {entry.id: msgspec.structs.replace(entry, number=0) for entry in entries} == {
        agent: entry_of(registration) for agent, registration in found.items()
    }
    await _check_log(store, found, history)
    assert dict(await store.notes("step:")) == {f"step:{agent}": str(step).encode() for agent, step in steps.items()}
    await _check_trail(store, steps)
    await store.close()
    history.answered = {agent: steps.get(agent) for agent in history.answered | steps}


async def _check_log(store: SqliteStore, found: dict[str, object], history: History) -> None:
    events = await store.events(0, 1_000_000)
    revision = await store.revision()
    assert [event.revision for event in events] == list(range(await store.oldest_event(), revision + 1))
    assert revision >= history.revision
    for event in {event.id: event for event in events}.values():
        registration = (await store.fetch([event.id])).get(event.id)
        if registration is None:
            assert event.type == "withdrawn"
            assert await store.tombstone(event.id) is not None
        else:
            assert (event.revision, event.etag) == (registration.revision, registration.etag)
            assert event.record == record_bytes(registration.record)


async def _check_trail(store: SqliteStore, steps: dict[str, int]) -> None:
    """One entry for each change, the last one of each agent is its state, and the tree fits the leaves."""
    size = await store.audit_size()
    assert size == await store.revision()
    last: dict[str, str] = {}
    leaves: list[bytes] = []
    page = await store.audit(AuditQuery(limit=1000))
    while page.leaves:
        leaves += page.leaves
        page = await store.audit(AuditQuery(after=page.oldest - 1 + len(leaves), limit=1000))
    for record in map(read_leaf, leaves):
        last[record.object] = record.detail
    assert {agent: int(detail) for agent, detail in last.items() if detail != "None"}.items() <= steps.items()
    assert all(agent not in steps for agent, detail in last.items() if detail == "None")
    numbers = [read_leaf(leaf).number for leaf in leaves]
    assert numbers == list(range(size - len(leaves) + 1, size + 1))
    spans = [(number - 1, number) for number in numbers]
    assert await store.audit_hashes(spans) == list(map(leaf_hash, leaves))
    assert len(await store.audit_hashes([(0, size)])) == 1


async def test_a_killed_store_loses_nothing_that_it_answered(tmp_path: Path, is_long: bool) -> None:
    kills = KILLS_LONG if is_long else KILLS
    choice = random.Random(7)
    history = History()
    for seed in range(1, kills + 1):
        process = _start(tmp_path, seed)
        history.hear(iter(_kill_after(process, choice.randrange(20, 600))))
        assert process.returncode == -9
        await _check(tmp_path, history)
        history.under_way.clear()
    assert history.revision > 20 * kills


@pytest.mark.parametrize(("point", "times"), POINTS)
async def test_a_crash_at_any_point_loses_no_acknowledged_write(tmp_path: Path, point: str, times: int) -> None:
    history = History()
    process = _start(tmp_path, 1, point, times)
    history.hear(iter(_kill_after(process, lines=100_000)))
    assert process.returncode == 137, "the point was not reached"
    await _check(tmp_path, history)
    await _check_repetition(tmp_path, history)


async def _check_repetition(data: Path, history: History) -> None:
    """A client that repeats its unacknowledged request with the same key makes one change in total."""
    store = SqliteStore(data)
    await store.open(Listener())
    for agent, (operation, step) in history.under_way.items():
        first = await store.execute(command_for(agent, step, operation))
        again = await store.execute(command_for(agent, step, operation))
        if operation == "put":
            assert again.replayed
            assert again.revision == first.revision
            text = f'"step {step}"'.encode()
            told = [event for event in await store.events(0, 1_000_000) if event.id == agent]
            assert sum(text in (event.record or b"") for event in told) == 1
    await store.close()
