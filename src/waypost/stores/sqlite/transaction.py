"""The statements of a write, inside a transaction that the caller begins and commits.

Counters run ahead of the disk while a transaction is open: `settle` confirms them, `reset` reloads them.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from waypost import limits
from waypost.model.events import Event, RecordVersion, replaced_version
from waypost.model.registration import Registration
from waypost.registry.ports import (
    Command,
    CommandResult,
    CommittedChange,
    Decision,
    Idempotency,
    RegistrationChange,
    StoreState,
    Tombstone,
)
from waypost.stores.commit import commit_change, is_renewal, replay_result, strip_result
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.audit import AuditTable
from waypost.stores.sqlite.database import Failpoint

_PRUNE_ROWS = 500  # rows pruned at a time, so that pruning does not delay writes

# The agent with this id, the agent with this alias, and the tombstone (without a number), in one statement: running a
# statement costs as much as what it finds.
_BY_NAME = """SELECT e.id, e.number, e.entry, e.crc, r.registration, r.crc, r.documents
    FROM entries e LEFT JOIN registrations r USING (number)
    WHERE e.id IN (?1, (SELECT id FROM aliases WHERE alias = ?1))
    UNION ALL SELECT id, NULL, tombstone, crc, NULL, NULL, NULL FROM tombstones WHERE id = ?1"""
_OLDEST_VERSION = "DELETE FROM history WHERE revision = (SELECT min(revision) FROM history WHERE id = ?)"
_LARGE_VERSIONS = """DELETE FROM history WHERE revision IN (
    SELECT revision FROM (
        SELECT revision, sum(length(version)) OVER (ORDER BY revision DESC) AS bytes FROM history WHERE id = ?
    ) WHERE bytes > ?
)"""
_USUAL_VERSION_BYTES = limits.HISTORY_BYTES // limits.HISTORY_VERSIONS  # below this number no bound is checked
_LOG_BYTES, _LOG_COUNTED = "log bytes", "log bytes counted"  # the size of the log up to a revision, in `meta`
_OLDEST_EVENTS = """SELECT revision, at, length(event) + coalesce(length(record), 0) FROM events
    ORDER BY revision LIMIT ?"""
_NEWER_BYTES = "SELECT sum(length(event) + coalesce(length(record), 0)) FROM events WHERE revision > ?"
_FORGET = {
    "tombstones": "DELETE FROM tombstones WHERE id IN (SELECT id FROM tombstones WHERE forget_at <= ? LIMIT ?)",
    "answers": "DELETE FROM answers WHERE key IN (SELECT key FROM answers WHERE forget_at <= ? LIMIT ?)",
}


def _is_new(change: RegistrationChange, keys: Sequence[str], held: StoreState) -> bool:
    """Whether a change only inserts a new agent: no existing row is touched."""
    after = change.registration
    if after is None or after.aliases or change.tombstone is not None:
        return False
    agent_id = after.id
    return agent_id in keys and agent_id not in held.registrations and agent_id not in held.tombstones


class WriteTransaction:
    """The writing connection, in terms of the domain."""

    def __init__(self, connection: sqlite3.Connection, failpoint: Failpoint) -> None:
        self.connection = connection
        self._run = connection.cursor().execute
        self._failpoint = failpoint
        self._numbers: dict[str, int] = {}  # row numbers seen by the current command
        self.changes: list[CommittedChange] = []  # of the open transaction
        self.noted: dict[str, bytes | None] = {}  # likewise
        self.written_bytes = 0  # approximate WAL bytes of the open transaction
        self.audit = AuditTable(connection)
        self._read_counters()

    def reset(self) -> None:
        """After a lost transaction: reload everything that ran ahead of the disk."""
        self.audit.reset()
        self._read_counters()

    def _read_counters(self) -> None:
        ((newest, pruned),) = self._run(
            "SELECT (SELECT max(revision) FROM events), (SELECT value FROM meta WHERE name = 'pruned')"
        ).fetchall()
        self.revision = max(newest or 0, pruned or 0)
        ((number,),) = self._run("SELECT coalesce(max(number), 0) FROM registrations").fetchall()
        self._number = number
        self._clean = self._run("SELECT 1 FROM meta WHERE name = 'clean' AND value = 1").fetchall() != []
        self.changes = []
        self.noted = {}
        self.written_bytes = 0

    # --- Transactions ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._run("BEGIN IMMEDIATE")

    def before_commit(self) -> None:
        """Write all audit entries. The first write since the start clears the mark of a clean stop."""
        if self.audit.waiting:
            self.written_bytes += self.audit.flush()
            self._failpoint("after_audit")
        if self._clean:
            self.mark("clean", 0)
            self._clean = False

    def roll_back(self) -> None:
        if self.connection.in_transaction:
            self._run("ROLLBACK")
        self.reset()

    def settle(self) -> tuple[list[CommittedChange], dict[str, bytes | None]]:
        """The transaction is durable: return its changes and notes."""
        changes, self.changes = self.changes, []
        noted = self.noted
        if noted:
            self.noted = {}
        self.written_bytes = 0
        return changes, noted

    # --- One command -----------------------------------------------------------------------------

    def execute(self, command: Command) -> CommandResult:
        """Decide and write. An exception leaves the rows as they were before this command."""
        idempotency = command.idempotency
        if idempotency is not None:
            known = self._known_answer(idempotency)
            if known is not None:
                return known
        held = self._held(command.keys, command.notes)
        decision = command.decide(held)
        if decision.refusal is not None:
            idempotency = None  # a refused idempotency key may be used again
        if decision.change is None and not decision.notes:
            answer = self._idle(decision, idempotency)
        else:
            answer = self._write(command.keys, held, decision, idempotency)
        if decision.audit:
            self.audit.waiting += decision.audit
        if decision.refusal is not None:
            raise decision.refusal
        return answer

    def _idle(self, decision: Decision, idempotency: Idempotency | None) -> CommandResult:
        answer = CommandResult(outcome=decision.outcome, registration=decision.registration, revision=self.revision)
        if idempotency is not None:
            self._keep_answer(idempotency, answer)
        return answer

    def _write(
        self, keys: Sequence[str], held: StoreState, decision: Decision, idempotency: Idempotency | None
    ) -> CommandResult:
        change = decision.change
        if change is not None and idempotency is None and not decision.notes and _is_new(change, keys, held):
            return self._create(keys, held, decision, change)
        self._run("SAVEPOINT command")
        try:
            if decision.notes:
                self._put_notes(decision.notes)
            if decision.change is None:
                answer = self._idle(decision, idempotency)
            else:
                answer = self._change(keys, held, decision, decision.change, idempotency)
            self._run("RELEASE command")
        except BaseException:
            if self.connection.in_transaction:
                self._run("ROLLBACK TO command")
                self._run("RELEASE command")
            raise
        if decision.notes:
            self.noted.update(decision.notes)
        return answer

    def _create(
        self, keys: Sequence[str], held: StoreState, decision: Decision, change: RegistrationChange
    ) -> CommandResult:
        """Insert three new rows. On failure they are deleted by hand: a savepoint would copy every touched page, a fifth of the
        whole write."""
        number, revision = self._number + 1, self.revision + 1
        try:
            return self._change(keys, held, decision, change, None)
        except BaseException:
            if self.connection.in_transaction and change.registration is not None:
                self._run("DELETE FROM entries WHERE id = ? AND number = ?", (change.registration.id, number))
                self._run("DELETE FROM registrations WHERE number = ?", (number,))
                self._run("DELETE FROM events WHERE revision = ?", (revision,))
            raise

    def _change(
        self,
        keys: Sequence[str],
        held: StoreState,
        decision: Decision,
        change: RegistrationChange,
        idempotency: Idempotency | None,
    ) -> CommandResult:
        committed = commit_change(change, self.revision + 1)
        event_id = committed.event.id
        if event_id not in keys and event_id not in held.registrations:
            held = self._held((event_id,))
        committed = self._store_change(committed, change.tombstone, held)
        answer = CommandResult(
            outcome=decision.outcome,
            registration=committed.registration or decision.registration,
            revision=committed.event.revision,
        )
        if idempotency is not None:
            self._keep_answer(idempotency, answer)
        return answer

    def _store_change(
        self, committed: CommittedChange, tombstone: Tombstone | None, held: StoreState
    ) -> CommittedChange:
        """Write the rows of a change that has its revision. `held` is what the store has for its id."""
        event, after = committed.event, committed.registration
        before, number = held.registrations.get(event.id), self._numbers.get(event.id)
        if after is None or committed.entry is None:
            self._remove(before, number)
        else:
            is_new = number is None
            number = self._number + 1 if number is None else number
            entry = msgspec.structs.replace(committed.entry, number=number)
            committed = msgspec.structs.replace(committed, entry=entry)
            self._put(before, after, number, rows.entry_row(entry, after), is_new=is_new)
            if before is not None:
                self._keep_version(replaced_version(before, after, event.type), event.id)
        self._bury(event.id, tombstone, held)
        self._failpoint("after_row")
        self._append(event)
        self._failpoint("after_event")
        self.revision = event.revision
        self._number = max(self._number, number or 0)
        self.changes.append(committed)
        return committed

    # --- Current state ---------------------------------------------------------------------------

    def _held(self, keys: Sequence[str], notes: Sequence[str] = ()) -> StoreState:
        self._numbers.clear()
        registrations: dict[str, Registration] = {}
        tombstones: dict[str, Tombstone] = {}
        for key in keys:
            found = self._run(_BY_NAME, (key,)).fetchall()
            if not found:
                continue
            found.sort(key=lambda row: bool(row[0] != key))  # ids take precedence over aliases
            for agent_id, number, entry, crc, data, data_crc, documents in found:
                if number is None:
                    tombstones[key] = rows.read_tombstone(agent_id, entry, crc)
                elif agent_id not in registrations:
                    self._numbers[agent_id] = number
                    registrations[agent_id] = rows.read_registration(
                        agent_id, (entry, crc), (data, data_crc), documents
                    )
        found_notes = self._notes(notes) if notes else {}
        return StoreState(registrations=registrations, tombstones=tombstones, revision=self.revision, notes=found_notes)

    def _notes(self, names: Sequence[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            for value, crc in self._run("SELECT value, crc FROM notes WHERE name = ?", (name,)).fetchall():
                found[name] = rows.read_note(name, value, crc)
        return found

    def _put_notes(self, notes: Mapping[str, bytes | None]) -> None:
        for name, value in notes.items():
            if value is None:
                self._run("DELETE FROM notes WHERE name = ?", (name,))
            else:
                self.written_bytes += len(name) + len(value)
                self._run("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", rows.note_row(name, value))

    # --- Registrations ---------------------------------------------------------------------------

    def _put(
        self, before: Registration | None, after: Registration, number: int, entry: bytes, *, is_new: bool
    ) -> None:
        agent_id = after.id
        self.written_bytes += len(entry)
        if is_new:
            self._run("INSERT INTO entries VALUES (?, ?, ?, ?)", (agent_id, number, entry, zlib.crc32(entry)))
        else:
            self._run("UPDATE entries SET entry = ?, crc = ? WHERE id = ?", (entry, zlib.crc32(entry), agent_id))
        if not is_renewal(before, after):
            self._put_registration(number, after)
            self._release_aliases(agent_id, set(before.aliases).difference(after.aliases) if before else ())
            for alias in after.aliases:
                self._run("INSERT OR IGNORE INTO aliases VALUES (?, ?)", (alias, agent_id))

    def _put_registration(self, number: int, registration: Registration) -> None:
        data, documents = self._registration_row(registration)
        self.written_bytes += len(data) + len(documents)
        self._run(
            "INSERT OR REPLACE INTO registrations VALUES (?, ?, ?, ?)", (number, data, zlib.crc32(data), documents)
        )

    def _registration_row(self, registration: Registration) -> tuple[bytes, bytes]:
        return rows.registration_row(registration)

    def _remove(self, before: Registration | None, number: int | None) -> None:
        if before is None or number is None:
            raise ValueError("A change cannot remove an unknown agent.")
        self._run("DELETE FROM entries WHERE id = ?", (before.id,))
        self._run("DELETE FROM registrations WHERE number = ?", (number,))
        self._run("DELETE FROM history WHERE id = ?", (before.id,))
        self._release_aliases(before.id, before.aliases)

    def _keep_version(self, version: RecordVersion | None, agent_id: str) -> None:
        if version is None:
            return
        row = rows.version_row(agent_id, version)
        self.written_bytes += len(row[2])
        self._run("INSERT INTO history VALUES (?, ?, ?, ?)", row)
        ((count,),) = self._run("SELECT count(*) FROM history WHERE id = ?", (agent_id,)).fetchall()
        if count > limits.HISTORY_VERSIONS:
            self._run(_OLDEST_VERSION, (agent_id,))
        if len(row[2]) > _USUAL_VERSION_BYTES:
            self._run(_LARGE_VERSIONS, (agent_id, limits.HISTORY_BYTES))

    def _release_aliases(self, agent_id: str, aliases: Sequence[str] | set[str]) -> None:
        for alias in aliases:
            self._run("DELETE FROM aliases WHERE alias = ? AND id = ?", (alias, agent_id))

    def _bury(self, agent_id: str, tombstone: Tombstone | None, held: StoreState) -> None:
        """A removal writes a tombstone; a registration deletes it."""
        if tombstone is not None:
            self._run("INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?)", rows.tombstone_row(tombstone))
        elif agent_id in held.tombstones:
            self._run("DELETE FROM tombstones WHERE id = ?", (agent_id,))

    def _append(self, event: Event) -> None:
        row = self._event_row(event)
        self.written_bytes += 2 * len(row[2]) + len(row[4] or b"")
        self._run("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)

    def _event_row(self, event: Event) -> tuple[int, float, bytes, int, bytes | None]:
        return rows.event_row(event)

    # --- Idempotency keys, secrets, housekeeping -------------------------------------------------

    def _known_answer(self, idempotency: Idempotency) -> CommandResult | None:
        for fingerprint, data, crc in self._run(
            "SELECT fingerprint, answer, crc FROM answers WHERE key = ?", (idempotency.key,)
        ).fetchall():
            return replay_result(rows.read_answer(data, crc), fingerprint, idempotency)
        return None

    def _keep_answer(self, idempotency: Idempotency, answer: CommandResult) -> None:
        data, crc = rows.answer_row(strip_result(answer))
        self.written_bytes += len(data)
        self._run(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?)",
            (idempotency.key, idempotency.forget_at, idempotency.fingerprint, data, crc),
        )

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        for value, crc in self._run("SELECT value, crc FROM secrets WHERE name = ?", (name,)).fetchall():
            return rows.read_secret(name, value, crc)
        made = make()
        self._run("INSERT INTO secrets VALUES (?, ?, ?)", rows.secret_row(name, made))
        return made

    def mark(self, name: str, value: int) -> None:
        self._run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def prune(self, *, events_before: float, keep_events: int, now: float, keep_audit: int, keep_bytes: int) -> int:
        """Prune some rows; 0 when nothing is left."""
        count = self._prune_events(events_before, keep_events, keep_bytes)
        self._failpoint("during_prune")
        count += self.audit.prune(keep_audit, _PRUNE_ROWS)
        for statement in _FORGET.values():
            count += self._run(statement, (now, _PRUNE_ROWS)).rowcount
        return count

    def _prune_events(self, events_before: float, keep_events: int, keep_bytes: int) -> int:
        """Prune only the beginning of the log, so that it has no gaps."""
        log_bytes = self._count_log_bytes()
        last = 0
        for revision, at, size in self._run(_OLDEST_EVENTS, (_PRUNE_ROWS,)).fetchall():
            is_kept = at >= events_before or revision > self.revision - keep_events
            if is_kept and log_bytes <= keep_bytes:
                break
            log_bytes -= size
            last = revision
        self.mark(_LOG_BYTES, log_bytes)
        self.mark(_LOG_COUNTED, self.revision)
        if not last:
            return 0
        self.mark("pruned", last)
        return self._run("DELETE FROM events WHERE revision <= ?", (last,)).rowcount

    def _count_log_bytes(self) -> int:
        """The size of the log. Its events were counted by the last pruning, except the newest: counting them all would read
        the whole table."""
        noted = dict(
            self._run("SELECT name, value FROM meta WHERE name IN (?, ?)", (_LOG_BYTES, _LOG_COUNTED)).fetchall()
        )
        ((newer,),) = self._run(_NEWER_BYTES, (noted.get(_LOG_COUNTED, 0),)).fetchall()
        return int(noted.get(_LOG_BYTES, 0)) + int(newer or 0)
