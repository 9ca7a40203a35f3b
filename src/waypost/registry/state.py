"""The state that commits change: catalog, record caches, hosted domains, search index, change log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from waypost import limits
from waypost.cache import LruCache
from waypost.model.events import Event
from waypost.model.registration import Registration, memory_of
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.entries import entry_of
from waypost.registry.catalog.entry_columns import EntryColumns
from waypost.registry.change_log import ChangeLog
from waypost.registry.jobs.indexer import LiveIndex
from waypost.registry.ports import CommittedChange, Store

Observer = Callable[[CommittedChange], None]
_RECENT_REMOVALS = 1000  # events that are searched for removals at the start


def make_record_cache() -> LruCache[str, Registration]:
    return LruCache(limits.RECORD_CACHE_BYTES, memory_of, max_entries=limits.RECORD_CACHE)


class RegistryState:
    """Readers only read it; `apply` alone changes it, after the store has committed."""

    def __init__(self, index: LiveIndex, changes: ChangeLog, announce: Callable[[int], None] | None) -> None:
        """`announce` gets each revision before a caller is answered with it; None if no other process follows."""
        self.catalog = Catalog()
        self.records = make_record_cache()
        self.bare_records = make_record_cache()  # without their documents
        self.hosted: dict[str, str] = {}  # agent ids by domain; an entry may have moved on to another domain
        self._index = index
        self.changes = changes
        self._announce = announce
        self._observers: list[Observer] = []

    async def load(self, store: Store) -> None:
        async for page in store.entries():
            columns = EntryColumns.of(page)
            self.catalog.load(columns)
            self.hosted.update(columns.rows_with("domain", "id"))
        await self._load_removal_times(store)

    async def _load_removal_times(self, store: Store) -> None:
        """`Last-Modified` of a list counts removals; the newest ones are in the log."""
        newest: dict[tuple[Any, ...], Event] = {}  # by audience: most events have the same
        for event in await store.events(max(0, self.changes.revision - _RECENT_REMOVALS), _RECENT_REMOVALS):
            key = event.owner, event.visibility, event.invitees, event.before
            if key not in newest or newest[key].at < event.at:
                newest[key] = event
        for event in newest.values():
            self.catalog.set_modified({*event.scopes, *(event.before or ())}, event.at)

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` for every committed change, on the event loop."""
        self._observers.append(observer)

    def apply_commit(self, batch: Sequence[CommittedChange]) -> None:
        self.apply(batch, [committed.event for committed in batch])

    def apply(self, changes: Iterable[CommittedChange], events: Sequence[Event]) -> None:
        """`events` are all events of the log; `changes` may leave out those that a later one of the same agent covers."""
        for committed in changes:
            self._apply(committed)
        self.changes.append(events)
        self.announce()

    def skip_to(self, revision: int) -> None:
        """Go on from `revision`: the changes up to it were applied, and their events are no longer in the log."""
        self.changes.skip_to(revision)
        self.announce()

    def announce(self) -> None:
        if self._announce is not None:
            self._announce(self.changes.revision)

    def _apply(self, committed: CommittedChange) -> None:
        event, registration = committed.event, committed.registration
        was_read, was_read_bare = self.records.drop(event.id), self.bare_records.drop(event.id)
        if registration is None:
            self.catalog.remove(event.id, event.at)
            self._index.remove(event.id, event.revision)
        else:
            if was_read or was_read_bare:  # another one would take the place of a record that is read
                self.records.put(event.id, registration)
            entry = committed.entry or entry_of(registration)
            if event.type == "renewed" and self.catalog.is_alive(event.id):
                self.catalog.renew(entry)
            else:
                self.catalog.put(entry, event.at)
                self._index.put(registration)
                if registration.hosted:
                    self.hosted[registration.hosted] = event.id
        for observer in self._observers:
            observer(committed)
