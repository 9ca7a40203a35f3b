"""A group of writes: decided on the replica inside an open SQLite transaction, described for the log, and applied to other
replicas.

The open transaction is the overlay: each command sees what earlier ones of its group wrote. A group is decided as if no
other node wrote meanwhile. If one did, PostgreSQL moves the revisions of the group, and every node, including the one that
decided it, applies the group from the log with the moved revisions.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from waypost import limits
from waypost.model.events import Event, RecordVersion
from waypost.model.registration import Registration
from waypost.registry.catalog.entries import entry_of
from waypost.registry.ports import (
    AuditEntry,
    Command,
    CommandResult,
    CommittedChange,
    Decision,
    Idempotency,
    StoreState,
    Tombstone,
)
from waypost.stores.commit import from_logged_event, strip_result
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.database import Failpoint
from waypost.stores.sqlite.transaction import WriteTransaction

_NAME, _NOTE, _ANSWER = "a", "n", "i"  # kinds of names in a read set: ids and aliases, notes, idempotency keys


class StoredRegistration(msgspec.Struct, frozen=True, array_like=True):
    """A registration: JSON as in SQLite, which has numbers that MessagePack has not, and its documents."""

    data: bytes
    documents: bytes

    @classmethod
    def of(cls, registration: Registration) -> StoredRegistration:
        return cls(*rows.registration_row(registration))

    @property
    def row(self) -> tuple[bytes, bytes]:
        """Its columns in SQLite, where the revision is that of the entry."""
        return self.data, self.documents

    def read_bare(self, revision: int) -> Registration:
        """Without the documents."""
        return msgspec.structs.replace(_registration_decoder.decode(self.data), revision=revision)

    def read(self, revision: int) -> Registration:
        value = _registration_decoder.decode(self.data)
        documents = _documents_decoder.decode(self.documents)
        sources = tuple(
            msgspec.structs.replace(source, document=document)
            for source, document in zip(value.sources, documents, strict=True)
        )
        return msgspec.structs.replace(value, revision=revision, sources=sources)


class StoredAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The result stored for an idempotency key. `revision` is moved with those of its group."""

    key: str
    fingerprint: str
    forget_at: float
    result: bytes  # JSON
    revision: int
    registration_revision: int

    def read(self, move: Move) -> tuple[Idempotency, CommandResult]:
        result = msgspec.structs.replace(_result_decoder.decode(self.result), revision=move(self.revision))
        if result.registration is not None:
            registration = msgspec.structs.replace(result.registration, revision=move(self.registration_revision))
            result = msgspec.structs.replace(result, registration=registration)
        return Idempotency(key=self.key, fingerprint=self.fingerprint, forget_at=self.forget_at), result


class PruneArguments(msgspec.Struct, frozen=True, array_like=True):
    events_before: float
    keep_events: int
    now: float
    keep_audit: int
    keep_bytes: int


class LoggedWrite(msgspec.Struct, frozen=True, array_like=True):
    """What one command wrote. Revisions are those that its node assumed."""

    event: bytes | None = None  # JSON without the record
    record: bytes | None = None
    registration: StoredRegistration | None = None
    tombstone: bytes | None = None  # JSON
    notes: dict[str, bytes | None] = {}
    audit: tuple[AuditEntry, ...] = ()
    answer: StoredAnswer | None = None
    prune: PruneArguments | None = None


class LoggedGroup(msgspec.Struct, frozen=True, array_like=True):
    base: int  # the revision before the group, as its node assumed
    writes: tuple[LoggedWrite, ...]
    source: bytes = b""  # node and number: makes equal groups of different histories differ

    def move(self, base: int) -> Move:
        return Move(self.base, base - self.base)


class Move(msgspec.Struct, frozen=True):
    """Turns an assumed revision into the one that PostgreSQL gave."""

    base: int
    by: int

    def __call__(self, revision: int) -> int:
        return revision + self.by if revision > self.base else revision

    def result(self, result: CommandResult) -> CommandResult:
        """The result for the caller, who was not answered yet."""
        if not self.by:
            return result
        registration = self._registration(result.registration)
        return msgspec.structs.replace(result, revision=self(result.revision), registration=registration)

    def change(self, change: CommittedChange) -> CommittedChange:
        if not self.by:
            return change
        event, entry = change.event, change.entry
        return CommittedChange(
            event=msgspec.structs.replace(event, revision=self(event.revision)),
            registration=self._registration(change.registration),
            entry=None if entry is None else msgspec.structs.replace(entry, revision=self(entry.revision)),
        )

    def _registration(self, registration: Registration | None) -> Registration | None:
        if registration is None:
            return None
        return msgspec.structs.replace(registration, revision=self(registration.revision))


