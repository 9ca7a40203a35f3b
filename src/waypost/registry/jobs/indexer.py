"""The search index beside the store: filled at the start, updated by commits, compacted when the service is idle.

Python threads share one interpreter lock, so compaction slows down registrations that arrive meanwhile. It waits for a
quiet moment, unless too many changes are in memory alone. A query prepares the newest changes itself and hurries it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import Unavailable
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.registry.ports import AgentIndex, Ranker, Store, VectorExchange

log = logging.getLogger("waypost.registry")

_COMPACT_AT = 1500  # unsaved changes that start a compaction without a quiet moment
_COMPACT_AT_QUERIED = 300  # the same while queries arrive: more than a query prepares itself
_COMPACT_FORCED_AT = 5000  # compaction no longer yields: a start after a kill would have to replay more
_IDLE_ROUNDS = 8  # rounds without a change, after which segments are merged: queries are faster then
_MAX_ROUNDS = 8  # rounds after which unsaved changes are compacted in any case
_POLL_SECONDS = 0.1
_BURST = 2  # publications within one poll that count as a bulk load
_EMBED_BATCH = 128  # agents: about half a second with two threads
_EMBED_BATCH_BUSY = 8  # the same while requests arrive
_EMBED_THREADS = 2  # onnxruntime computes without the interpreter lock, and while one thread does, the other has it
_TRIM_AT = 1000  # agents, after which freed memory is returned
_EMBED_NICE = 10  # so that requests get a processor at once
_EMBED_PAUSE_FACTOR = 3  # pause after a batch, as a multiple of its time, while requests arrive
_EMBED_WAIT_SECONDS = 2.0  # the longest wait for the end of a bulk load, for each batch
_LOOKED_UP = 4  # agents whose vectors are asked for, as a multiple of those that this node computes at a time
_PATIENCE_SECONDS = (
    15.0  # without any vectors of other nodes, after which this node computes those that are theirs to do
)
_AWAITED = 10_000  # agents whose wait is remembered
_REBUILD_BATCH = 5000  # agents held in memory while the index is rebuilt


class LiveIndex:
    """The ranker, and the updates on their way to it.

    `make` builds the ranker in `load`, after the store is open: what it imports costs a third of the start. Until the
    index has caught up with the store, updates wait in a queue and queries wait for the task that catches up."""

    def __init__(self, make: Callable[[], Ranker]) -> None:
        self._make = make
        self._ranker: Ranker | None = None
        self._queue: list[Callable[[AgentIndex], None]] = []
        self._has_caught_up = False
        self._start_task: asyncio.Task[None] | None = None
        self.queries = 0  # counters, which tell compaction what the service is doing
        self.publications = 0
        self.changes = 0

    @property
    def ranker(self) -> Ranker:
        if self._ranker is None:
            self._ranker = self._make()
        return self._ranker

    def load(self) -> None:
        """Make the ranker now."""
        self._ranker = self.ranker

    def start(self, catch_up: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `catch_up` in a task. Queries wait for it."""
        self._start_task = asyncio.create_task(catch_up, name="catch up with the store")
        return self._start_task

    def open_queue(self) -> None:
        """Apply the queued updates; from now on updates go to the ranker directly."""
        self._has_caught_up = True
        queue, self._queue = self._queue, []
        for update in queue:
            update(self.ranker.index)

    def put(self, registration: Registration) -> None:
        self.changes += 1
        if self._has_caught_up:
            self.ranker.index.put(registration)
        else:
            self._queue.append(lambda index: index.put(registration))

    def remove(self, agent_id: str, revision: int) -> None:
        if self._has_caught_up:
            self.ranker.index.remove(agent_id, revision)
        else:
            self._queue.append(lambda index: index.remove(agent_id, revision))

    @property
    def has_caught_up(self) -> bool:
        return self._has_caught_up

    @property
    def pending(self) -> int:
        """The number of changes that are not compacted into the index yet. Search results include them."""
        return self.ranker.index.pending if self._has_caught_up else len(self._queue)

    async def wait(self) -> None:
        """Wait until the index has caught up with the store."""
        if self._has_caught_up:
            return
        if self._start_task is None:
            raise Unavailable("The registry is starting.", retry_after=1)
        await asyncio.shield(self._start_task)

    async def ranker_for(self, audience: frozenset[str] | None, query: Query) -> Ranker:
        """The ranker, ready to answer this query: every acknowledged change is found by its words."""
        if not self._has_caught_up:
            await self.wait()
        self.queries += 1
        ranker = self.ranker
        if ranker.index.is_behind(audience):  # in a bulk load
            await asyncio.to_thread(ranker.index.prepare_for, audience, query)
        return ranker

    def close(self) -> None:
        if self._ranker is not None:
            self._ranker.close()


