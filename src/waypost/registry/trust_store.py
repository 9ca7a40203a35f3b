"""The operator's side of trust: who may announce, which keys are bound, what was revoked. Each change takes effect at once.

Rules and revocations are notes in the store; the process that writes keeps them in memory, told of each commit, so that a
registration asks nobody. Lists are read from the store itself, and so are true in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, get_args

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, KeyConflict, NotFound, Revoked
from waypost.model.principal import Principal
from waypost.model.registration import Registration, keys_of
from waypost.model.times import to_rfc3339
from waypost.registry import write_rules
from waypost.registry.announcement_admission import revoked_agent_note, revoked_key_note
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ports import Clock, Command, Decision, Store, StoreState
from waypost.responses.trust import RevokedItem
from waypost.trust.announce.admission import new_pinned_key
from waypost.trust.announce.admission import revoked_error as refuse_revoked
from waypost.trust.announce.allow_list import AllowList, find_agent_id
from waypost.trust.announce.key_pins import (
    AgentPin,
    dump_pin,
    is_evictable,
    load_pin,
    pin_first_key,
    pin_note_key,
    revoke_pinned_key,
)
from waypost.trust.keys.public_key import PublicKey

_ALLOW = "allow:"
_REVOKED = "revoked:"
_URN = "urn:uuid:"


RevokedKind = Literal["key", "agent", "serial", "token"]


class AllowListEntry(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    added_at: float
    added_by: str


_NO_REASON = "unspecified"  # as RFC 5280 has it: P-14 wants a reason with each


class RevocationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: RevokedKind
    name: str  # a key id, an agent_id, the serial of a certificate in hex, the id of a token
    revoked_at: float
    reason: str = ""
    revoked_by: str = ""
    unfinished: bool = False  # records of the key may still be there: a crash came in between

    @property
    def note(self) -> str:
        return f"{_REVOKED}{self.kind}:{self.name}"

    @property
    def object(self) -> str:
        return self.name if self.kind in ("key", "agent") else f"{self.kind}:{self.name}"

    def view(self) -> RevokedItem:
        """The revocation as answers show it (announce.md P-14). Only the audit trail says who made it."""
        return RevokedItem(
            key_id=self.name if self.kind == "key" else None,
            agent_id=self.name if self.kind == "agent" else None,
            serial=self.name if self.kind == "serial" else None,
            token_id=self.name if self.kind == "token" else None,
            revoked_at=to_rfc3339(self.revoked_at),
            reason=self.reason or _NO_REASON,
        )


class RevocationResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a revocation did."""

    revocation: RevocationEntry
    outcome: str  # revoked, already
    withdrawn: tuple[str, ...] = ()  # ids of the records that went with it