_encode_json = msgspec.json.Encoder().encode
_registration_decoder = msgspec.json.Decoder(Registration)
_documents_decoder = msgspec.msgpack.Decoder(list[bytes])
_result_decoder = msgspec.json.Decoder(CommandResult)
_event_decoder = msgspec.json.Decoder(Event)
_tombstone_decoder = msgspec.json.Decoder(Tombstone)
encode = msgspec.msgpack.Encoder().encode
decode_group = msgspec.msgpack.Decoder(LoggedGroup).decode
decode_registration = msgspec.msgpack.Decoder(StoredRegistration).decode
decode_answer = msgspec.msgpack.Decoder(StoredAnswer).decode
decode_audit_entry = msgspec.msgpack.Decoder(AuditEntry).decode
decode_version = msgspec.msgpack.Decoder(RecordVersion).decode
decode_tombstone = _tombstone_decoder.decode


def read_event(write: LoggedWrite, move: Move) -> Event:
    event = _event_decoder.decode(write.event or b"")
    return msgspec.structs.replace(event, revision=move(event.revision), record=write.record)


def key_of(name: str) -> bytes:
    """The key of a name in PostgreSQL."""
    return hashlib.sha256(name.encode()).digest()


class _Names:
    """The hashes of names in a group, each computed once."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, str], int] = {}

    def hash(self, kind: str, name: str) -> int:
        """64 bits: a collision costs one needless retry."""
        found = self._hashes.get((kind, name))
        if found is None:
            digest = hashlib.blake2b(f"{kind}{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
            found = self._hashes[kind, name] = int.from_bytes(digest, signed=True)
        return found


class DecidedGroup(msgspec.Struct, frozen=True):
    """What a node keeps of a group that it decided, until it is applied: its writes need not be decoded again."""

    source: bytes
    changes: Mapping[int, CommittedChange]  # by the place of their write, with assumed revisions


class _Touched:
    """What a group changed, by name: PostgreSQL gets the state after the whole group, not every step."""

    def __init__(self) -> None:
        self.registrations: dict[str, tuple[int, StoredRegistration | None]] = {}  # with the revision
        self.aliases: set[str] = set()
        self.tombstones: dict[str, Tombstone | None] = {}
        self.notes: dict[str, bytes | None] = {}
        self.answers: dict[str, StoredAnswer] = {}
        self.versions: list[tuple[str, RecordVersion]] = []
        self.removed: set[str] = set()  # their histories ended, even if they were registered again


class GroupTransaction(WriteTransaction):
    """Records what the commands of a group read and write."""

    def __init__(self, connection: sqlite3.Connection, failpoint: Failpoint) -> None:
        super().__init__(connection, failpoint)
        self._start_group()

    def _start_group(self) -> None:
        self.base = self.revision
        self.writes: list[LoggedWrite] = []
        self._reads: dict[tuple[str, str], None] = {}
        self._names = _Names()
        self._touched = _Touched()
        self._decided: dict[int, CommittedChange] = {}
        self._start_command()

    def _start_command(self) -> None:
        self._written: tuple[CommittedChange | None, Tombstone | None, Mapping[str, bytes | None]] | None = None
        self._answer: StoredAnswer | None = None
        self._versions: list[tuple[str, RecordVersion]] = []
        self._is_revived = False  # the command ended a tombstone
        self._registration: StoredRegistration | None = None  # the rows of the command, which go into the log, too
        self._event: tuple[int, float, bytes, int, bytes | None] | None = None

    def begin(self) -> None:
        super().begin()
        self._start_group()

    # --- Record ----------------------------------------------------------------------------------

    def execute(self, command: Command) -> CommandResult:
        self._start_command()
        for key in command.keys:
            self._reads[_NAME, key] = None
        for name in command.notes:
            self._reads[_NOTE, name] = None
        if command.idempotency is not None:
            self._reads[_ANSWER, command.idempotency.key] = None
        waiting = len(self.audit.waiting)
        try:
            return super().execute(command)
        finally:  # a refusal can have notes and audit entries, too
            self._record(tuple(self.audit.waiting[waiting:]))

    def _record(self, audit: tuple[AuditEntry, ...]) -> None:
        if self._written is None and self._answer is None and not audit:
            return
        committed, tombstone, notes = self._written or (None, None, {})
        touched = self._touched
        if committed is not None:
            self._decided[len(self.writes)] = committed
            stored = self._stored_registration(committed.registration)
            touched.registrations[committed.event.id] = (committed.event.revision, stored)
            if tombstone is not None or self._is_revived:
                touched.tombstones[committed.event.id] = tombstone
            if committed.registration is None:
                touched.removed.add(committed.event.id)
                touched.versions = [each for each in touched.versions if each[0] != committed.event.id]
        touched.notes.update(notes)
        touched.versions += self._versions
        if self._answer is not None:
            touched.answers[self._answer.key] = self._answer
        self.writes.append(self._describe(committed, tombstone, notes, audit))

    def _stored_registration(self, registration: Registration | None) -> StoredRegistration | None:
        if registration is None:
            return None
        if self._registration is None:  # a renewal, which writes no row of it
            self._registration = StoredRegistration.of(registration)
        return self._registration

    def _describe(
        self,
        committed: CommittedChange | None,
        tombstone: Tombstone | None,
        notes: Mapping[str, bytes | None],
        audit: tuple[AuditEntry, ...],
    ) -> LoggedWrite:
        if committed is None or self._event is None:
            return LoggedWrite(notes=dict(notes), audit=audit, answer=self._answer)
        return LoggedWrite(
            event=self._event[2],
            record=self._event[4],
            registration=self._stored_registration(committed.registration),
            tombstone=None if tombstone is None else _encode_json(tombstone),
            notes=dict(notes),
            audit=audit,
            answer=self._answer,
        )

    def _write(
        self, keys: Sequence[str], held: StoreState, decision: Decision, idempotency: Idempotency | None
    ) -> CommandResult:
        count = len(self.changes)
        try:
            answer = super()._write(keys, held, decision, idempotency)
        except BaseException:
            self._answer = None
            raise
        committed = self.changes[-1] if len(self.changes) > count else None
        self._written = (committed, decision.change.tombstone if decision.change else None, decision.notes)
        return answer

    def _held(self, keys: Sequence[str], notes: Sequence[str] = ()) -> StoreState:
        for key in keys:
            self._reads[_NAME, key] = None
        return super()._held(keys, notes)

    def _put(
        self, before: Registration | None, after: Registration, number: int, entry: bytes, *, is_new: bool
    ) -> None:
        super()._put(before, after, number, entry, is_new=is_new)
        self._touched.aliases.update(after.aliases)
        if before is not None:
            self._touched.aliases.update(before.aliases)

    def _registration_row(self, registration: Registration) -> tuple[bytes, bytes]:
        if self._registration is None:
            self._registration = StoredRegistration.of(registration)
        return self._registration.row

    def _event_row(self, event: Event) -> tuple[int, float, bytes, int, bytes | None]:
        self._event = super()._event_row(event)
        return self._event

    def _bury(self, agent_id: str, tombstone: Tombstone | None, held: StoreState) -> None:
        super()._bury(agent_id, tombstone, held)
        self._is_revived = tombstone is None and agent_id in held.tombstones

    def _remove(self, before: Registration | None, number: int | None) -> None:
        super()._remove(before, number)
        if before is not None:
            self._touched.aliases.update(before.aliases)

    def _keep_version(self, version: RecordVersion | None, agent_id: str) -> None:
        super()._keep_version(version, agent_id)
        if version is not None:
            self._versions.append((agent_id, version))

    def _keep_answer(self, idempotency: Idempotency, answer: CommandResult) -> None:
        super()._keep_answer(idempotency, answer)
        stripped = strip_result(answer)
        registration = stripped.registration
        self._answer = StoredAnswer(
            idempotency.key,
            idempotency.fingerprint,
            idempotency.forget_at,
            _encode_json(stripped),
            answer.revision,
            registration.revision if registration is not None else 0,
        )

    def prune(self, *, events_before: float, keep_events: int, now: float, keep_audit: int, keep_bytes: int) -> int:
        arguments = PruneArguments(events_before, keep_events, now, keep_audit, keep_bytes)
        count = super().prune(**msgspec.structs.asdict(arguments))
        if count:
            self.writes.append(LoggedWrite(prune=arguments))
        return count

    # --- Describe --------------------------------------------------------------------------------

    def reads(self) -> list[int]:
        return [self._names.hash(kind, name) for kind, name in self._reads]

    def names(self) -> list[int]:
        """All names that the group wrote."""
        touched = self._touched
        written = {(_NAME, name) for name in (*touched.registrations, *touched.aliases, *touched.tombstones)}
        written.update((_NOTE, name) for name in touched.notes)
        written.update((_ANSWER, name) for name in touched.answers)
        return [self._names.hash(kind, name) for kind, name in written]

    def decided(self, source: bytes) -> DecidedGroup:
        return DecidedGroup(source, self._decided)

    def payload(self, source: bytes) -> bytes | None:
        return encode(LoggedGroup(self.base, tuple(self.writes), source)) if self.writes else None

    def arrays(self) -> list[Any]:
        """The arguments of `store_group` that are rows: the state of everything touched, after the group. None stands for an
        empty array: it takes no time to encode, and no statement to write."""
        touched = self._touched
        agents = [(agent_id, *found) for agent_id, found in touched.registrations.items() if found[1] is not None]
        removed = [agent_id for agent_id, (_, found) in touched.registrations.items() if found is None]
        holders = {alias: self._find_alias(alias) for alias in sorted(touched.aliases)}
        aliases = [(alias, holder) for alias, holder in holders.items() if holder is not None]
        tombs = [tomb for tomb in touched.tombstones.values() if tomb is not None]
        notes = [(name, value) for name, value in touched.notes.items() if value is not None]
        answers, versions = touched.answers, touched.versions
        arrays = [
            [key_of(agent_id) for agent_id, _, _ in agents],
            [agent_id.encode() for agent_id, _, _ in agents],
            [revision for _, revision, _ in agents],
            [encode(stored) for _, _, stored in agents],
            [key_of(agent_id) for agent_id in removed],
            [key_of(alias) for alias, _ in aliases],
            [alias.encode() for alias, _ in aliases],
            [holder.encode() for _, holder in aliases],
            [key_of(alias) for alias, holder in holders.items() if holder is None],
            [key_of(tomb.id) for tomb in tombs],
            [tomb.id.encode() for tomb in tombs],
            [tomb.forget_at for tomb in tombs],
            [_encode_json(tomb) for tomb in tombs],
            [key_of(agent_id) for agent_id, tomb in touched.tombstones.items() if tomb is None],
            [key_of(name) for name, _ in notes],
            [name.encode() for name, _ in notes],
            [value for _, value in notes],
            [key_of(name) for name, value in touched.notes.items() if value is None],
            [key_of(key) for key in answers],
            [each.forget_at for each in answers.values()],
            [encode(each) for each in answers.values()],
            [key_of(agent_id) for agent_id in touched.removed],
            [key_of(agent_id) for agent_id, _ in versions],
            [agent_id.encode() for agent_id, _ in versions],
            [version.revision for _, version in versions],
            [encode(version) for _, version in versions],
            limits.HISTORY_VERSIONS,
            [encode(entry) for write in self.writes for entry in write.audit],
        ]
        return [each or None for each in arrays]

    def _find_alias(self, alias: str) -> str | None:
        for (agent_id,) in self._run("SELECT id FROM aliases WHERE alias = ?", (alias,)).fetchall():
            return str(agent_id)
        return None

    # --- Apply -----------------------------------------------------------------------------------

    def apply(self, group: LoggedGroup, base: int, decided: DecidedGroup | None = None) -> None:
        """Write a group of the log, which was decided elsewhere or with other revisions. `decided`: the one that this node has
        decided, if it is among those that are applied."""
        move = group.move(base)
        known = decided.changes if decided is not None and decided.source == group.source else {}
        for place, write in enumerate(group.writes):
            if write.prune is not None:
                super().prune(**msgspec.structs.asdict(write.prune))
                continue
            if write.event is not None:
                change = move.change(known[place]) if place in known else _read_change(write, move)
                self._apply_change(write, change)
            if write.notes:
                self._put_notes(write.notes)
                self.noted.update(write.notes)
            if write.answer is not None:
                idempotency, result = write.answer.read(move)
                super()._keep_answer(idempotency, result)
            self.audit.waiting += write.audit

    def _apply_change(self, write: LoggedWrite, change: CommittedChange) -> None:
        self._start_command()
        self._registration = write.registration
        tombstone = None if write.tombstone is None else _tombstone_decoder.decode(write.tombstone)
        self._store_change(change, tombstone, self._held((change.event.id,)))


def _read_change(write: LoggedWrite, move: Move) -> CommittedChange:
    event = read_event(write, move)
    registration = None if write.registration is None else write.registration.read(event.revision)
    entry = None if registration is None else entry_of(registration)
    return CommittedChange(event=from_logged_event(event, registration), registration=registration, entry=entry)
