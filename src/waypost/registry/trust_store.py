"""The trust store: the allow-list, keys of agents, and revocations. Each change takes effect at once.

Rules and revocations are notes in the store. The process that writes mirrors them in memory, updated by each commit, so that a
registration needs no lookup. Lists are read from the store, so they are current in every process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, get_args

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, KeyConflict, NotFound, Revoked
from waypost.model.names import canonical_id, stored_spellings
from waypost.model.principal import Principal
from waypost.model.registration import Registration, keys_of
from waypost.model.times import to_rfc3339
from waypost.registry import write_rules
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ownership import binding_note_name
from waypost.registry.ports import Clock, Command, Decision, Rule, Store, StoreState
from waypost.responses.trust import RevokedItem
from waypost.trust.announce.admission import new_pinned_key, revoked_error
from waypost.trust.announce.trust_store import (
    AgentPin,
    AllowList,
    dump_pin,
    find_agent_id,
    is_evictable,
    load_pin,
    pin_first_key,
    pin_note_key,
    revoke_pinned_key,
)
from waypost.trust.keys.public_key import PublicKey

_ALLOW = "allow:"
REVOCATION_NOTES = "revoked:"
_URN = "urn:uuid:"
_NO_REASON = "unspecified"  # of RFC 5280; P-14 requires a reason

RevokedKind = Literal["key", "agent", "serial", "token"]


class AllowListEntry(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    added_at: float
    added_by: str


class RevocationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: RevokedKind
    name: str  # a key id, an agent_id, the serial of a certificate in hex, the id of a token
    revoked_at: float
    reason: str = ""
    revoked_by: str = ""
    unfinished: bool = False  # records that the key signed may not be withdrawn yet, after a crash

    @property
    def note(self) -> str:
        return f"{REVOCATION_NOTES}{self.kind}:{self.name}"

    @property
    def object(self) -> str:
        return self.name if self.kind in ("key", "agent") else f"{self.kind}:{self.name}"

    def view(self) -> RevokedItem:
        """The revocation as responses show it (announce.md P-14). Only the audit trail says who made it."""
        return RevokedItem(
            key_id=self.name if self.kind == "key" else None,
            agent_id=self.name if self.kind == "agent" else None,
            serial=self.name if self.kind == "serial" else None,
            token_id=self.name if self.kind == "token" else None,
            revoked_at=to_rfc3339(self.revoked_at),
            reason=self.reason or _NO_REASON,
        )


class RevocationResult(msgspec.Struct, frozen=True, kw_only=True):
    revocation: RevocationEntry
    outcome: str  # revoked, already
    withdrawn: tuple[str, ...] = ()  # ids of agents that were withdrawn with it


class RegistryTrustStore:
    def __init__(self, store: Store, clock: Clock, signed_by: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        """`signed_by` returns the ids of agents that a key may have signed."""
        self._store = store
        self._clock = clock
        self.rules = AllowList()
        self._revoked: dict[str, set[str]] = {kind: set() for kind in get_args(RevokedKind)}
        self.revoked_keys = self._revoked["key"]
        self.revoked_agents = self._revoked["agent"]
        self._bound: dict[str, set[str]] | None = None  # agent ids by key, read on first use
        self.signed_by = signed_by
        self.pinned: set[str] | None = None  # names of the notes with pins, in the process that writes
        self._listeners: list[Callable[[str, str], None]] = []

    # --- The mirror in memory --------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything from the store. A process that only reads repeats it."""
        rules = AllowList(name.removeprefix(_ALLOW) for name, _ in await self._store.notes(_ALLOW))
        names = {name: b"" for name, _ in await self._store.notes(REVOCATION_NOTES)}
        self.rules = rules
        self.apply_notes(names)  # revocations are never removed

    async def load_pinned(self) -> None:
        """Read the names of all pins. Only the process that writes needs them, and sees all their changes."""
        found: set[str] = set()
        after = ""
        while page := await self._store.notes(pin_note_key(""), after, limits.PINS_PAGE):
            found.update(name for name, _ in page)
            after = page[-1][0]
        self.pinned = found

    def _apply_pin(self, name: str, value: bytes | None) -> None:
        if self.pinned is not None:
            self.pinned.discard(name) if value is None else self.pinned.add(name)
        if self._bound is not None and (pin := load_pin(value)) is not None:
            self._note_bound(pin)

    def apply_notes(self, notes: Mapping[str, bytes | None]) -> None:
        """Apply committed notes of any kind."""
        for name, value in notes.items():
            if name.startswith(_ALLOW):
                rule = name.removeprefix(_ALLOW)
                self.rules.remove(rule) if value is None else self.rules.add(rule)
            elif name.startswith(REVOCATION_NOTES):
                self._apply_revocation(name.removeprefix(REVOCATION_NOTES))
            elif name.startswith(pin_note_key("")):
                self._apply_pin(name, value)

    def _apply_revocation(self, name: str) -> None:
        kind, _, value = name.partition(":")
        if kind == "agent":
            value = revocation_subject(value)  # earlier releases stored other spellings
        if kind in self._revoked and value not in self._revoked[kind]:
            self._revoked[kind].add(value)
            for listener in self._listeners:
                listener(kind, value)

    def on_revoked(self, listener: Callable[[str, str], None]) -> None:
        """Call `listener` with the kind and the name of each further revocation, on the event loop."""
        self._listeners.append(listener)

    def is_revoked(self, kind: str, name: str) -> bool:
        return name in self._revoked[kind]

    def check_id(self, *names: str) -> None:
        """Refuse a document of any dialect whose agent was revoked."""
        if self.revoked_agents and any(revocation_subject(name) in self.revoked_agents for name in names):
            raise revoked_error("This agent was revoked.", "$.id")

    def check_key(self, key_id: str) -> None:
        if key_id in self.revoked_keys:
            raise revoked_error("The key that signed this was revoked.", "$.signature")

    # --- The allow-list --------------------------------------------------------------------------

    async def allow_rules(self) -> list[AllowListEntry]:
        return [msgspec.json.decode(value, type=AllowListEntry) for _, value in await self._store.notes(_ALLOW)]

    async def allow(self, principal: Principal, rule: str) -> tuple[AllowListEntry, str]:
        """Add a rule. Returns `added`, or `unchanged` if it existed."""
        if len(self.rules) >= limits.ALLOW_RULES and rule not in self.rules:
            raise InvalidParameter(
                f"The allow-list has {limits.ALLOW_RULES} rules, which is the limit.",
                path="rule",
                hint="Use *, or rules for keys.",
            )
        fresh = AllowListEntry(rule=rule, added_at=self._clock.now(), added_by=principal.subject or "anonymous")
        name = _ALLOW + rule
        found = fresh

        def decide(state: StoreState) -> Decision:
            nonlocal found
            if name in state.notes:
                found = msgspec.json.decode(state.notes[name], type=AllowListEntry)
                return Decision(outcome="unchanged")
            found = fresh
            entry = audit_entry_by(principal, "allow", now=fresh.added_at, object=rule, outcome="added")
            return Decision(outcome="added", notes={name: msgspec.json.encode(fresh)}, audit=(entry,))

        answer = await self._store.execute(Command(keys=(), notes=(name,), decide=decide))
        return found, answer.outcome

    async def disallow(self, principal: Principal, rule: str) -> None:
        name, now = _ALLOW + rule, self._clock.now()

        def decide(state: StoreState) -> Decision:
            if name not in state.notes:
                raise NotFound(
                    f"The allow-list has no rule {rule[:80]!r}.", path="rule", hint="`waypost allow list` shows them."
                )
            entry = audit_entry_by(principal, "disallow", now=now, object=rule, outcome="removed")
            return Decision(outcome="removed", notes={name: None}, audit=(entry,))

        await self._store.execute(Command(keys=(), notes=(name,), decide=decide))

    # --- Keys ------------------------------------------------------------------------------------

    async def pins(self, agent_id: str | None = None) -> list[AgentPin]:
        """All pins, or that of an agent."""
        found = (load_pin(value) for _, value in await self._store.notes(pin_note_key(agent_id or "")))
        return [pin for pin in found if pin is not None and agent_id in (None, pin.agent_id)]

    async def of_agent(self, agent_id: str) -> list[AgentPin | RevocationEntry]:
        """The keys of an agent, and its revocations: of its id and of its keys."""
        pins = await self.pins(agent_id)
        keys = {key.key_id for pin in pins for key in pin.keys if key.state == "revoked"}
        names = [revoked_agent_note(agent_id), *map(revoked_key_note, sorted(keys))]
        found = [row for name in names for row in await self._store.notes(name)]
        return [*pins, *(msgspec.json.decode(value, type=RevocationEntry) for name, value in found if name in names)]

    async def page(self, after: str, limit: int) -> tuple[list[AgentPin | RevocationEntry], str | None]:
        """Rows after a position: keys by agent, then revocations; and the position of the next page, if there is one."""
        found = [*await self._store.notes(pin_note_key(""), after, limit + 1)] if after < REVOCATION_NOTES else []
        if len(found) <= limit:
            found += await self._store.notes(REVOCATION_NOTES, after, limit + 1 - len(found))
        place = found[limit - 1][0] if len(found) > limit else None
        return [row for name, value in found[:limit] if (row := _row(name, value)) is not None], place

    async def forget(self) -> None:
        """Remove pins of ids that were announced once and not again. Ids with a rule are kept."""
        now = self._clock.now()
        for pin in await self.pins():
            if is_evictable(pin, now) and pin.agent_id not in self.rules:
                name = pin_note_key(pin.agent_id)
                await self._store.execute(Command(keys=(), notes=(name,), decide=partial(_forget_decision, name, now)))

    async def revocations(self, after: str = "") -> AsyncIterator[RevocationEntry]:
        """Revocations in the order of their `note`: those after one."""
        while rows := await self._store.notes(REVOCATION_NOTES, after, limits.REVOCATIONS_READ):
            for _, value in rows:
                yield msgspec.json.decode(value, type=RevocationEntry)
            after = rows[-1][0]

    async def trust(self, principal: Principal, agent_id: str, key: PublicKey) -> tuple[AgentPin, str]:
        """Bind a key to an id and retire its earlier keys. Returns `trusted`, or `unchanged` if it was bound."""
        name, now = pin_note_key(agent_id), self._clock.now()
        found = AgentPin(agent_id=agent_id)

        def decide(state: StoreState) -> Decision:
            nonlocal found
            if revoked_key_note(key.key_id) in state.notes or revoked_agent_note(agent_id) in state.notes:
                raise Revoked(
                    "A revoked key or id cannot be trusted again.",
                    path="public_key",
                    hint="Make a new one with `waypost keys new`.",
                )
            before = load_pin(state.notes.get(name)) or AgentPin(agent_id=agent_id)
            _check_not_retired(before, key)
            active = before.active
            if before.provisioned and active is not None and active.key_id == key.key_id:
                found = before
                return Decision(outcome="unchanged")
            found = pin_first_key(before, new_pinned_key(key, "trust", now), provisioned=True)
            entry = audit_entry_by(
                principal,
                "trust",
                now=now,
                object=announced_record_id(agent_id),
                outcome="trusted",
                detail=f"key {key.key_id}",
            )
            return Decision(outcome="trusted", notes={name: dump_pin(found)}, audit=(entry,))

        notes = (name, revoked_key_note(key.key_id), revoked_agent_note(agent_id))
        answer = await self._store.execute(Command(keys=(), notes=notes, decide=decide))
        return found, answer.outcome

    async def revoke(self, principal: Principal, revocation: RevocationEntry) -> RevocationResult:
        """Revoke a key, an agent, a certificate or a token, for good. Agents of a revoked key or id are withdrawn."""
        if revocation.kind == "agent":
            return await self._revoke_agent(principal, revocation)
        is_key = revocation.kind == "key"
        begun = msgspec.structs.replace(revocation, unfinished=is_key)
        decide = _note_revocation(principal, begun)
        answer = await self._store.execute(Command(keys=(), notes=(revocation.note,), decide=decide))
        withdrawn = await self.enforce(principal, revocation.name) if is_key else ()
        return RevocationResult(revocation=revocation, outcome=answer.outcome, withdrawn=withdrawn)

    async def finish(self) -> None:
        """Finish revocations that a crash interrupted. Called by the process that writes, at its start."""
        for revocation in [row async for row in self.revocations()]:
            if revocation.unfinished:
                await self.enforce(Principal(subject=revocation.revoked_by), revocation.name)

    async def _revoke_agent(self, principal: Principal, revocation: RevocationEntry) -> RevocationResult:
        withdrawn: list[str] = []
        agent_id = revocation.name
        note = _note_revocation(principal, revocation)
        record_id = announced_record_id(agent_id)

        def decide(state: StoreState) -> Decision:
            withdrawn.clear()
            noted = note(state)
            current = next(iter(state.registrations.values()), None)
            if current is None or not _is_named(current, record_id, agent_id):
                return noted
            withdrawn.append(current.id)
            return _merge_decisions(
                noted, write_rules.withdraw_revoked(principal, current, "revoked", now=revocation.revoked_at)
            )

        keys = dict.fromkeys((record_id, *stored_spellings(record_id), agent_id, *stored_spellings(agent_id)))
        command = Command(keys=tuple(keys), notes=(revocation.note,), decide=decide)
        answer = await self._store.execute(command)
        outcome = "revoked" if answer.outcome != "already" else "already"
        return RevocationResult(revocation=revocation, outcome=outcome, withdrawn=tuple(withdrawn))

    async def enforce(self, principal: Principal, key_id: str) -> tuple[str, ...]:
        """Mark a revoked key wherever it is bound, and withdraw the agents that it signed. May be repeated."""
        gone: list[str] = []
        for agent_id in await self._bound_to(key_id):
            gone += await self._drop(principal, key_id, announced_record_id(agent_id), agent_id)
        for record_id in self.signed_by(key_id):
            gone += await self._drop(principal, key_id, record_id, None)
        name = revoked_key_note(key_id)
        await self._store.execute(Command(keys=(), notes=(name,), decide=partial(_finish_decision, name)))
        return tuple(dict.fromkeys(gone))

    async def _bound_to(self, key_id: str) -> list[str]:
        """The ids to which a key is or was bound. The first call reads every pin; commits update the result."""
        if self._bound is None:
            self._bound = {}
            for pin in await self.pins():
                self._note_bound(pin)
        return sorted(self._bound.get(key_id, ()))

    def _note_bound(self, pin: AgentPin) -> None:
        """Entries are never removed: the caller checks the pin itself."""
        if self._bound is not None:
            for key in pin.keys:
                self._bound.setdefault(key.key_id, set()).add(pin.agent_id)

    async def _drop(self, principal: Principal, key_id: str, record_id: str, agent_id: str | None) -> list[str]:
        now = self._clock.now()
        name = None if agent_id is None else pin_note_key(agent_id)
        withdrawn: list[str] = []

        def decide(state: StoreState) -> Decision:
            withdrawn.clear()
            pin = None if name is None else load_pin(state.notes.get(name))
            changed = {} if pin is None or name is None else {name: dump_pin(revoke_pinned_key(pin, key_id))}
            noted = Decision(outcome="revoked", notes=changed)
            current = state.registrations.get(record_id) or next(iter(state.registrations.values()), None)
            if current is None or not is_signed_by(current, key_id):
                return noted
            withdrawn.append(current.id)
            return _merge_decisions(
                noted, write_rules.withdraw_revoked(principal, current, f"revoked {key_id}", now=now)
            )

        await self._store.execute(Command(keys=(record_id,), notes=() if name is None else (name,), decide=decide))
        return withdrawn