class RegistryTrustStore:
    def __init__(self, store: Store, clock: Clock, signed_by: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        """`signed_by` gives the ids of records behind which a key may stand."""
        self._store = store
        self._clock = clock
        self.rules = AllowList()
        self._revoked: dict[str, set[str]] = {kind: set() for kind in get_args(RevokedKind)}
        self.revoked_keys = self._revoked["key"]
        self.revoked_agents = self._revoked["agent"]
        self._bound: dict[str, set[str]] | None = None  # ids by the keys that were bound to them, once somebody asked
        self.signed_by = signed_by
        self._told: list[Callable[[str, str], None]] = []

    # --- The mirror ------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything anew. A process that does not write does this from time to time."""
        rules = AllowList(name.removeprefix(_ALLOW) for name, _ in await self._store.notes(_ALLOW))
        names = {name: b"" for name, _ in await self._store.notes(_REVOKED)}
        self.rules = rules
        self.take_in(names)  # what is revoked stays so: nothing has to be taken out

    def take_in(self, notes: Mapping[str, bytes | None]) -> None:
        """Committed notes, of any kind."""
        for name, value in notes.items():
            if name.startswith(_ALLOW):
                rule = name.removeprefix(_ALLOW)
                self.rules.remove(rule) if value is None else self.rules.add(rule)
            elif name.startswith(_REVOKED):
                self._take_in_revoked(name.removeprefix(_REVOKED))
            elif self._bound is not None and name.startswith(pin_note_key("")) and (pin := load_pin(value)) is not None:
                self._note_bound(pin)

    def _take_in_revoked(self, name: str) -> None:
        kind, _, value = name.partition(":")
        if kind in self._revoked and value not in self._revoked[kind]:
            self._revoked[kind].add(value)
            for told in self._told:
                told(kind, value)

    def on_revoked(self, told: Callable[[str, str], None]) -> None:
        """Tell the kind and the name of whatever is revoked from now on, on the event loop."""
        self._told.append(told)

    def is_revoked(self, kind: str, name: str) -> bool:
        return name in self._revoked[kind]

    def check_id(self, *names: str) -> None:
        """Refuse a document of any dialect whose agent was revoked. Free while nobody was."""
        if self.revoked_agents and any(revocation_subject(name) in self.revoked_agents for name in names):
            raise refuse_revoked("This agent was revoked.", "$.id")

    def check_key(self, key_id: str) -> None:
        if key_id in self.revoked_keys:
            raise refuse_revoked("The key that signed this was revoked.", "$.signature")

    # --- The allow-list --------------------------------------------------------------------------

    async def allow_rules(self) -> list[AllowListEntry]:
        return [msgspec.json.decode(value, type=AllowListEntry) for _, value in await self._store.notes(_ALLOW)]

    async def allow(self, principal: Principal, rule: str) -> tuple[AllowListEntry, str]:
        """Add a rule; `added`, or `unchanged` when it was there."""
        if len(self.rules) >= limits.ALLOW_RULES and rule not in self.rules:
            raise InvalidParameter(
                f"The allow-list has {limits.ALLOW_RULES} rules; it takes no more.",
                path="rule",
                hint="Use *, or rules for keys.",
            )
        fresh = AllowListEntry(rule=rule, added_at=self._clock.now(), added_by=principal.subject or "anonymous")
        name = _ALLOW + rule
        found = fresh

        def decide(held: StoreState) -> Decision:
            nonlocal found
            if name in held.notes:
                found = msgspec.json.decode(held.notes[name], type=AllowListEntry)
                return Decision(outcome="unchanged")
            found = fresh
            entry = audit_entry_by(principal, "allow", now=fresh.added_at, object=rule, outcome="added")
            return Decision(outcome="added", notes={name: msgspec.json.encode(fresh)}, audit=(entry,))

        answer = await self._store.execute(Command(keys=(), notes=(name,), decide=decide))
        return found, answer.outcome

    async def disallow(self, principal: Principal, rule: str) -> None:
        name, now = _ALLOW + rule, self._clock.now()

        def decide(held: StoreState) -> Decision:
            if name not in held.notes:
                raise NotFound(
                    f"The allow-list has no rule {rule[:80]!r}.", path="rule", hint="`waypost allow list` shows them."
                )
            entry = audit_entry_by(principal, "disallow", now=now, object=rule, outcome="removed")
            return Decision(outcome="removed", notes={name: None}, audit=(entry,))

        await self._store.execute(Command(keys=(), notes=(name,), decide=decide))

    # --- Keys ------------------------------------------------------------------------------------

    async def pins(self, agent_id: str | None = None) -> list[AgentPin]:
        """All of them, or the one of an agent."""
        found = (load_pin(value) for _, value in await self._store.notes(pin_note_key(agent_id or "")))
        return [pin for pin in found if pin is not None and agent_id in (None, pin.agent_id)]

    async def of_agent(self, agent_id: str) -> list[AgentPin | RevocationEntry]:
        """The keys of an agent, and what was revoked of it: its id, and keys that were bound to it."""
        pins = await self.pins(agent_id)
        keys = {key.key_id for pin in pins for key in pin.keys if key.state == "revoked"}
        names = [revoked_agent_note(agent_id), *map(revoked_key_note, sorted(keys))]
        found = [row for name in names for row in await self._store.notes(name)]
        return [*pins, *(msgspec.json.decode(value, type=RevocationEntry) for name, value in found if name in names)]

    async def page(self, after: str, limit: int) -> tuple[list[AgentPin | RevocationEntry], str | None]:
        """The rows after a place: the keys by agent, then what was revoked; and the place to go on from, if there is more."""
        found = [*await self._store.notes(pin_note_key(""), after, limit + 1)] if after < _REVOKED else []
        if len(found) <= limit:
            found += await self._store.notes(_REVOKED, after, limit + 1 - len(found))
        place = found[limit - 1][0] if len(found) > limit else None
        return [row for name, value in found[:limit] if (row := _row(name, value)) is not None], place

    async def forget(self) -> None:
        """Rows of ids that were announced once and never again. Ids that a rule names are never forgotten."""
        now = self._clock.now()
        for pin in await self.pins():
            if is_evictable(pin, now) and pin.agent_id not in self.rules:
                name = pin_note_key(pin.agent_id)
                await self._store.execute(Command(keys=(), notes=(name,), decide=partial(_forget_decision, name, now)))

    async def revocations(self) -> list[RevocationEntry]:
        return [msgspec.json.decode(value, type=RevocationEntry) for _, value in await self._store.notes(_REVOKED)]

    async def trust(self, principal: Principal, agent_id: str, key: PublicKey) -> tuple[AgentPin, str]:
        """Bind a key to an id; the keys before it are retired. `trusted`, or `unchanged` when it was so."""
        name, now = pin_note_key(agent_id), self._clock.now()
        found = AgentPin(agent_id=agent_id)

        def decide(held: StoreState) -> Decision:
            nonlocal found
            if revoked_key_note(key.key_id) in held.notes or revoked_agent_note(agent_id) in held.notes:
                raise Revoked(
                    "A revoked key or id is never trusted again.",
                    path="public_key",
                    hint="Make a new one with `waypost keys new`.",
                )
            before = load_pin(held.notes.get(name)) or AgentPin(agent_id=agent_id)
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
        """Revoke a key, an agent or a certificate, at once and for good. The records go with it."""
        if revocation.kind == "agent":
            return await self._revoke_agent(principal, revocation)
        is_key = revocation.kind == "key"
        begun = msgspec.structs.replace(revocation, unfinished=is_key)
        decide = _note_revocation(principal, begun)
        answer = await self._store.execute(Command(keys=(), notes=(revocation.note,), decide=decide))
        withdrawn = await self.enforce(principal, revocation.name) if is_key else ()
        return RevocationResult(revocation=revocation, outcome=answer.outcome, withdrawn=withdrawn)

    async def finish(self) -> None:
        """What a revocation had begun when the process ended. Only the process that writes does this, at its start."""
        for revocation in await self.revocations():
            if revocation.unfinished:
                await self.enforce(Principal(subject=revocation.revoked_by), revocation.name)

    async def _revoke_agent(self, principal: Principal, revocation: RevocationEntry) -> RevocationResult:
        withdrawn: list[str] = []
        agent_id = revocation.name
        note = _note_revocation(principal, revocation)
        record_id = announced_record_id(agent_id)

        def decide(held: StoreState) -> Decision:
            withdrawn.clear()
            noted = note(held)
            current = next(iter(held.registrations.values()), None)
            if current is None or not _may_go(current, record_id, agent_id):
                return noted
            withdrawn.append(current.id)
            return _merge_decisions(
                noted, write_rules.withdraw_revoked(principal, current, "revoked", now=revocation.revoked_at)
            )

        command = Command(keys=(record_id, agent_id), notes=(revocation.note,), decide=decide)
        answer = await self._store.execute(command)
        outcome = "revoked" if answer.outcome != "already" else "already"
        return RevocationResult(revocation=revocation, outcome=outcome, withdrawn=tuple(withdrawn))

    async def enforce(self, principal: Principal, key_id: str) -> tuple[str, ...]:
        """Retire a revoked key wherever it is bound, and withdraw what it stands behind. May be repeated."""
        gone: list[str] = []
        for agent_id in await self._bound_to(key_id):
            gone += await self._drop(principal, key_id, announced_record_id(agent_id), agent_id)
        for record_id in self.signed_by(key_id):
            gone += await self._drop(principal, key_id, record_id, None)
        name = revoked_key_note(key_id)
        await self._store.execute(Command(keys=(), notes=(name,), decide=partial(_finish_decision, name)))
        return tuple(dict.fromkeys(gone))

    async def _bound_to(self, key_id: str) -> list[str]:
        """The ids to which a key is or was bound. The first question reads every row; commits keep what it found."""
        if self._bound is None:
            self._bound = {}
            for pin in await self.pins():
                self._note_bound(pin)
        return sorted(self._bound.get(key_id, ()))

    def _note_bound(self, pin: AgentPin) -> None:
        """Nothing is taken out: whoever reads it looks at the row itself."""
        if self._bound is not None:
            for key in pin.keys:
                self._bound.setdefault(key.key_id, set()).add(pin.agent_id)

    async def _drop(self, principal: Principal, key_id: str, record_id: str, agent_id: str | None) -> list[str]:
        now = self._clock.now()
        name = None if agent_id is None else pin_note_key(agent_id)
        withdrawn: list[str] = []

        def decide(held: StoreState) -> Decision:
            withdrawn.clear()
            pin = None if name is None else load_pin(held.notes.get(name))
            changed = {} if pin is None or name is None else {name: dump_pin(revoke_pinned_key(pin, key_id))}
            noted = Decision(outcome="revoked", notes=changed)
            current = held.registrations.get(record_id) or next(iter(held.registrations.values()), None)
            if current is None or not is_signed_by(current, key_id):
                return noted
            withdrawn.append(current.id)
            return _merge_decisions(
                noted, write_rules.withdraw_revoked(principal, current, f"revoked {key_id}", now=now)
            )

        await self._store.execute(Command(keys=(record_id,), notes=() if name is None else (name,), decide=decide))
        return withdrawn


def _row(name: str, value: bytes) -> AgentPin | RevocationEntry | None:
    return msgspec.json.decode(value, type=RevocationEntry) if name.startswith(_REVOKED) else load_pin(value)


def _check_not_retired(pin: AgentPin, key: PublicKey) -> None:
    held = pin.find_key(key.key_id)
    if held is not None and held.state == "revoked":
        raise KeyConflict(
            "This key of the agent was revoked.", path="public_key", hint="Make a new one with `waypost keys new`."
        )


def _note_revocation(principal: Principal, revocation: RevocationEntry) -> Callable[[StoreState], Decision]:
    def decide(held: StoreState) -> Decision:
        if revocation.note in held.notes:
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


def _forget_decision(name: str, now: float, held: StoreState) -> Decision:
    pin = load_pin(held.notes.get(name))
    if pin is None or not is_evictable(pin, now):
        return Decision(outcome="unchanged")
    return Decision(outcome="forgotten", notes={name: None})


def _finish_decision(name: str, held: StoreState) -> Decision:
    kept = held.notes.get(name)
    revocation = None if kept is None else msgspec.json.decode(kept, type=RevocationEntry)
    if revocation is None or not revocation.unfinished:
        return Decision(outcome="unchanged")
    done = msgspec.structs.replace(revocation, unfinished=False)
    return Decision(outcome="revoked", notes={name: msgspec.json.encode(done)})


def _merge_decisions(noted: Decision, decision: Decision) -> Decision:
    return msgspec.structs.replace(
        decision, notes={**decision.notes, **noted.notes}, audit=(*noted.audit, *decision.audit)
    )


def _may_go(current: Registration, record_id: str, agent_id: str) -> bool:
    return current.id == record_id or not {record_id, agent_id}.isdisjoint(current.aliases)


def announced_record_id(agent_id: str) -> str:
    """The id of the record of an announced agent; ids of other dialects are their records' own."""
    return _URN + agent_id if find_agent_id(agent_id) else agent_id


def revocation_subject(name: str) -> str:
    """The name under which an agent is revoked: a UUID in lower case, else the id as it is."""
    return find_agent_id(name) or name


def is_signed_by(registration: Registration, key_id: str) -> bool:
    return key_id in keys_of(registration)
