"""What a discover shows of an agent is written down when it is registered, and is what would be read from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.service import NOW, Bench, profile
from waypost import samples
from waypost.app.application import load_samples
from waypost.app.build import build
from waypost.model.registration import CatalogEntry, RegistrationSummary
from waypost.net.clock import ManualClock
from waypost.settings import Settings
from waypost.stores.sqlite.store import SqliteStore

QUESTIONS = (
    "translate a document",
    "weather",
    "code review",
    "plan a trip",
    "query a database",
    "agent",
    "invoice",
    "calendar",
    "search the web",
)


class CountingStore(SqliteStore):
    """Tells how many agents were read in short."""

    read = 0

    async def briefs(self, entries: Sequence[CatalogEntry]) -> dict[str, RegistrationSummary]:
        self.read += len(entries)
        return await super().briefs(entries)


@asynccontextmanager
async def service(data: Path) -> AsyncIterator[tuple[Bench, CountingStore]]:
    clock, store = ManualClock(NOW), CountingStore(data)
    application = build(Settings(data=data, embedder="none"), clock=clock, store=store)
    await application.start()
    bench = Bench(application, clock)
    try:
        yield bench, store
    finally:
        await bench.close()


async def found(bench: Bench, text: str, token: str | None = None) -> list[dict[str, Any]]:
    answer = await bench.client(token or bench.admin_token).post(
        "/profile/v1/discover", json={"query": text, "limit": 50}
    )
    assert answer.status_code == 200
    candidates: list[dict[str, Any]] = answer.json()["candidates"]
    return candidates


async def test_a_candidate_that_was_at_hand_is_the_candidate_that_is_read(tmp_path: Path) -> None:
    async with service(tmp_path) as (bench, store):
        assert await load_samples(bench.registry) == len(samples.load())
        at_hand = [await found(bench, text) for text in QUESTIONS]
        assert sum(map(len, at_hand)) > 15
        assert store.read == 0
    async with service(tmp_path) as (bench, store):
        assert [await found(bench, text) for text in QUESTIONS] == at_hand
        assert store.read > 10


async def test_a_change_is_shown_at_once(tmp_path: Path) -> None:
    async with service(tmp_path) as (bench, store):
        client = bench.client(bench.admin_token)
        for name in ("First Falcon", "Second Falcon"):
            await client.post("/api/v1/agents", json=profile("falcon", name=name))
            assert [each["name"] for each in await found(bench, "falcon")] == [name]
        await client.delete("/api/v1/agents/falcon")
        assert await found(bench, "falcon") == []
        assert store.read == 0


async def test_hidden_agents_take_no_place(tmp_path: Path) -> None:
    async with service(tmp_path) as (bench, store):
        alice = bench.token("alice")
        headers = {"Waypost-Visibility": "private"}
        await bench.client(alice).post("/api/v1/agents", json=profile("falcon", name="Falcon"), headers=headers)
        assert store.read == 0
        assert [each["name"] for each in await found(bench, "falcon", alice)] == ["Falcon"]
        assert store.read == 1
        assert await found(bench, "falcon", bench.token("bob")) == []
