"""A registry that follows the log of another: never behind an acknowledged change, never ahead of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.agent_endpoints import DeadEndpoints, check, make_checks
from support.service import Bench, profile, service
from waypost.app import build
from waypost.app.workers import WorkerTable
from waypost.errors import StoreUnavailable
from waypost.model.health import Health
from waypost.model.principal import Principal
from waypost.model.query import Query
from waypost.registry.change_log import WatchCutOff, WatchEvent
from waypost.registry.ports import Command
from waypost.registry.registry import Registry
from waypost.search.ranker import HybridRanker
from waypost.server.auth.authenticator import ADMIN
from waypost.settings import Settings
from waypost.stores.sqlite.store import SqliteFollowerStore

pytestmark = pytest.mark.own_store

READER = Principal(subject="reader", scopes=frozenset(("discover:read",)))


class Pair:
    """A service that writes, a registry that follows it, and the head between them, moved by hand."""

    def __init__(self, bench: Bench, data: Path, ranker: HybridRanker | None = None) -> None:
        self.bench = bench
        self.head = 0
        self.told: list[int] = []
        self.ranker = ranker or HybridRanker(None)
        self.follower = Registry(
            SqliteFollowerStore(data),
            lambda: self.ranker,
            bench.registry.clock,
            head=lambda: self.head,
            announce=self.told.append,
        )

    async def put(self, name: str, **members: object) -> None:
        answer = await self.bench.as_("alice").post("/api/v1/agents", json=profile(name, **members))
        assert answer.status_code < 300, answer.text

    async def announce(self) -> None:
        self.head = self.bench.registry.changes.revision
        await self.follower.follower.catch_up()

    def listed(self) -> list[str]:
        return [entry.id for entry in self.follower.page(READER).entries]

    async def found(self, query: str) -> list[str]:
        findings = await self.follower.find(Query(text=query), READER)
        return [candidate.record.id for candidate in findings.candidates]


@asynccontextmanager
async def following(data: Path, **settings: object) -> AsyncIterator[Pair]:
    async with service(data, store="sqlite", **settings) as bench:
        pair = Pair(bench, data)
        await pair.follower.start()
        try:
            yield pair
        finally:
            await pair.follower.stop()


async def test_a_follower_serves_agents_registered_before_its_start(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        pair = Pair(bench, tmp_path)
        await pair.put("a", description="Sorts letters.")
        pair.head = bench.registry.changes.revision
        await pair.follower.start()
        assert pair.listed() == ["a"]
        assert await pair.found("sorts letters") == ["a"]
        await pair.follower.stop()


async def test_a_follower_shows_a_change_after_it_was_announced(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.put("a", description="Sorts letters.")
        await pair.follower.follower.catch_up()
        assert pair.listed() == []
        await pair.announce()
        assert pair.listed() == ["a"]
        assert await pair.found("sorts letters") == ["a"]
        assert pair.told[-1] == pair.head


async def test_many_changes_of_one_agent_end_in_the_last_state(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        for number in range(5):
            await pair.put("a", description=f"Counts to {number}.", tags=[f"t{number}"])
        await pair.put("b", description="Stays not.")
        await pair.bench.as_("alice").delete("/api/v1/agents/b")
        await pair.announce()
        registration = await pair.follower.get(READER, "a")
        assert registration.record.description == "Counts to 4."
        assert [entry.id for entry in pair.follower.page(READER, tags=("t4",)).entries] == ["a"]
        assert pair.follower.page(READER, tags=("t0",)).entries == []
        assert pair.listed() == ["a"]


async def test_an_update_before_a_renewal_is_not_lost(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.put("a", description="Sorts letters.")
        await pair.announce()
        alice = pair.bench.as_("alice")
        changed = profile("a", description="Folds napkins.")
        assert (await alice.post("/api/v1/agents?ttl_seconds=60", json=changed)).status_code == 200
        assert (await alice.post("/api/v1/agents/a:renew", json={"ttl_seconds": 600})).status_code == 200
        await pair.announce()
        assert await pair.found("folds napkins") == ["a"]
        entry = pair.follower.resolve(READER, "a")
        assert entry.expires_at == pair.bench.registry.resolve(READER, "a").expires_at


async def test_a_removal_takes_effect_in_a_follower_only_after_it_was_announced(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.put("a")
        await pair.announce()
        await pair.put("a", description="Changed.")
        told = pair.bench.registry.changes.revision
        await pair.bench.as_("alice").delete("/api/v1/agents/a")
        pair.head = told
        await pair.follower.follower.catch_up()
        assert pair.listed() == ["a"]
        await pair.announce()
        assert pair.listed() == []


async def test_a_log_that_was_cut_is_made_up_for(tmp_path: Path) -> None:
    async with following(tmp_path, watch_keep_changes=0, watch_keep_seconds=0) as pair:
        for name in ("stays", "goes", "changes"):
            await pair.put(name, description=f"It {name}.")
        await pair.announce()
        items = await pair.follower.watch(ADMIN)
        await pair.put("changes", description="Was mended.", tags=["mended"])
        await pair.bench.as_("alice").delete("/api/v1/agents/goes")
        await pair.put("comes", description="Arrived late.")
        pair.bench.clock.advance(1)
        await pair.bench.registry.leader.prune()
        assert await pair.bench.application.store.events(0, 10) == []
        await pair.announce()
        assert pair.listed() == ["changes", "comes", "stays"]
        assert await pair.found("was mended") == ["changes"]
        assert await pair.found("arrived late") == ["comes"]
        assert pair.follower.page(READER, tags=("mended",)).total == 1
        async with asyncio.timeout(60):
            assert isinstance(await anext(items), WatchCutOff)


async def test_a_watcher_of_a_follower_sees_announced_changes(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        items = await pair.follower.watch(READER)
        await pair.put("a")
        await pair.put("b")
        await pair.announce()
        async with asyncio.timeout(60):
            seen = [await anext(items), await anext(items)]
        assert [item.event.id for item in seen if isinstance(item, WatchEvent)] == ["a", "b"]


async def test_both_give_the_same_set_the_same_name(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tokens = frozenset(("public",))
        writer, follower = pair.bench.registry.entries, pair.follower.entries
        names = {follower.fingerprint(tokens)}
        for step in ("a", "b", "c"):
            await pair.put(step)
            await pair.announce()
            assert writer.fingerprint(tokens) == follower.fingerprint(tokens)
            names.add(follower.fingerprint(tokens))
        assert len(names) == 4


async def test_it_reads_the_index_that_the_writer_saves(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        pair = Pair(bench, tmp_path, HybridRanker(tmp_path / "index"))
        for name in ("saved", "gone", "changed"):
            await pair.put(name, description=f"Is {name} by the leader.")
        pair.head = bench.registry.changes.revision
        await bench.registry.searchable()  # the leader opens its index in the background and clears a damaged one
        await bench.registry.leader.compact()
        await pair.follower.start()
        assert pair.ranker.index.follow() == pair.head
        assert pair.ranker.index.unsaved == 0
        await pair.bench.as_("alice").delete("/api/v1/agents/gone")
        await pair.put("changed", description="Now irons shirts.")
        await pair.put("fresh", description="Waters plants.")
        for saves in (
            False,
            True,
        ):  # before and after the leader has saved it (it may also have saved in a pause of writes)
            await pair.announce()
            if saves:
                await bench.registry.leader.compact()
                assert pair.ranker.index.follow() == pair.head
            assert await pair.found("gone by the leader") == ["saved"]
            assert await pair.found("irons shirts") == ["changed"]
            assert await pair.found("waters plants") == ["fresh"]
        await pair.follower.stop()


async def test_a_damaged_index_of_the_writer_is_left_alone(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        pair = Pair(bench, tmp_path, HybridRanker(tmp_path / "index"))
        await pair.put("a", description="Sorts letters.")
        pair.head = bench.registry.changes.revision
        await bench.registry.searchable()  # the leader opens its index in the background and clears a damaged one
        await bench.registry.leader.compact()
        files = sorted(path for path in (tmp_path / "index").rglob("*") if path.is_file())
        damaged = {path: path.read_bytes()[:-20] for path in files}
        for path, data in damaged.items():
            path.write_bytes(data)
        await pair.follower.start()
        assert await pair.found("sorts letters") == ["a"]
        await pair.follower.stop()
        assert {path: path.read_bytes() for path in files} == damaged


async def test_it_refuses_to_write(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        with pytest.raises(StoreUnavailable):
            await pair.follower.execute(Command(keys=("a",), decide=lambda held: 1 / 0))  # type: ignore[arg-type, return-value]


async def test_a_follower_reports_the_health_state_of_the_writer(tmp_path: Path) -> None:
    """One process asks the endpoints; the others read it in the log."""
    async with following(tmp_path) as pair:
        prober = DeadEndpoints()
        checks = make_checks(pair.bench, prober)
        await pair.put("a", bindings=[{"protocol": "https", "endpoint": "https://a.example/"}])
        await check(pair.bench, checks)
        await pair.announce()
        entry = pair.follower.resolve(READER, "a")
        assert (entry.health, entry.status) == ("suspect", "active")
        await check(pair.bench, checks, 2)
        await pair.announce()
        assert pair.listed() == []
        assert (await pair.follower.get(READER, "a")).health == Health("unhealthy", pair.bench.clock.now(), "timed_out")


def test_only_the_process_that_writes_asks(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, embedder="none", health_checks=True, workers=2)
    board = WorkerTable(2)
    watched = [
        b"health_watched" in build(settings, slot=board.slot(number), port=8440).metrics.render_all({})
        for number in (0, 1)
    ]
    assert watched == [True, False]
