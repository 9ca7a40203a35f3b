"""The reference store: everything in dictionaries, nothing after the process. Says by its brevity what a store must do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import accumulate, islice

from waypost import limits
from waypost.model.events import Event
from waypost.model.history import Version, replaced_version
from waypost.model.registration import Brief, Entry, Registration, brief_of
from waypost.registry.entries import entry_of
from waypost.registry.ports import (
    Answer,
    AuditPage,
    AuditQuery,
    Change,
    Command,
    Committed,
    Held,
    Idempotency,
    Noted,
    Tombstone,
)
from waypost.stores.memory_audit import MemoryAudit
from waypost.stores.outcome import (
    closed_refusal,
    commit_change,
    is_renewal,
    kept_answer,
    logged_event,
    read_logged,
    replay,
    without_documents,
)
from waypost.trust.merkle import Span

_PAGE = 1024


class MemoryStore:
    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}
        self._aliases: dict[str, str] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._events: dict[int, Event] = {}  # in the order of revisions
        self._answers: dict[str, tuple[Idempotency, Answer]] = {}
        self._secrets: dict[str, bytes] = {}
        self._revision = 0
        self._notes: dict[str, bytes] = {}
        self._history: dict[str, list[Version]] = {}  # newest first
        self._audit = MemoryAudit()
        self._listener: Callable[[Sequence[Committed]], None] | None = None
        self._noted: Noted | None = None

    async def open(self, listener: Callable[[Sequence[Committed]], None], noted: Noted | None = None) -> None:
        self._listener = listener
        self._noted = noted

    async def close(self) -> None:
        self._listener = None

    async def healthy(self) -> bool:
        return self._listener is not None

    # --- Writing ---------------------------------------------------------------------------------

    async def execute(self, command: Command) -> Answer:
        if self._listener is None:
            raise closed_refusal()
        known = self._answers.get(command.idempotency.key) if command.idempotency else None
        if known is not None and command.idempotency is not None:
            return replay(known[1], known[0].fingerprint, command.idempotency)
        decision = command.decide(self._held(command.keys, command.notes))
        answer = Answer(outcome=decision.outcome, registration=decision.registration, revision=self._revision)
        committed = None
        if decision.change is not None:
            committed = commit_change(decision.change, self._revision + 1)
            self._apply(decision.change, committed)
            answer = Answer(
                outcome=decision.outcome,
                registration=committed.registration or decision.registration,
                revision=committed.event.revision,
            )
        self._put_notes(decision.notes)
        self._audit.append(decision.audit)
        if command.idempotency is not None and decision.refusal is None:
            self._answers[command.idempotency.key] = (command.idempotency, kept_answer(answer))
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

    def _held(self, keys: Sequence[str], notes: Sequence[str]) -> Held:
        ids = dict.fromkeys(found for key in keys for found in (key, self._aliases.get(key)) if found is not None)
        return Held(
            registrations={each: self._registrations[each] for each in ids if each in self._registrations},
            tombstones={key: self._tombstones[key] for key in keys if key in self._tombstones},
            revision=self._revision,
            notes={name: self._notes[name] for name in notes if name in self._notes},
        )

    def _apply(self, change: Change, committed: Committed) -> None:
        event = committed.event
        before = self._registrations.pop(event.id, None)
        after = committed.registration
        if before is None and after is None:
            raise ValueError("A change cannot remove what is not there.")
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
        self._events[event.revision] = logged_event(event)
        self._revision = event.revision

    def _keep_version(self, version: Version | None, agent_id: str) -> None:
        if version is None:
            return
        versions = [version, *self._history.get(agent_id, ())][: limits.HISTORY_VERSIONS]
        bytes_so_far = accumulate(len(each.record) for each in versions)
        self._history[agent_id] = [
            each for each, total in zip(versions, bytes_so_far, strict=True) if total <= limits.HISTORY_BYTES
        ]

    def _name(self, agent_id: str, before: Registration | None, after: Registration | None) -> None:
        """An alias stays with its first holder until that one drops it or is removed."""
        for alias in before.aliases if before is not None else ():
            if self._aliases.get(alias) == agent_id:
                del self._aliases[alias]
        for alias in after.aliases if after is not None else ():
            self._aliases.setdefault(alias, agent_id)

    async def prune(
        self, *, events_before: float, keep_events: int, now: float, keep_audit: int = limits.AUDIT_KEEP
    ) -> int:
        rows = self._audit.prune(keep_audit)
        for revision, event in list(self._events.items()):
            if event.at >= events_before or revision > self._revision - keep_events:
                break
            del self._events[revision]
            rows += 1
        for agent_id in [each.id for each in self._tombstones.values() if each.forget_at <= now]:
            del self._tombstones[agent_id]
            rows += 1
        for key in [key for key, (idempotency, _) in self._answers.items() if idempotency.forget_at <= now]:
            del self._answers[key]
            rows += 1
        return rows

    async def document(self, entry: Entry, dialect: str) -> tuple[str, bytes] | None:
        registration = self._registrations.get(entry.id)
        source = registration.source(dialect) if registration is not None else None
        return None if registration is None or source is None else (registration.etag, source.document)

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._secrets:
            self._secrets[name] = make()
        return self._secrets[name]

    # --- Reading ---------------------------------------------------------------------------------

    async def revision(self) -> int:
        return self._revision

    async def entries(self) -> AsyncIterator[Sequence[Entry]]:
        ids = sorted(self._registrations)
        for start in range(0, len(ids), _PAGE):
            page = (self._registrations.get(each) for each in ids[start : start + _PAGE])
            yield [entry_of(registration) for registration in page if registration is not None]

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        found = {each: self._registrations[each] for each in ids if each in self._registrations}
        return found if sources else {each: without_documents(value) for each, value in found.items()}

    async def briefs(self, entries: Sequence[Entry]) -> dict[str, Brief]:
        ids = (entry.id for entry in entries)
        return {each: brief_of(self._registrations[each]) for each in ids if each in self._registrations}

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

    async def history(self, agent_id: str, limit: int = limits.HISTORY_VERSIONS) -> list[Version]:
        return self._history.get(agent_id, [])[:limit]

    async def audit(self, query: AuditQuery) -> AuditPage:
        return self._audit.page(query)

    async def audit_size(self) -> int:
        return self._audit.size

    async def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        return self._audit.hashes(spans)

    async def events(self, after: int, limit: int) -> Sequence[Event]:
        first = max(after + 1, await self.oldest_event())
        found = (self._events[revision] for revision in islice(range(first, self._revision + 1), limit))
        return [read_logged(event, self._registrations.get(event.id)) for event in found]

    async def oldest_event(self) -> int:
        return next(iter(self._events), self._revision + 1)
