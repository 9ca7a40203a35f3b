"""The rules of changes that bring no document, pure as those of a write: a lease runs on, an agent is served under a domain,
a change that waits is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from waypost.model.lease import granted_ttl
from waypost.model.principal import Principal
from waypost.model.registration import Registration
from waypost.registry.auditing import entry_by
from waypost.registry.drift import held_name
from waypost.registry.entries import has_ended
from waypost.registry.holding import need_held, rejected
from waypost.registry.ports import Change, Decision, Held
from waypost.trust.policy import no_such_agent, require_bound, require_owner


def renew_decision(current: Registration, now: float, asked: int | None, dialect: str) -> Decision:
    """Equal content: a lease runs on, and without a lease nothing happens at all."""
    ttl = granted_ttl(asked, dialect) if asked is not None or current.ttl_seconds is None else current.ttl_seconds
    if ttl is None:
        return Decision(outcome="unchanged", registration=current)
    registration = msgspec.structs.replace(
        current, ttl_seconds=ttl, lease_expires_at=float(int(now) + ttl), renewed_at=now
    )
    change = Change(type="renewed", at=now, registration=registration, before=current.scopes)
    return Decision(outcome="refreshed", change=change)


def renew(principal: Principal, key: str, ttl_seconds: int | None, *, now: float) -> Callable[[Held], Decision]:
    def decide(held: Held) -> Decision:
        current = need_current(principal, key, held, now)
        return renew_decision(current, now, ttl_seconds, current.sources[0].dialect if current.sources else "")

    return decide


def host(principal: Principal, key: str, domain: str | None, *, now: float) -> Callable[[Held], Decision]:
    """Serve an agent under a domain by `Host`, or stop doing so. Only admins may: a Host must not be claimed."""

    def decide(held: Held) -> Decision:
        current = need_current(principal, key, held, now)
        registration = msgspec.structs.replace(current, hosted=domain, changed_at=now)
        change = Change(type="updated", at=now, registration=registration, before=current.scopes)
        entry = entry_by(
            principal, "host", now=now, object=current.id, outcome="updated", etag=current.etag, detail=domain or "none"
        )
        return Decision(outcome="updated", change=change, audit=(entry,))

    return decide


def reject(principal: Principal, key: str, etag: str, *, now: float) -> Callable[[Held], Decision]:
    """Forget a change that waits."""

    def decide(held: Held) -> Decision:
        current = need_current(principal, key, held, now)
        need_held(held.notes.get(held_name(current.id)), etag, now)
        return rejected(principal, current, etag, now)

    return decide


def need_current(principal: Principal, key: str, held: Held, now: float) -> Registration:
    """The agent that the caller may change, or the refusal: what is hidden looks like what is not there."""
    current = held.registrations.get(key) or next(iter(held.registrations.values()), None)
    if current is None or has_ended(current, now):
        raise no_such_agent(key)
    require_owner(principal, current.owner, current.scopes, key)
    require_bound(principal, current.id, *current.aliases)
    return current
