"""What a check of an endpoint changes in a registration, pure: the store calls these rules inside its transaction.

Watchers hear of it when an agent leaves the lists or comes back. That it is suspect, or healthy for the first time, changes no
list; it is kept beside the lease and is told with renewals alone. What was checked while the agent moved elsewhere is not said
of it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from waypost import limits
from waypost.model.health import UNHEALTHY, Health
from waypost.model.registration import Registration, endpoint_of
from waypost.registry.ports import AuditEntry, Change, Decision, Held, Tombstone

VIA = "health"


def note_health(agent_id: str, endpoint: str, health: Health, *, now: float) -> Callable[[Held], Decision]:
    def decide(held: Held) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or endpoint_of(current) != endpoint or _state_of(current) == health.state:
            return Decision(outcome="unchanged", registration=current)
        after = msgspec.structs.replace(current, health=health)
        if after.status == current.status:
            change = Change(type="renewed", at=now, registration=after, before=current.scopes)
            return Decision(outcome="noted", change=change)
        after = msgspec.structs.replace(after, changed_at=now)
        change = Change(type="updated", at=now, registration=after, before=current.scopes)
        entry = AuditEntry(
            at=now, action="check", subject="", object=agent_id, outcome=health.state, via=VIA, etag=current.etag,
            detail=health.reason,
        )  # fmt: skip
        return Decision(outcome="noted", change=change, audit=(entry,))

    return decide


def evict(agent_id: str, endpoint: str, *, seconds: float, now: float) -> Callable[[Held], Decision]:
    """Remove an agent whose endpoint has been dead for so long, unless its owner was heard of in that time: health alone
    withdraws nobody (THREATS T5)."""

    def decide(held: Held) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or not _may_go(current, endpoint, now - seconds):
            return Decision(outcome="unchanged", registration=current)
        change = Change(
            type="expired", at=now, removed=current, tombstone=_tombstone(current, now), before=current.scopes
        )
        entry = AuditEntry(
            at=now, action="expire", subject="", object=agent_id, outcome="evicted", via=VIA, etag=current.etag
        )
        return Decision(outcome="evicted", change=change, audit=(entry,))

    return decide


def _state_of(registration: Registration) -> str:
    return "unknown" if registration.health is None else registration.health.state


def _may_go(current: Registration, endpoint: str, before: float) -> bool:
    health = current.health
    if health is None or health.state != UNHEALTHY or endpoint_of(current) != endpoint:
        return False
    heard_of = max(current.renewed_at, *(source.received_at for source in current.sources), 0.0)
    return health.since <= before and heard_of <= before


def _tombstone(current: Registration, now: float) -> Tombstone:
    """Its owner may register it again at once; nobody else may take its id for a while."""
    return Tombstone(
        id=current.id,
        owner=current.owner,
        at=now,
        type="expired",
        hold_until=now + limits.ID_HOLD_MAX_SECONDS,
        forget_at=now + limits.TTL_MAX_SECONDS + limits.REMEMBER_WITHDRAWN_SECONDS,
        etag=current.etag,
    )