def return_freed_memory() -> None:
    """Return what was freed to the system: glibc keeps it, several hundred megabytes after a bulk load of 100,000 agents."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


def _lower_priority() -> None:
    """Of this thread alone, which only Linux can do."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _EMBED_NICE)


class Indexer:
    """Keeps the index of the process that writes: catch-up at the start, compaction, embeddings."""

    def __init__(self, live: LiveIndex, store: Store, vectors: VectorExchange | None = None) -> None:
        """`vectors` are those that the nodes of a cluster compute for each other."""
        self._live = live
        self._store = store
        self._to_embed = VectorQueue(live, store, vectors)
        self._rounds = 0  # since the last compaction
        self._idle_rounds = 0
        self._last_revision = 0
        self._last_queries = 0
        self._last_publications = 0
        self._compacted_changes = 0  # of `LiveIndex.changes`
        self._freed = 0  # agents whose changes and vectors were in memory since freed memory was returned
        self._threads = ThreadPoolExecutor(_EMBED_THREADS, "waypost-embed", _lower_priority)  # they start when needed

    async def catch_up(self, revision: int) -> None:
        """Bring the index from its saved revision to that of the store. A gap in the log means a rebuild."""
        indexed = await asyncio.to_thread(self._live.ranker.index.open)
        if indexed == 0 or indexed > revision or indexed + 1 < await self._store.oldest_event():
            if indexed > revision:
                log.error(
                    "the search index contains changes up to revision %d, the store only up to %d: the store has lost changes. "
                    "Restore the newest backup, or go on without them; see docs/how-to/back-up-and-restore.md",
                    indexed,
                    revision,
                )
            elif revision and self._live.ranker.index.is_persistent:
                log.info(
                    "building the search index from the stored agents: no complete index files of this release were found"
                )
            await self._rebuild()
        else:
            await replay(self._live.ranker.index, self._store, indexed, revision)
        self._live.open_queue()

    async def _rebuild(self) -> None:
        index = self._live.ranker.index
        index.clear()
        async for registrations in self._store.scan():
            for registration in registrations:
                index.put(registration)
            if index.unsaved >= _REBUILD_BATCH:
                await asyncio.to_thread(index.maintain, 0)  # revision 0: an interrupted rebuild starts again

    async def compact(self, revision: int) -> None:
        """Save all changes now."""
        if self._live.has_caught_up and self._live.ranker.index.unsaved:
            await asyncio.to_thread(self._live.ranker.index.maintain, revision)

    async def compact_if_due(self, revision: int) -> None:
        """Compact in a quiet moment, or when enough is unsaved. Results are complete either way; a compaction costs more
        than the change that it saves, so a stream of registrations must not start one for each."""
        live = self._live
        if not live.has_caught_up:
            return
        self._rounds += 1
        is_quiet, self._last_revision = revision == self._last_revision, revision
        is_queried, self._last_queries = live.queries != self._last_queries, live.queries
        self._idle_rounds = self._idle_rounds + 1 if is_quiet else 0
        at_rest = self._idle_rounds >= _IDLE_ROUNDS
        unsaved = live.ranker.index.unsaved
        enough = _COMPACT_AT_QUERIED if is_queried else _COMPACT_AT
        is_due = unsaved and (is_quiet or unsaved >= enough or self._rounds >= _MAX_ROUNDS)
        if is_due or (is_quiet and live.ranker.index.is_fragmented(at_rest=at_rest)):
            self._rounds = 0
            self._freed += unsaved
            changes = live.changes
            await asyncio.to_thread(live.ranker.index.maintain, revision, self._yield_to_requests, at_rest=at_rest)
            self._compacted_changes = changes
        elif at_rest and self._freed >= _TRIM_AT:
            self._freed = 0
            await asyncio.to_thread(return_freed_memory)

    def _yield_to_requests(self) -> bool:
        """Called in the thread of a compaction: sleep during a bulk load, unless a query arrives or too much is unsaved.
        Returns whether the load goes on."""
        live = self._live
        if live.publications == self._last_publications:
            return False
        queries = live.queries
        while live.queries == queries and live.changes - self._compacted_changes < _COMPACT_FORCED_AT:
            self._last_publications = live.publications
            time.sleep(_POLL_SECONDS)
            if live.publications - self._last_publications < _BURST:
                return False
        return True

    async def embed(self) -> None:
        """Compute missing vectors: with two threads while the service is idle, else a few at a time with a quarter of one,
        and next to nothing during a bulk load."""
        live, loop = self._live, asyncio.get_running_loop()
        is_idle = False
        while found := await self._to_embed.take(_EMBED_BATCH if is_idle else _EMBED_BATCH_BUSY):
            requests, start = live.queries + live.publications, loop.time()
            self._freed += len(found)
            parts = [found[first::_EMBED_THREADS] for first in range(_EMBED_THREADS)] if is_idle else [found]
            embed = (loop.run_in_executor(self._threads, live.ranker.index.embed, part) for part in parts if part)
            for made in await asyncio.gather(*embed):
                await self._to_embed.put(made)
            is_idle = live.queries + live.publications == requests
            if not is_idle:
                await asyncio.sleep(_EMBED_PAUSE_FACTOR * (loop.time() - start))
                await self._wait_for_quiet(loop.time() + _EMBED_WAIT_SECONDS)

    async def _wait_for_quiet(self, deadline: float) -> None:
        before = -_BURST
        while self._live.publications - before >= _BURST and asyncio.get_running_loop().time() < deadline:
            before = self._live.publications
            await asyncio.sleep(_POLL_SECONDS)


