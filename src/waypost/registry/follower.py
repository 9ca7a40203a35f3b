"""A registry that writes nothing: it follows the change log that another process writes, and answers reads.

It knows one number from outside, the head: the newest revision of which any caller was told. A read first catches up with
it, so that whatever one process acknowledged is seen by the next question to any other. How the head is carried, whether
in shared memory or by a database, and how the log is read, are not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from waypost import limits
from waypost.model.events import Event, EventType
from waypost.model.registration import CatalogEntry, Registration
from waypost.registry.jobs.indexer import Indexer
from waypost.registry.ports import Clock, CommittedChange, Ranker, Store
from waypost.registry.registry import Registry, RegistryOptions

Head = Callable[[], int]

_LOOK_SECONDS = 0.02  # a watcher here hears of a change at most this much later; a question looks by itself
_SWEEP_SECONDS = 0.5
_FOLLOW_SECONDS = 1.0
_TRUST_SECONDS = 2.0  # a certificate that was revoked is refused everywhere so much later
_ENDINGS = ("withdrawn", "expired")


class FollowerRegistry(Registry):
    def __init__(
        self,
        store: Store,
        ranker: Ranker | Callable[[], Ranker],
        clock: Clock,
        options: RegistryOptions | None = None,
        *,
        head: Head,
        announce: Callable[[int], None],
    ) -> None:
        super().__init__(store, ranker, clock, options, announce=announce)
        self._head = head
        self._turn = asyncio.Lock()
        self._index = FollowerIndexer(self.ranker, store)

    async def _loaded(self) -> None:
        await self.catch_up()
        await super()._loaded()

    async def _finish(self) -> None:
        """Whoever writes does."""

    def _housekeeping(self) -> list[tuple[float, Callable[[], Any]]]:
        return [
            (_LOOK_SECONDS, self.catch_up),
            (_SWEEP_SECONDS, self.sweep),
            (_FOLLOW_SECONDS, self._compact_if_due),
            (_TRUST_SECONDS, self.trust.load),
        ]

    async def sweep(self) -> None:
        """Whoever writes tells the store of leases that ran out."""
        self.catalog.expire(self.clock.now())
        self.catalog.take_expired(len(self.catalog) + limits.RECORD_CACHE)

    # --- Following -------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        return self.changes.revision < self._head()

    async def catch_up(self) -> None:
        """Take in what callers were told of until now. Nothing beyond it, so that no process is ahead of another."""
        target = self._head()
        while self.changes.revision < target:
            async with self._turn:
                if self.changes.revision < target:
                    await self._advance(target)
            await asyncio.sleep(0)

    async def _advance(self, target: int) -> None:
        after = self.changes.revision
        events = await self.store.events(after, min(target - after, limits.GROUP_SLICE))
        if not events or events[0].revision != after + 1:
            await self._reload(target)
            return
        newest = _newest(events)
        found = await self.store.fetch([*newest], sources=True)
        for committed in _committed(newest, found):
            self._take_in(committed)
        self.changes.append(events)
        self._announce(self.changes.revision)

    async def _reload(self, target: int) -> None:
        """The log was cut before it was read. Hold what is stored against what is in memory, and take the difference."""
        stored: set[str] = set()
        async for page in self.store.entries():
            stored.update(entry.id for entry in page)
            changed = [entry.id for entry in page if self._revision_of(entry.id) != entry.revision]
            for start in range(0, len(changed), limits.GROUP_SLICE):
                part = await self.store.fetch(changed[start : start + limits.GROUP_SLICE], sources=True)
                for registration in part.values():
                    event = _synthetic_event("updated", registration, target)
                    self._take_in(CommittedChange(event=event, registration=registration))
                await asyncio.sleep(0)
        for agent_id in [agent_id for agent_id in self.catalog.ids() if agent_id not in stored]:
            entry = self.catalog.find(agent_id)
            if entry is not None:
                self._take_in(CommittedChange(event=_synthetic_event("withdrawn", entry, target), registration=None))
        self.changes.skip_to(target)
        self._announce(target)

    def _revision_of(self, agent_id: str) -> int | None:
        entry = self.catalog.find(agent_id)
        return entry.revision if entry is not None else None


def _newest(events: Sequence[Event]) -> dict[str, Event]:
    """The last event of each agent; a renewal tells less than what came before it."""
    newest: dict[str, Event] = {}
    for event in events:
        if event.type != "renewed" or event.id not in newest:
            newest[event.id] = event
    return newest


def _committed(newest: Mapping[str, Event], found: Mapping[str, Registration]) -> Iterable[CommittedChange]:
    """What the listener of a writing store would have been told. An agent that is gone by now is left as it was: the event
    that removed it is still to come."""
    for agent_id, event in newest.items():
        if event.type in _ENDINGS:
            yield CommittedChange(event=event, registration=None)
        elif agent_id in found:
            yield CommittedChange(event=event, registration=found[agent_id])


def _synthetic_event(kind: EventType, known: Registration | CatalogEntry, revision: int) -> Event:
    """An event for those who keep something of each agent; it is in no log."""
    return Event(
        revision=revision,
        type=kind,
        id=known.id,
        at=known.changed_at,
        etag=known.etag,
        owner=known.owner,
        visibility=known.visibility,
        invitees=known.invitees,
    )


class FollowerIndexer(Indexer):
    """The index of a process that saves none: it reads what the writer saved, and keeps in memory what came after. Whatever
    would save or clear is not called here: those files are the writer's."""

    async def catch_up(self, revision: int) -> None:
        indexed = await asyncio.to_thread(self._ranker.follow)
        if indexed == 0 or indexed + 1 < await self._store.oldest_event():
            async for registrations in self._store.scan():
                for registration in registrations:
                    self._ranker.made.put(registration)
        else:
            await self._replay(indexed, revision)
        self._ranker.caught_up()

    async def fold(self, revision: int) -> None:
        if self._ranker.has_caught_up:
            await asyncio.to_thread(self._ranker.follow)

    async def compact_if_due(self, revision: int) -> None:
        await self.fold(revision)
