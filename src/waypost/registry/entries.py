"""What is kept in memory of a registration, and when it ends. Pure; for the rules of a write, the stores and every face."""

from __future__ import annotations

from waypost import limits
from waypost.model.facts import facts_of
from waypost.model.health import HEALTH_FACT
from waypost.model.lease import earliest
from waypost.model.names import fold_tags
from waypost.model.record import protocols_of
from waypost.model.registration import KEY_FACT, TRUST_FACT, Entry, Registration, keys_of, verdicts_of
from waypost.model.times import find_instant
from waypost.model.verdict import level_of
from waypost.registry.announced import announced_facts


def expiry_of(registration: Registration) -> float | None:
    """When a registration stops being returned: the end of its lease, or the record's own `expires_at` (PRO-22)."""
    ends = registration.record.expires_at
    if ends is None:  # nearly always
        return registration.lease_expires_at
    return earliest(registration.lease_expires_at, find_instant(ends))


def has_ended(registration: Registration, now: float) -> bool:
    ends = expiry_of(registration)
    return ends is not None and ends <= now


def hold_until_of(registration: Registration) -> float:
    ends = expiry_of(registration) or 0.0
    return ends + min(registration.ttl_seconds or 0, limits.ID_HOLD_MAX_SECONDS)


def entry_of(registration: Registration) -> Entry:
    record = registration.record
    return Entry(
        record.id,
        record.name,
        registration.owner,
        registration.visibility,
        registration.status,
        registration.etag,
        registration.revision,
        registration.changed_at,
        expiry_of(registration),
        registration.aliases,
        registration.invitees,
        fold_tags(record.tags),
        protocols_of(record),
        registration.hosted,
        registration.renewed_at if registration.renewed_at > registration.changed_at else None,
        (*facts_of(record), *_trust_fact(registration), *announced_facts(registration), *_found_facts(registration)),
    )


def _found_facts(registration: Registration) -> tuple[str, ...]:
    """What was found besides its level: the keys behind it, and how its endpoint answers."""
    health = () if registration.health is None else (f"{HEALTH_FACT}:{registration.health.state}",)
    return (*health, *(f"{KEY_FACT}:{key_id}" for key_id in keys_of(registration)))


def _trust_fact(registration: Registration) -> tuple[str, ...]:
    """What is only claimed needs no word."""
    verdicts = verdicts_of(registration)
    level = level_of(verdicts) if verdicts else "self_asserted"
    return () if level == "self_asserted" else (f"{TRUST_FACT}:{level}",)