class VectorQueue:
    """The agents whose vectors this node is to compute. In a cluster these are its share; the vectors of the others are taken
    from the nodes that computed them, and computed here if none of these nodes gets on with it."""

    def __init__(
        self,
        live: LiveIndex,
        store: Store,
        exchange: VectorExchange | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._store = store
        self._exchange = exchange
        self._monotonic = monotonic
        self._start = 0
        self._awaited_since: LruCache[str, float] = LruCache(_AWAITED)
        self._taken_at = monotonic()  # when the last vectors of another node came

    async def take(self, limit: int) -> list[Registration]:
        """The next agents, at most `limit`. None of them may be left by now: the index learns soon of those that were removed."""
        if not self._live.has_caught_up:
            return []
        if self._exchange is None:
            ids = self._live.ranker.index.lacking(limit)
            return [*(await self._store.fetch(ids, sources=False)).values()] if ids else []
        while ids := self._live.ranker.index.lacking(_LOOKED_UP * limit, self._start):
            taken = await self._take_vectors(self._exchange, ids)
            due = [agent_id for agent_id in ids if agent_id not in taken and self._is_due(self._exchange, agent_id)]
            found = [*(await self._store.fetch(due[:limit], sources=False)).values()] if due else []
            if found or not taken:
                self._start += 0 if found else len(ids)
                return found
        return []

    async def put(self, made: Mapping[str, bytes]) -> None:
        if self._exchange is not None:
            await self._exchange.put(made)

    async def _take_vectors(self, exchange: VectorExchange, ids: Sequence[str]) -> set[str]:
        packed = await exchange.fetch(ids)
        found = await self._store.fetch([*packed], sources=False) if packed else {}
        if not found:
            return set()
        taken = await asyncio.to_thread(self._live.ranker.index.take_vectors, [*found.values()], packed)
        if taken:
            self._taken_at = self._monotonic()
        return taken

    def _is_due(self, exchange: VectorExchange, agent_id: str) -> bool:
        if exchange.is_mine(agent_id):
            return True
        now = self._monotonic()
        since = self._awaited_since.get(agent_id)
        if since is None:
            self._awaited_since.put(agent_id, now)
            return False
        return now - max(since, self._taken_at) >= _PATIENCE_SECONDS


class FollowerIndexer:
    """The index of a follower: it opens the files that the leader saved and keeps later changes in memory. It never saves or
    clears, because the files belong to the leader."""

    def __init__(self, live: LiveIndex, store: Store) -> None:
        self._live = live
        self._store = store

    async def catch_up(self, revision: int) -> None:
        index = self._live.ranker.index
        indexed = await asyncio.to_thread(index.follow)
        if indexed == 0 or indexed + 1 < await self._store.oldest_event():
            async for registrations in self._store.scan():
                for registration in registrations:
                    index.put(registration)
        else:
            await replay(index, self._store, indexed, revision)
        self._live.open_queue()

    async def refresh(self) -> None:
        """Open the files that the leader has saved since the last time."""
        if self._live.has_caught_up:
            await asyncio.to_thread(self._live.ranker.index.follow)


async def replay(index: AgentIndex, store: Store, indexed: int, revision: int) -> None:
    """Apply the changes after the revision that an index reflects, each agent once."""
    changed: set[str] = set()
    while indexed < revision:
        events = await store.events(indexed, limits.WATCH_BATCH)
        if not events:
            break
        changed.update(event.id for event in events if event.type != "renewed")
        indexed = events[-1].revision
    found = await store.fetch(sorted(changed), sources=False) if changed else {}
    for agent_id in changed:
        registration = found.get(agent_id)
        if registration is None:
            index.remove(agent_id, indexed)
        else:
            index.put(registration)
