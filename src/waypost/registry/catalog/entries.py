"""Announced agents in the catalogue: which are signed, and the capabilities that are more than a record has tags for.

Both are facts of an entry, so that a list of a hundred thousand agents is paged from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.facts import FACT_CHARS, facts_of
from waypost.model.health import HEALTH_FACT
from waypost.model.names import fold_tag, fold_tags
from waypost.model.record import LISTED, AgentRecord, protocols_of
from waypost.model.registration import KEY_FACT, TRUST_FACT, CatalogEntry, Registration, earliest, keys_of, verdicts_of
from waypost.model.times import find_instant
from waypost.model.verdict import level_of
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.codec import residue_name
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.ports import Store
from waypost.trust.announce.admission import SIGNATURE_CHECK

CAPABILITY: Final = "capability"

_ANNOUNCE: Final = "announce"

_SIGNED: Final = "signed"

_RESIDUE: Final = residue_name("announce")


def announced_facts(registration: Registration) -> tuple[str, ...]:
    """Nothing for an agent that was never announced."""
    source = registration.source("announce")
    if source is None:
        return ()
    signed = any(verdict.check == SIGNATURE_CHECK and verdict.state == "passed" for verdict in source.verdicts)
    more = (f"{CAPABILITY}:{fold_tag(name)}" for name in _capabilities_beyond_tags(registration.record))
    return (*((f"{_ANNOUNCE}:{_SIGNED}",) if signed else ()), *dict.fromkeys(more))


def _capabilities_beyond_tags(record: AgentRecord) -> list[str]:
    """Capabilities that are not among the record's tags: it has at most so many."""
    residue = record.extra.get(_RESIDUE)
    if len(record.tags) < limits.TAGS or not isinstance(residue, dict) or "capabilities" not in residue:
        return []
    try:
        names = read_capabilities(residue, "$")
    except InvalidDocument:  # anybody may write our residue into a profile document
        return []
    known = set(record.tags)
    return [name for name in names if name not in known and len(name) <= FACT_CHARS]


class AnnouncedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which agents a list of announced ones is to show."""

    names: tuple[str, ...] = ()  # of capabilities
    signed: bool = False
    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None


def select_announced(
    catalogue: Catalog, audience: frozenset[str] | None, names: Sequence[str], *, signed: bool
) -> BitMap | None:
    """The agents that may have all these capabilities (their spelling is compared later); None for all of them."""
    if not names and not signed:
        return None
    chosen = catalogue.select(audience, statuses=LISTED)
    for name in names:
        folded = fold_tag(name)
        chosen &= catalogue.tags.select(required=(folded,), audience=audience) | catalogue.facts.match_any(
            CAPABILITY, (folded,)
        )
    return chosen & catalogue.facts.match_any(_ANNOUNCE, (_SIGNED,)) if signed else chosen


# ---- What is kept in memory of a registration, and when it ends. Pure; for the rules of a write, the stores and every face.


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


def entry_of(registration: Registration) -> CatalogEntry:
    record = registration.record
    return CatalogEntry(
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


# ---- Entries that an earlier release wrote do not tell what their agents state: it is read from the records, after a start.


async def backfill_facts(catalogue: Catalog, store: Store) -> None:
    """Until it is done such agents count as silent. An entry tells by itself from its next change on."""
    ids = catalogue.take_without_facts()
    if ids:
        async for page in store.scan(ids):
            for registration in page:
                catalogue.restate(entry_of(registration))
