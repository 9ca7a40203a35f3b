"""The registry against its model: for any sequence of operations every reader sees the state that the rules define.

Lists, the index and the state that each watcher derives from changes must be equal at any time, for every audience, on every
store, across restarts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.examples import examples
from support.registry_model import READERS, WRITERS, Held, Model
from support.service import NOW, profile
from waypost.errors import WaypostError
from waypost.model.json import dump_json
from waypost.model.principal import Principal
from waypost.model.query import Query
from waypost.model.times import to_rfc3339
from waypost.net.clock import ManualClock
from waypost.registry.change_log import WatchEvent
from waypost.registry.ports import Store
from waypost.registry.publication import Publication, content_etag_part
from waypost.registry.registry import Registry
from waypost.search.ranker import HybridRanker
from waypost.server.auth.authenticator import ADMIN
from waypost.stores.memory import MemoryStore
from waypost.stores.sqlite.store import SqliteStore

IDS = ("a", "https://b.example/agent", "u-c", "d" * 120)
BELL = "bell"  # everybody sees it; a watcher that has heard it has heard all that came before
WAIT_SECONDS = 60.0

ids = st.sampled_from(IDS)
writers = st.sampled_from(WRITERS)
ttls = st.sampled_from((None, None, 10, 60))
pauses = st.sampled_from((0, 0, 0, 10, 60, 4000))  # before a write: what runs out meanwhile is not swept yet
visibilities = st.sampled_from((None, "public", "internal", "private"))


class Watcher:
    """Derives the state from events, and rejects impossible ones."""

    def __init__(self, who: Principal, *, renewals: bool = False) -> None:
        self.who = who
        self.renewals = renewals
        self.view: dict[str, str] = {}
        self.cursor = "0"
        self.cursors: set[str] = set()
        self.rung = 0
        self._task: asyncio.Task[None] | None = None

    async def open(self, registry: Registry) -> None:
        items = await registry.watch(self.who, self.cursor, renewals=self.renewals)
        self._task = asyncio.create_task(self._listen(items))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.result()

    async def _listen(self, items: Any) -> None:
        async for item in items:
            self.cursor = item.cursor
            if isinstance(item, WatchEvent):
                self._take(item)

    def _take(self, seen: WatchEvent) -> None:
        assert seen.cursor not in self.cursors, "an event came twice"
        self.cursors.add(seen.cursor)
        agent_id, event = seen.event.id, seen.event
        if agent_id == BELL:
            self.rung += 1
            return
        if seen.type in ("withdrawn", "expired"):
            assert agent_id in self.view, f"{seen.type} of an agent that this watcher never saw"
            del self.view[agent_id]
        else:
            assert seen.type == "registered" or agent_id in self.view, f"{seen.type} before it was registered"
            self.view[agent_id] = event.etag

    async def heard(self, rung: int) -> None:
        """Wait until the marker change has arrived this many times."""
        assert self._task is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while self.rung < rung:
                if self._task.done():
                    self._task.result()
                    raise AssertionError("the watch ended")
                await asyncio.sleep(0)


class RegistryMachine(RuleBasedStateMachine):
    """Rules are what callers do; each is done to the engine and to the model, and both must answer alike."""

    durable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(prefix="waypost-model-")
        self.clock = ManualClock(NOW)
        self.model = Model(int(NOW))
        self.numbers = count(1)
        self.old_words: list[str] = []
        self.rung = 0
        self.watchers = [Watcher(who, renewals=index % 2 == 0) for index, who in enumerate(READERS)]
        self.registry: Registry

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    # --- Life ------------------------------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        data = Path(self.folder.name)
        store: Store = SqliteStore(data) if self.durable else MemoryStore()
        self.registry = Registry(store, partial(HybridRanker, data / "index" if self.durable else None), self.clock)
        await self.registry.start()
        for watcher in self.watchers:
            await watcher.open(self.registry)

    async def _stop(self) -> None:
        for watcher in self.watchers:
            await watcher.close()
        await self.registry.stop()

    @precondition(lambda self: self.durable)
    @rule()
    def restart(self) -> None:
        self.run(self._stop())
        self.run(self._start())

    def teardown(self) -> None:
        try:
            if hasattr(self, "registry"):
                self.run(self._look())
                self.run(self._told_anew())
                self.run(self._stop())
        finally:
            self.loop.close()
            self.folder.cleanup()

    async def _told_anew(self) -> None:
        """A watcher that starts at the oldest change ends with the same set."""
        for before in self.watchers:
            fresh = Watcher(before.who)
            await fresh.open(self.registry)
            await fresh.heard(self.rung)
            await fresh.close()
            assert fresh.view == before.view

    # --- What callers do -------------------------------------------------------------------------

    @rule(
        agent_id=ids,
        who=writers,
        visibility=visibilities,
        ttl=ttls,
        own=st.sampled_from((None, None, None, 30)),
        pause=pauses,
    )
    def publish_newer(
        self, agent_id: str, who: Principal, visibility: str | None, ttl: int | None, own: int | None, pause: int
    ) -> None:
        self.time_passes(pause)
        end = None if own is None else self.model.now + own
        self._publish(who, agent_id, self._news(self.model.now, ttl, end), visibility)

    @rule(agent_id=ids, who=writers, ttl=ttls, age=st.integers(1, 5000), pause=pauses)
    def publish_older(self, agent_id: str, who: Principal, ttl: int | None, age: int, pause: int) -> None:
        self.time_passes(pause)
        mark = self.model.last_mark(agent_id) or self.model.now
        self._publish(who, agent_id, self._news(mark - age, ttl, None), None)

    @rule(agent_id=ids, who=writers, ttl=ttls)
    def publish_the_same(self, agent_id: str, who: Principal, ttl: int | None) -> None:
        held = self.model.live().get(agent_id)
        if held is not None:
            self._publish(who, agent_id, Held("", "", held.word, held.mark, ttl, None, held.own_end), None)

    @rule(agent_id=ids, who=writers, visibility=visibilities)
    def change_visibility(self, agent_id: str, who: Principal, visibility: str | None) -> None:
        held = self.model.live().get(agent_id)
        if held is not None:
            self._publish(who, agent_id, Held("", "", held.word, held.mark, None, None, held.own_end), visibility)

    @rule(agent_id=ids, who=writers, ttl=ttls, pause=pauses)
    def renew(self, agent_id: str, who: Principal, ttl: int | None, pause: int) -> None:
        self.time_passes(pause)
        self._same(self.model.renew(who, agent_id, ttl), self._renew(who, agent_id, ttl))

    @rule(agent_id=ids, who=writers, pause=pauses)
    def withdraw(self, agent_id: str, who: Principal, pause: int) -> None:
        self.time_passes(pause)
        held = self.model.live().get(agent_id)
        if self._same(self.model.withdraw(who, agent_id), self.registry.withdraw(who, agent_id)) and held:
            self.old_words.append(held.word)

    @rule(seconds=st.sampled_from((1, 5, 9, 10, 29, 60, 61, 4000)))
    def time_passes(self, seconds: int) -> None:
        before = self.model.live().copy()
        self.clock.advance(seconds)
        self.model.now += seconds
        self.old_words += [held.word for agent_id, held in before.items() if agent_id not in self.model.live()]

    @rule()
    def sweep(self) -> None:
        self.run(self.registry.leader.expire_leases())

    @rule()
    def fold_the_index(self) -> None:
        self.run(self.registry.searchable())
        self.run(self.registry.leader.compact())

    def _news(self, mark: int, ttl: int | None, own_end: int | None) -> Held:
        return Held("", "", f"word{next(self.numbers)}", mark, ttl, None, own_end)

    def _publish(self, who: Principal, agent_id: str, news: Held, visibility: str | None) -> None:
        before = self.model.live().get(agent_id)
        done = self._same(
            self.model.publish(who, agent_id, news, visibility), self._send(who, agent_id, news, visibility)
        )
        if done and before is not None and before.word != news.word:
            self.old_words.append(before.word)

    async def _send(self, who: Principal, agent_id: str, news: Held, visibility: str | None) -> str:
        members: dict[str, Any] = {"updated_at": to_rfc3339(news.mark)}
        if news.own_end is not None:
            members["expires_at"] = to_rfc3339(news.own_end)
        document = dump_json(profile(agent_id, name="Marked", description=f"A common {news.word}.", **members))
        dialect, decoded = self.registry.decode(document)
        publication = Publication(
            dialect=dialect,
            document=document,
            decoded=decoded,
            principal=who,
            visibility=visibility,
            ttl_seconds=news.ttl,
        )
        return (await self.registry.publish(publication)).outcome

    async def _renew(self, who: Principal, agent_id: str, ttl: int | None) -> str:
        return (await self.registry.renew(who, agent_id, ttl)).outcome

    def _same(self, expected: str | type[WaypostError], work: Coroutine[Any, Any, str]) -> bool:
        """Both answered alike; true when it was done rather than refused."""
        try:
            outcome: str | type[WaypostError] = self.run(work)
        except WaypostError as error:
            outcome = type(error)
        assert outcome == expected
        return isinstance(outcome, str)

    # --- What everybody sees -----------------------------------------------------------------------

    @invariant()
    def everybody_sees_what_the_rules_say(self) -> None:
        if hasattr(self, "registry"):
            self.run(self._look())

    async def _look(self) -> None:
        listed = {who.subject: self._listed(who) for who in READERS}
        for who in READERS:
            expected = self.model.seen_by(who)
            assert listed[who.subject].keys() == expected.keys()
            for agent_id, held in expected.items():
                shown = await self.registry.get(who, agent_id)
                assert (shown.record.description, shown.owner) == (f"A common {held.word}.", held.owner)
            assert await self._found(who, "common") == expected.keys()
            assert self.registry.stats(who).agents == len(expected) + (self.rung > 0)
        for agent_id, held in self.model.live().items():
            assert await self._found(ADMIN, held.word) == {agent_id}
        for word in self.old_words[-3:]:
            assert await self._found(ADMIN, word) == set()
        await self._ring()
        for watcher in self.watchers:
            await watcher.heard(self.rung)
            assert watcher.view == listed[watcher.who.subject]

    def _listed(self, who: Principal) -> dict[str, str]:
        entries = []
        cursor = None
        while True:
            page = self.registry.page(who, limit=2, cursor=cursor)
            entries += page.entries
            cursor = page.next_cursor
            if cursor is None:
                return {entry.id: content_etag_part(entry.etag) for entry in entries if entry.id != BELL}

    async def _found(self, who: Principal, word: str) -> set[str]:
        findings = await self.registry.find(Query(text=word, limit=100), who)
        return {candidate.record.id for candidate in findings.candidates}

    async def _ring(self) -> None:
        """Write the expiries to the log, then make a change that every watcher receives."""
        await self.registry.leader.expire_leases()
        self.rung += 1
        document = dump_json(profile(BELL, name="Bell", description=f"Rings {self.rung}."))
        dialect, decoded = self.registry.decode(document)
        publication = Publication(dialect=dialect, document=document, decoded=decoded, principal=ADMIN)
        await self.registry.publish(publication)


class DurableRegistryMachine(RegistryMachine):
    durable = True


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

TestRegistryInMemory = RegistryMachine.TestCase
TestRegistryInMemory.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None, suppress_health_check=_QUIET
)
TestRegistryOnDisk = DurableRegistryMachine.TestCase
TestRegistryOnDisk.settings = settings(
    max_examples=examples(16), stateful_step_count=20, deadline=None, suppress_health_check=_QUIET
)
