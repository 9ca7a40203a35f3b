"""A process that only reads: it follows the change log that the leader writes.

It gets one number from outside, the head: the newest revision that any caller was answered with. Before a read it catches
up with the head, so that a change acknowledged by one process is visible in every other. How the head is transmitted
(shared memory, a database) and how the log is stored are not decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from waypost import limits
from waypost.model.events import Event, EventType
from waypost.model.registration import CatalogEntry, Registration
from waypost.registry.credentials.credentials import RegistryCredentials
from waypost.registry.jobs.indexer import FollowerIndexer, LiveIndex
from waypost.registry.jobs.periodic import Job
from waypost.registry.ports import Clock, CommittedChange, Store
from waypost.registry.state import RegistryState

Head = Callable[[], int]

_POLL_SECONDS = 0.02  # the delay of a watch in this process; a read checks the head itself
_EXPIRE_SECONDS = 0.5
_INDEX_SECONDS = 1.0
_TRUST_SECONDS = 2.0  # for the allow-list; revocations are checked before each request
_ENDINGS = ("withdrawn", "expired")


class Follower:
    def __init__(
        self,
        store: Store,
        state: RegistryState,
        clock: Clock,
        index: LiveIndex,
        credentials: RegistryCredentials,
        head: Head,
    ) -> None:
        self._store = store
        self._state = state
        self._catalog = state.catalog
        self._clock = clock
        self._changes = state.changes
        self._indexer = FollowerIndexer(index, store)
        self._credentials = credentials
        self._head = head
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        await self.catch_up()
        self._state.announce()

    async def catch_up_index(self) -> None:
        await self._indexer.catch_up(self._changes.revision)

    @property
    def jobs(self) -> Sequence[Job]:
        return (
            Job("catch up", _POLL_SECONDS, self.catch_up),
            Job("expire leases", _EXPIRE_SECONDS, self.expire_leases),
            Job("follow the index", _INDEX_SECONDS, self._indexer.refresh),
            Job("load the trust store", _TRUST_SECONDS, self._credentials.load),
        )

    async def stop(self) -> None:
        """Nothing to save: the leader does it."""

    async def expire_leases(self) -> None:
        """Drop expired entries from memory; the leader writes it to the store."""
        self._catalog.expire(self._clock.now())
        self._catalog.take_expired(len(self._catalog) + limits.RECORD_CACHE)

    @property
    def is_behind(self) -> bool:
        return self._changes.revision < self._head()

    async def catch_up(self) -> None:
        """Apply the log up to the head, and nothing beyond it, so that no process is ahead of another."""
        target = self._head()
        while self._changes.revision < target:
            async with self._lock:
                if self._changes.revision < target:
                    await self._advance(target)
            await asyncio.sleep(0)

    async def _advance(self, target: int) -> None:
        after = self._changes.revision
        events = await self._store.events(after, min(target - after, limits.GROUP_SLICE))
        if not events or events[0].revision != after + 1:
            await self._reload(target)
            return
        newest = _newest_events(events)
        found = await self._store.fetch([*newest])
        self._state.apply(_to_changes(newest, found), events)

    async def _reload(self, target: int) -> None:
        """The log was pruned before it was read: compare the store with memory, and apply the difference."""
        stored: set[str] = set()
        async for page in self._store.entries():
            stored.update(entry.id for entry in page)
            changed = [entry.id for entry in page if self._revision_of(entry.id) != entry.revision]
            for start in range(0, len(changed), limits.GROUP_SLICE):
                part = await self._store.fetch(changed[start : start + limits.GROUP_SLICE])
                self._state.apply((_synthetic_change("updated", each, target, each) for each in part.values()), ())
                await asyncio.sleep(0)
        gone = [self._catalog.find(agent_id) for agent_id in self._catalog.ids() if agent_id not in stored]
        self._state.apply([_synthetic_change("withdrawn", entry, target, None) for entry in gone if entry], ())
        self._state.skip_to(target)

    def _revision_of(self, agent_id: str) -> int | None:
        entry = self._catalog.find(agent_id)
        return entry.revision if entry is not None else None


def _newest_events(events: Sequence[Event]) -> dict[str, Event]:
    """The last event of each agent; a renewal says less than the event before it."""
    newest: dict[str, Event] = {}
    for event in events:
        if event.type != "renewed" or event.id not in newest:
            newest[event.id] = event
    return newest


def _to_changes(newest: Mapping[str, Event], found: Mapping[str, Registration]) -> Iterable[CommittedChange]:
    """The changes that the leader's store passed to its listener. An agent that is gone by now is left as it is: the event that
    removed it follows."""
    for agent_id, event in newest.items():
        if event.type in _ENDINGS:
            yield CommittedChange(event=event, registration=None)
        elif agent_id in found:
            yield CommittedChange(event=event, registration=found[agent_id])


def _synthetic_change(
    kind: EventType, known: Registration | CatalogEntry, revision: int, registration: Registration | None
) -> CommittedChange:
    """A change for observers, with an event that is in no log."""
    event = Event(
        revision=revision,
        type=kind,
        id=known.id,
        at=known.changed_at,
        etag=known.etag,
        owner=known.owner,
        visibility=known.visibility,
        invitees=known.invitees,
    )
    return CommittedChange(event=event, registration=registration)
