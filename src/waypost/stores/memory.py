"""The in-memory store: the reference implementation of the port, without persistence."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.events import Event, RecordVersion, replaced_version
from waypost.model.registration import CatalogEntry, Registration
from waypost.registry.audit_trail import audit_leaf
from waypost.registry.catalog.entries import entry_of
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.registry.ports import (
    AuditEntry,
    AuditLogPage,
    AuditQuery,
    Command,
    CommandResult,
    CommittedChange,
    Idempotency,
    NewestDocument,
    NoteListener,
    RegistrationChange,
    StoreState,
    Tombstone,
)
from waypost.stores.commit import (
    commit_change,
    from_logged_event,
    is_renewal,
    replay_result,
    store_closed_error,
    strip_result,
    to_logged_event,
    without_documents,
)
from waypost.trust.transparency_log import TILE_WIDTH, Span, TileFrontier, leaf_hash, span_hash


class MemoryAuditLog:
    def __init__(self) -> None:
        self._frontier = TileFrontier()
        self._leaves: dict[int, bytes] = {}  # by number, without pruned ones
        self._tiles: dict[tuple[int, int], bytes] = {}

    @property
    def size(self) -> int:
        return self._frontier.size

    def append(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            number = self.size + 1
            self._leaves[number] = leaf = audit_leaf(entry, number)
            for tile in self._frontier.append(leaf_hash(leaf)):
                self._tiles[tile.level, tile.number] = tile.hashes

    def page(self, query: AuditQuery) -> AuditLogPage:
        oldest = next(iter(self._leaves), 1)
        after = max(query.after, oldest - 1)
        last = min(self.size, after + limits.AUDIT_SCAN)
        found: list[bytes] = []
        for number in range(after + 1, last + 1):
            if len(found) == query.limit:
                last = number - 1
                break
            if all(part in self._leaves[number] for part in query.parts()):
                found.append(self._leaves[number])
        return AuditLogPage(leaves=found, size=self.size, oldest=oldest, next_after=last if last < self.size else None)

    def hashes(self, spans: Sequence[Span]) -> list[bytes]:
        return [span_hash(span, self._tile) for span in spans]

    def _tile(self, level: int, number: int) -> bytes:
        return self._tiles.get((level, number)) or self._frontier.row(level)

    def prune(self, keep: int) -> int:
        last = max(0, self.size - max(keep, 1)) // TILE_WIDTH * TILE_WIDTH
        gone = [number for number in self._leaves if number <= last]
        for number in gone:
            del self._leaves[number]
        return len(gone)


_PAGE = 1024

_EVENT_BYTES = 256  # about as much as an event without its record takes


def _logged_bytes(event: Event) -> int:
    return _EVENT_BYTES + len(event.record or b"")


class MemoryStore:
    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}
        self._aliases: dict[str, str] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._events: dict[int, Event] = {}  # in order of revision
        self._answers: dict[str, tuple[Idempotency, CommandResult]] = {}
        self._secrets: dict[str, bytes] = {}
        self._revision = 0
        self._notes: dict[str, bytes] = {}
        self._history: dict[str, list[RecordVersion]] = {}  # newest first
        self._audit = MemoryAuditLog()
        self._listener: Callable[[Sequence[CommittedChange]], None] | None = None
        self._noted: NoteListener | None = None

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        self._listener = listener
        self._noted = noted

    async def close(self) -> None:
        self._listener = None

    async def healthy(self) -> bool:
        return self._listener is not None

    # --- Writes ----------------------------------------------------------------------------------

    async def execute(self, command: Command) -> CommandResult:
        if self._listener is None:
            raise store_closed_error()
        known = self._answers.get(command.idempotency.key) if command.idempotency else None
        if known is not None and command.idempotency is not None:
            return replay_result(known[1], known[0].fingerprint, command.idempotency)
        decision = command.decide(self._held(command.keys, command.notes))
        answer = CommandResult(outcome=decision.outcome, registration=decision.registration, revision=self._revision)
        committed = None
        if decision.change is not None:
            committed = commit_change(decision.change, self._revision + 1)
            self._apply(decision.change, committed)
            answer = CommandResult(
                outcome=decision.outcome,
                registration=committed.registration or decision.registration,
                revision=committed.event.revision,
            )
        self._put_notes(decision.notes)
        self._audit.append(decision.audit)
        if command.idempotency is not None and decision.refusal is None:
            self._answers[command.idempotency.key] = (command.idempotency, strip_result(answer))
        if decision.notes and self._noted is not None:
            self._noted(decision.notes)
        if committed is not None:
            self._listener((committed,))
        if decision.refusal is not None:
            raise decision.refusal
        return answer

    def _put_notes(self, notes: Mapping[str, bytes | None]) -> None:
        for name, value in notes.items():
            if value is None:
                self._notes.pop(name, None)
            else:
                self._notes[name] = value

    def _held(self, keys: Sequence[str], notes: Sequence[str]) -> StoreState:
        ids = dict.fromkeys(found for key in keys for found in (key, self._aliases.get(key)) if found is not None)
        return StoreState(
            registrations={each: self._registrations[each] for each in ids if each in self._registrations},
            tombstones={key: self._tombstones[key] for key in keys if key in self._tombstones},
            revision=self._revision,
            notes={name: self._notes[name] for name in notes if name in self._notes},
        )

    def _apply(self, change: RegistrationChange, committed: CommittedChange) -> None:
        event = committed.event
        before = self._registrations.pop(event.id, None)
        after = committed.registration
        if before is None and after is None:
            raise ValueError("A change cannot remove an unknown agent.")
        if after is not None:
            self._registrations[event.id] = after
            self._tombstones.pop(event.id, None)
            self._keep_version(replaced_version(before, after, event.type), event.id)
        else:
            self._history.pop(event.id, None)
        if after is None or not is_renewal(before, after):
            self._name(event.id, before, after)
        if change.tombstone is not None:
            self._tombstones[change.tombstone.id] = change.tombstone
        self._events[event.revision] = to_logged_event(event)
        self._revision = event.revision

    def _keep_version(self, version: RecordVersion | None, agent_id: str) -> None:
        if version is None:
            return
        versions = [version, *self._history.get(agent_id, ())][: limits.HISTORY_VERSIONS]
        bytes_so_far = accumulate(len(each.record) for each in versions)
        self._history[agent_id] = [
            each for each, total in zip(versions, bytes_so_far, strict=True) if total <= limits.HISTORY_BYTES
        ]

    def _name(self, agent_id: str, before: Registration | None, after: Registration | None) -> None:
        """An alias belongs to its first holder until that one drops it or is removed."""
        for alias in before.aliases if before is not None else ():
            if self._aliases.get(alias) == agent_id:
                del self._aliases[alias]
        for alias in after.aliases if after is not None else ():
            self._aliases.setdefault(alias, agent_id)

    async def prune(
        self,
        *,
        events_before: float,
        keep_events: int,
        now: float,
        keep_audit: int = limits.AUDIT_KEEP,
        keep_bytes: int = limits.WATCH_KEEP_BYTES,
    ) -> int:
        rows = self._audit.prune(keep_audit)
        log_bytes = sum(map(_logged_bytes, self._events.values()))
        for revision, event in list(self._events.items()):
            is_kept = event.at >= events_before or revision > self._revision - keep_events
            if is_kept and log_bytes <= keep_bytes:
                break
            log_bytes -= _logged_bytes(self._events.pop(revision))
            rows += 1
        for agent_id in [each.id for each in self._tombstones.values() if each.forget_at <= now]:
            del self._tombstones[agent_id]
            rows += 1
        for key in [key for key, (idempotency, _) in self._answers.items() if idempotency.forget_at <= now]:
            del self._answers[key]
            rows += 1
        return rows

    async def document(self, entry: CatalogEntry, dialect: str) -> tuple[str, bytes] | None:
        registration = self._registrations.get(entry.id)
        source = registration.source(dialect) if registration is not None else None
        return None if registration is None or source is None else (registration.etag, source.document)

    async def newest_documents(self, entries: Sequence[CatalogEntry]) -> dict[str, NewestDocument]:
        found = ((entry.id, self._registrations.get(entry.id)) for entry in entries)
        return {
            agent_id: NewestDocument(held.etag, held.sources[0].dialect, held.sources[0].document)
            for agent_id, held in found
            if held is not None and held.sources
        }

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._secrets:
            self._secrets[name] = make()
        return self._secrets[name]

    async def execute_all(self, commands: Sequence[Command]) -> list[CommandResult | WaypostError]:
        results: list[CommandResult | WaypostError] = []
        for command in commands:
            try:
                results.append(await self.execute(command))
            except WaypostError as refusal:
                results.append(refusal)
        return results

    # --- Reads -----------------------------------------------------------------------------------

    async def revision(self) -> int:
        return self._revision

    async def entries(self) -> AsyncIterator[Sequence[CatalogEntry]]:
        ids = sorted(self._registrations)
        for start in range(0, len(ids), _PAGE):
            page = (self._registrations.get(each) for each in ids[start : start + _PAGE])
            yield [entry_of(registration) for registration in page if registration is not None]

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        found = {each: self._registrations[each] for each in ids if each in self._registrations}
        return found if sources else {each: without_documents(value) for each, value in found.items()}

    async def scan(self, ids: Sequence[str] | None = None) -> AsyncIterator[Sequence[Registration]]:
        wanted = sorted(self._registrations if ids is None else set(ids))
        for start in range(0, len(wanted), _PAGE):
            found = await self.fetch(wanted[start : start + _PAGE])
            if found:
                yield list(found.values())

    async def tombstone(self, agent_id: str) -> Tombstone | None:
        return self._tombstones.get(agent_id)

    async def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        found = ((name, value) for name, value in self._notes.items() if name.startswith(prefix) and name > after)
        return sorted(found)[:limit]

    async def history(self, agent_id: str, limit: int = limits.HISTORY_VERSIONS) -> list[RecordVersion]:
        return self._history.get(agent_id, [])[:limit]

    async def audit(self, query: AuditQuery) -> AuditLogPage:
        return self._audit.page(query)

    async def audit_size(self) -> int:
        return self._audit.size

    async def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        return self._audit.hashes(spans)

    async def events(self, after: int, limit: int) -> Sequence[Event]:
        first = max(after + 1, await self.oldest_event())
        found = (self._events[revision] for revision in islice(range(first, self._revision + 1), limit))
        return [from_logged_event(event, self._registrations.get(event.id)) for event in found]

    async def oldest_event(self) -> int:
        return next(iter(self._events), self._revision + 1)


def make_store(folder: Path, *, read_only: bool = False) -> MemoryStore:
    return MemoryStore()


def make_key_value_store(folder: Path) -> MemoryKeyValueStore:
    return MemoryKeyValueStore()
