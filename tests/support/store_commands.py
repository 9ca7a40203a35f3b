"""Registrations and commands for tests that talk to a store directly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from waypost.errors import Conflict
from waypost.model.record import AgentRecord, Binding, Example, record_bytes
from waypost.model.registration import Registration, SourceDocument
from waypost.registry.ports import (
    Command,
    CommittedChange,
    Decision,
    Idempotency,
    RegistrationChange,
    Store,
    StoreState,
    Tombstone,
)

NOW = 1_790_000_000.0


def make_source(dialect: str, document: bytes, **members: Any) -> SourceDocument:
    return SourceDocument(
        **{
            "dialect": dialect,
            "document": document,
            "digest": hashlib.sha256(document).hexdigest(),
            "id": "agent-in-its-dialect",
            "received_at": NOW,
            "subject": "alice",
            "via": "http",
            **members,
        }
    )


def make_registration(agent_id: str, *, text: str = "Translates invoices.", **members: Any) -> Registration:
    """One agent with a source; `text` is its description and determines its etag."""
    record = AgentRecord(
        id=agent_id,
        name=f"Agent {agent_id}",
        description=text,
        tags=("Finance", "Übersetzung"),
        bindings=(Binding(protocol="A2A", endpoint="https://agents.example/rpc", extra={"x-own": [1, 2.5, None]}),),
        examples=(Example(text="Translate this invoice", input_schema={"type": "object"}),),
        version="1.2.0",
        extra={"com.example.tier": {"name": "gold", "limits": [1, 2]}},
    )
    given: dict[str, Any] = {
        "record": record,
        "owner": "alice",
        "visibility": "public",
        "etag": hashlib.sha256(text.encode()).hexdigest()[:22],
        "revision": 0,
        "created_at": NOW,
        "changed_at": NOW,
        "renewed_at": NOW,
        "sources": (make_source("profile", record_bytes(record)),),
        **members,
    }
    return Registration(**given)


def put(registration: Registration, *, at: float = NOW, idempotency: Idempotency | None = None) -> Command:
    """Register or update."""

    def decide(held: StoreState) -> Decision:
        before = held.registrations.get(registration.id)
        change = RegistrationChange(
            type="registered" if before is None else "updated",
            at=at,
            registration=registration,
            before=None if before is None else before.scopes,
        )
        return Decision(outcome="created" if before is None else "updated", change=change)

    return Command(keys=(registration.id, *registration.aliases), decide=decide, idempotency=idempotency)


def renew(agent_id: str, *, now: float, ttl_seconds: int = 60) -> Command:
    def decide(held: StoreState) -> Decision:
        current = held.registrations[agent_id]
        renewed = msgspec.structs.replace(
            current, renewed_at=now, ttl_seconds=ttl_seconds, lease_expires_at=now + ttl_seconds
        )
        return Decision(
            outcome="refreshed",
            change=RegistrationChange(type="renewed", at=now, registration=renewed, before=current.scopes),
        )

    return Command(keys=(agent_id,), decide=decide)


def withdraw(agent_id: str, *, at: float = NOW, forget_at: float = NOW + 1000) -> Command:
    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="already")
        tombstone = Tombstone(
            id=agent_id,
            owner=current.owner,
            at=at,
            type="withdrawn",
            hold_until=at + 10,
            forget_at=forget_at,
            sequence=7,
            etag=current.etag,
        )
        change = RegistrationChange(
            type="withdrawn", at=at, removed=current, tombstone=tombstone, before=current.scopes
        )
        return Decision(outcome="withdrawn", change=change)

    return Command(keys=(agent_id,), decide=decide)


def refuse(*keys: str) -> Command:
    def decide(held: StoreState) -> Decision:
        raise Conflict("Refused by the test.")

    return Command(keys=keys, decide=decide)


def look(*keys: str, seen: Callable[[StoreState], None]) -> Command:
    """A command that writes nothing and returns the state."""

    def decide(held: StoreState) -> Decision:
        seen(held)
        return Decision(outcome="unchanged")

    return Command(keys=keys, decide=decide)


async def held_for(store: Store, *keys: str) -> StoreState:
    found: list[StoreState] = []
    await store.execute(look(*keys, seen=found.append))
    return found[0]


class Listener:
    """Records the changes that a store reports."""

    def __init__(self) -> None:
        self.batches: list[Sequence[CommittedChange]] = []

    def __call__(self, batch: Sequence[CommittedChange]) -> None:
        self.batches.append(tuple(batch))

    @property
    def changes(self) -> list[CommittedChange]:
        return [committed for batch in self.batches for committed in batch]

    @property
    def revisions(self) -> list[int]:
        return [committed.event.revision for committed in self.changes]


async def everything(store: Store) -> dict[str, Registration]:
    return {registration.id: registration async for page in store.scan() for registration in page}
