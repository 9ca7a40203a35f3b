"""Several stores over one database in this process: writers on hot ids, strong reads on other nodes, faults; recorded for the
checker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import asyncpg
import msgspec

from support.cluster_checker import (
    AcknowledgedWrite,
    ChoreRun,
    ClusterHistory,
    LoggedChange,
    NoteSighting,
    StrongRead,
)
from support.store_commands import NOW, make_registration
from waypost.errors import WaypostError
from waypost.model.events import Event
from waypost.registry.ports import Command, CommittedChange, Decision, RegistrationChange, StoreState
from waypost.stores.postgresql.cluster import ClusterCipher
from waypost.stores.postgresql.group import decode_group, read_event
from waypost.stores.postgresql.store import PostgresqlStore

AGENTS = 50
WRITERS = 24
READERS = 6

Fault = Callable[[], Awaitable[None]]


def counter_of(text: str) -> int:
    return int(text.removeprefix("Counted ").rstrip("."))


def increment(agent: str) -> Command:
    """Read the counter of an agent and write the next number: a decision on an old state would lose an update."""

    def decide(held: StoreState) -> Decision:
        before = held.registrations.get(agent)
        count = counter_of(before.record.description) + 1 if before is not None else 1
        change = RegistrationChange(
            type="registered" if before is None else "updated",
            at=NOW,
            registration=make_registration(agent, text=f"Counted {count}."),
            before=None if before is None else before.scopes,
        )
        return Decision(outcome="counted", change=change)

    return Command(keys=(agent,), decide=decide)


class StoreNode:
    """One store, with the revisions that its listener got."""

    def __init__(self, name: str, store: PostgresqlStore, history: ClusterHistory) -> None:
        self.name = name
        self.store = store
        self.revisions: list[int] = []
        self.noted: set[str] = set()
        history.watched[name] = self.revisions

    async def open(self) -> None:
        await self.store.open(self._listen, self.noted.update)

    def _listen(self, changes: Sequence[CommittedChange]) -> None:
        self.revisions += [change.event.revision for change in changes]


class ClusterWorkload:
    def __init__(
        self, url: str, folder: Path, *, kind: type[PostgresqlStore] = PostgresqlStore, nodes: int = 3
    ) -> None:
        self.url = url
        self.history = ClusterHistory()
        self._folder = folder
        self._kind = kind
        self._count = nodes
        self._random = random.Random(7)
        self.nodes: list[StoreNode] = []

    async def start(self) -> None:
        for number in range(self._count):
            await self.add_node(f"node-{number}")

    async def add_node(self, name: str) -> StoreNode:
        cipher = ClusterCipher(self._folder / "cluster.key")
        fail = lambda: self.history.failures.append(f"{name} left the history")  # noqa: E731
        node = StoreNode(name, self._kind(self.url, self._folder / name, cipher, on_history_change=fail), self.history)
        await node.open()
        self.nodes.append(node)
        return node

    async def run(self, seconds: float, faults: Sequence[Fault] = ()) -> None:
        ends_at = time.monotonic() + seconds
        tasks = [asyncio.create_task(self._write(number, ends_at)) for number in range(WRITERS)]
        tasks += [asyncio.create_task(self._read(number, ends_at)) for number in range(READERS)]
        tasks.append(asyncio.create_task(self._write_notes(ends_at)))
        for fault in faults:
            await asyncio.sleep(seconds / (len(faults) + 1))
            await fault()
        await asyncio.gather(*tasks)

    async def _write(self, number: int, ends_at: float) -> None:
        node = self.nodes[number % len(self.nodes)]
        while time.monotonic() < ends_at:
            agent = f"agent-{self._random.randrange(AGENTS)}"
            sent_at = time.monotonic()
            try:
                result = await node.store.execute(increment(agent))
            except WaypostError:
                await asyncio.sleep(0.05)  # not acknowledged: it may be stored or not
                continue
            assert result.registration is not None
            count = counter_of(result.registration.record.description)
            self.history.writes.append(
                AcknowledgedWrite(node.name, agent, count, result.revision, sent_at, time.monotonic())
            )

    async def _read(self, number: int, ends_at: float) -> None:
        node = self.nodes[number % len(self.nodes)]
        while time.monotonic() < ends_at:
            agent = f"agent-{self._random.randrange(AGENTS)}"
            sent_at = time.monotonic()
            if await node.store.confirm_reads() is None:
                found = await node.store.fetch([agent])
                revision = found[agent].revision if agent in found else 0
                self.history.reads.append(StrongRead(node.name, agent, revision, sent_at))
            await asyncio.sleep(0.002)

    async def _write_notes(self, ends_at: float) -> None:
        """A revocation, say: in force on every node as soon as it was acknowledged."""
        number = 0
        while time.monotonic() < ends_at:
            number += 1
            name = f"rule:{number}"
            writer, reader = (self.nodes[(number + place) % len(self.nodes)] for place in range(2))
            decision = Decision(outcome="noted", notes={name: b"1"})
            with suppress(WaypostError):
                await writer.store.execute(Command(keys=(), notes=(name,), decide=lambda held, d=decision: d))
                if await reader.store.confirm_reads() is None:
                    self.history.notes.append(NoteSighting(name, name in reader.noted))
            await asyncio.sleep(0.02)

    async def run_chore_of_paused_node(self) -> None:
        """A node claims a lease and stops for longer than it lasts; another node takes over; the first one goes on."""
        paused, other = self.nodes[:2]
        for node in (paused, other):
            await self._wait_until_current(node)
        epoch = await paused.store.leases.claim("prune")
        if epoch is None:
            return
        await self._sql("UPDATE waypost.leases SET until = '-infinity'")
        current = await other.store.leases.claim("prune")
        if current is None:
            return
        stored = await paused.store._submit(_prune, ("prune", epoch))
        if stored:
            self.history.chores.append(ChoreRun(epoch, current))

    async def finish(self) -> ClusterHistory:
        """Let every node catch up, then record the log and all states."""
        for node in self.nodes:
            await self._wait_until_current(node)
        self.history.log = [
            LoggedChange(event.revision, event.id, _counted(event)) for event in await read_log(self.url)
        ]
        for node in self.nodes:
            self.history.states[node.name] = await _state_of(node.store)
        await asyncio.gather(*(node.store.close() for node in self.nodes))
        fresh = await self.add_node("fresh")  # what the tables say
        self.history.states["fresh"] = await _state_of(fresh.store)
        await fresh.store.close()
        return self.history

    async def _wait_until_current(self, node: StoreNode) -> None:
        """Until it has reached the database again, after a fault."""
        for _ in range(400):
            if await node.store.confirm_reads() is None or node.store._is_forked:
                return
            await asyncio.sleep(0.05)
        self.history.failures.append(f"{node.name} did not catch up")

    async def _sql(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def terminate_backends(self) -> None:
        """End every connection of every node."""
        await self._sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


async def read_log(url: str) -> list[Event]:
    """All changes in the log of the database, in its order."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT first_revision, payload FROM waypost.log WHERE position > 0 ORDER BY position"
        )
    finally:
        await connection.close()
    found = []
    for first, payload in rows:
        group = decode_group(payload)
        move = group.move(first - 1)
        found += [read_event(write, move) for write in group.writes if write.event is not None]
    return found


def _counted(event: Event) -> int:
    return counter_of(msgspec.json.decode(event.record or b"{}").get("description", "Counted 0."))


def _prune(tables: object) -> int:
    return tables.prune(  # type: ignore[attr-defined, no-any-return]
        events_before=NOW + 1, keep_events=0, now=NOW, keep_audit=1000, keep_bytes=1 << 40
    )


async def _state_of(store: PostgresqlStore) -> dict[str, tuple[int, int]]:
    return {
        registration.id: (registration.revision, counter_of(registration.record.description))
        async for page in store.scan()
        for registration in page
    }
