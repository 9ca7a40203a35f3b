"""The cache of records: what is read stays in it and is never older than the catalog; what is only written does not fill it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from support.registry_model import ALICE
from support.service import NOW, profile
from waypost.model.registration import Registration
from waypost.net.clock import ManualClock
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.search.ranker import HybridRanker
from waypost.stores.memory import MemoryStore


class PausedStore(MemoryStore):
    """Counts reads, and returns what it has read when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        self.fetched += ids
        found = await super().fetch(ids, sources=sources)
        await self.may_return.wait()
        return found


@asynccontextmanager
async def registry(store: MemoryStore) -> AsyncIterator[Registry]:
    made = Registry(store, partial(HybridRanker, None), ManualClock(NOW))
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def publish(held: Registry, name: str, agent_id: str = "a") -> None:
    document = msgspec.json.encode(profile(agent_id, name=name))
    dialect, decoded = held.decode(document)
    await held.publish(Publication(dialect=dialect, document=document, decoded=decoded, principal=ALICE))


async def read_name(held: Registry, *, sources: bool = True) -> str:
    (found,) = await held.registrations(("a",), sources=sources)
    return found.record.name


async def test_a_record_that_is_read_is_read_once_and_follows_its_changes() -> None:
    store = PausedStore()
    async with registry(store) as held:
        await publish(held, "first")
        for sources in (False, True, False):
            assert await read_name(held, sources=sources) == "first"
        assert store.fetched == ["a", "a"]  # without its documents, then with them
        await publish(held, "second")
        assert await read_name(held) == "second"
        assert store.fetched == ["a", "a"]


async def test_records_that_nobody_reads_do_not_fill_the_cache() -> None:
    store = PausedStore()
    async with registry(store) as held:
        await publish(held, "first")
        await publish(held, "second")
        assert await read_name(held) == "second"
        assert store.fetched == ["a"]


async def test_a_record_that_was_read_before_a_change_does_not_come_back_after_it() -> None:
    store = PausedStore()
    async with registry(store) as held:
        await publish(held, "first")
        store.may_return.clear()
        reading = asyncio.create_task(read_name(held))
        await asyncio.sleep(0)
        assert store.fetched == ["a"]
        await publish(held, "second")
        store.may_return.set()
        assert await reading == "first"
        assert await read_name(held) == "second"