def _row(name: str, value: bytes) -> AgentPin | RevocationEntry | None:
    return msgspec.json.decode(value, type=RevocationEntry) if name.startswith(REVOCATION_NOTES) else load_pin(value)


def _check_not_retired(pin: AgentPin, key: PublicKey) -> None:
    known = pin.find_key(key.key_id)
    if known is not None and known.state == "revoked":
        raise KeyConflict(
            "This key of the agent was revoked.", path="public_key", hint="Make a new one with `waypost keys new`."
        )


def _note_revocation(principal: Principal, revocation: RevocationEntry) -> Rule:
    def decide(state: StoreState) -> Decision:
        if revocation.note in state.notes:
            return Decision(outcome="already")
        entry = audit_entry_by(
            principal,
            "revoke",
            now=revocation.revoked_at,
            object=revocation.object,
            outcome="revoked",
            detail=revocation.reason,
        )
        return Decision(outcome="revoked", notes={revocation.note: msgspec.json.encode(revocation)}, audit=(entry,))

    return decide


def _forget_decision(name: str, now: float, state: StoreState) -> Decision:
    pin = load_pin(state.notes.get(name))
    if pin is None or not is_evictable(pin, now):
        return Decision(outcome="unchanged")
    return Decision(outcome="forgotten", notes={name: None, binding_note_name(pin.agent_id): None})


