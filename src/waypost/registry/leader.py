"""The process that writes: it expires leases, maintains the index and prunes the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from waypost.errors import WaypostError
from waypost.registry import write_rules
from waypost.registry.jobs.indexer import Indexer, LiveIndex
from waypost.registry.jobs.periodic import ChoreCheck, Job, do_all_chores, guard_chore, run_tolerant
from waypost.registry.ports import Clock, Command, Store, VectorExchange
from waypost.registry.state import RegistryState
from waypost.registry.trust_store import RegistryTrustStore
from waypost.registry.writer import PendingChanges

_EXPIRE_SECONDS = 0.5
_COMPACT_SECONDS = 0.5
_EMBED_SECONDS = 0.25
_PRUNE_SECONDS = 60.0
_FORGET_SECONDS = 6 * 3600.0
_EXPIRE_BATCH = 256
_COMPACT_AT_START = 1000  # changes that were not indexed at the start; with more, the first results would be incomplete


class Leader:
    def __init__(
        self,
        store: Store,
        state: RegistryState,
        clock: Clock,
        index: LiveIndex,
        trust: RegistryTrustStore,
        pending: PendingChanges,
        *,
        keep_seconds: float,
        keep_changes: int,
        keep_bytes: int,
        keep_audit: int,
        may_do: ChoreCheck = do_all_chores,
        vectors: VectorExchange | None = None,
    ) -> None:
        """The change log keeps events of the last `keep_seconds` and the newest `keep_changes`, within `keep_bytes`."""
        self._store = store
        self._state = state
        self._catalog = state.catalog
        self._clock = clock
        self._index = index
        self._indexer = Indexer(index, store, vectors)
        self._trust = trust
        self.expire_pending = pending.expire
        self._keep_seconds = keep_seconds
        self._keep_changes = keep_changes
        self._keep_bytes = keep_bytes
        self._keep_audit = keep_audit
        self._may_do = may_do

    async def start(self) -> None:
        """After everything stored is in memory: announce the revision, and finish interrupted revocations."""
        self._state.announce()
        await run_tolerant("revocations", self._trust.finish)

    async def catch_up_index(self) -> None:
        await self._indexer.catch_up(self._state.changes.revision)
        if self._index.pending > _COMPACT_AT_START:
            await run_tolerant("compact", self.compact)

    @property
    def jobs(self) -> Sequence[Job]:
        prune_seconds = min(_PRUNE_SECONDS, max(_EXPIRE_SECONDS, self._keep_seconds / 2))
        return (
            Job("expire leases", _EXPIRE_SECONDS, self.expire_leases),
            Job("compact", _COMPACT_SECONDS, self._compact_if_due),
            Job("embed", _EMBED_SECONDS, self._indexer.embed),
            Job("prune", prune_seconds, self.prune),
            guard_chore(Job("expire pending changes", _PRUNE_SECONDS, self.expire_pending), self._may_do),
            guard_chore(Job("forget keys", _FORGET_SECONDS, self._trust.forget), self._may_do),
        )

    async def stop(self) -> None:
        await run_tolerant("compact", self.compact)

    async def expire_leases(self) -> None:
        """Write the end of leases to the store. Readers do not wait for it: they compare times."""
        now = self._clock.now()
        self._catalog.expire(now)
        ids = self._catalog.take_expired(_EXPIRE_BATCH)
        if ids and not await self._may_do("expire leases"):
            # Another node writes it. This one keeps those that are still stored, in case it has to take over.
            stored = await self._store.fetch(ids, sources=False)
            self._catalog.put_back_expired(agent_id for agent_id, each in stored.items() if each.has_expired(now))
            return
        commands = [Command(keys=(agent_id,), decide=write_rules.expire(agent_id, now=now)) for agent_id in ids]
        results = await asyncio.gather(*map(self._store.execute, commands), return_exceptions=True)
        failed = [agent_id for agent_id, result in zip(ids, results, strict=True) if isinstance(result, WaypostError)]
        self._catalog.put_back_expired(failed)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, WaypostError):
                raise result

    async def compact(self) -> None:
        await self._indexer.compact(self._state.changes.revision)

    async def _compact_if_due(self) -> None:
        await self._indexer.compact_if_due(self._state.changes.revision)

    async def prune(self) -> None:
        now = self._clock.now()
        await self._store.prune(
            events_before=now - self._keep_seconds,
            keep_events=self._keep_changes,
            now=now,
            keep_audit=self._keep_audit,
            keep_bytes=self._keep_bytes,
        )