def _finish_decision(name: str, state: StoreState) -> Decision:
    note = state.notes.get(name)
    revocation = None if note is None else msgspec.json.decode(note, type=RevocationEntry)
    if revocation is None or not revocation.unfinished:
        return Decision(outcome="unchanged")
    done = msgspec.structs.replace(revocation, unfinished=False)
    return Decision(outcome="revoked", notes={name: msgspec.json.encode(done)})


def _merge_decisions(noted: Decision, decision: Decision) -> Decision:
    return msgspec.structs.replace(
        decision, notes={**decision.notes, **noted.notes}, audit=(*noted.audit, *decision.audit)
    )


def _is_named(current: Registration, record_id: str, agent_id: str) -> bool:
    names = {canonical_id(record_id), canonical_id(agent_id)}
    return not names.isdisjoint(map(canonical_id, (current.id, *current.aliases)))


def announced_record_id(agent_id: str) -> str:
    """The record id of an announced agent; an id of another dialect is the record id itself."""
    return _URN + agent_id if find_agent_id(agent_id) else agent_id


def revoked_agent_note(agent_id: str) -> str:
    return f"{REVOCATION_NOTES}agent:{agent_id}"


def revoked_key_note(key_id: str) -> str:
    return f"{REVOCATION_NOTES}key:{key_id}"


def revocation_subject(name: str) -> str:
    """The name under which an agent is revoked, whatever the spelling of its id: a UUID, or the canonical id."""
    return find_agent_id(name) or canonical_id(name)


def is_signed_by(registration: Registration, key_id: str) -> bool:
    return key_id in keys_of(registration)
