"""Makes the catalog entry of a registration. Lists are filtered by the facts of an entry, without reading its document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.facts import FACT_CHARS, facts_of
from waypost.model.names import fold_tag, fold_tags
from waypost.model.record import LISTED, AgentRecord, protocols_of
from waypost.model.registration import CatalogEntry, Registration, check_facts, stored_bytes_of, trust_facts
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.codec import residue_name
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.ports import Store
from waypost.trust.announce.admission import SIGNATURE_CHECK

CAPABILITY: Final = "capability"
_ANNOUNCE: Final = "announce"
_SIGNED: Final = "signed"
_RESIDUE: Final = residue_name("announce")


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
        registration.expires_at,
        registration.aliases,
        registration.invitees,
        fold_tags(record.tags),
        protocols_of(record),
        registration.hosted,
        registration.renewed_at if registration.renewed_at > registration.changed_at else None,
        (*facts_of(record), *trust_facts(registration), *check_facts(registration), *announced_facts(registration)),
        stored_bytes=stored_bytes_of(registration),
    )


def announced_facts(registration: Registration) -> tuple[str, ...]:
    """Whether an announced agent is signed, and the capabilities that its record has no room for among its tags."""
    source = registration.source("announce")
    if source is None:
        return ()
    signed = any(verdict.check == SIGNATURE_CHECK and verdict.state == "passed" for verdict in source.verdicts)
    more = (f"{CAPABILITY}:{fold_tag(name)}" for name in _capabilities_beyond_tags(registration.record))
    return (*((f"{_ANNOUNCE}:{_SIGNED}",) if signed else ()), *dict.fromkeys(more))


def _capabilities_beyond_tags(record: AgentRecord) -> list[str]:
    residue = record.extra.get(_RESIDUE)
    if len(record.tags) < limits.TAGS or not isinstance(residue, dict) or "capabilities" not in residue:
        return []
    try:
        names = read_capabilities(residue, "$")
    except InvalidDocument:  # a profile document may state any residue
        return []
    known = set(record.tags)
    return [name for name in names if name not in known and len(name) <= FACT_CHARS]


class AnnouncedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for lists of announced agents."""

    names: tuple[str, ...] = ()  # of capabilities
    signed: bool = False
    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None


def select_announced(
    catalog: Catalog, audience: frozenset[str] | None, names: Sequence[str], *, signed: bool
) -> BitMap | None:
    """The agents that may have all these capabilities (the caller compares the spelling); None means all agents."""
    if not names and not signed:
        return None
    chosen = catalog.select(audience, statuses=LISTED)
    for name in names:
        folded = fold_tag(name)
        tagged = catalog.tags.select(required=(folded,), audience=audience)
        chosen &= tagged | catalog.facts.match_any(CAPABILITY, (folded,))
    return chosen & catalog.facts.match_any(_ANNOUNCE, (_SIGNED,)) if signed else chosen


async def complete_entries(catalog: Catalog, store: Store) -> None:
    """Compute the facts and sizes of entries that an earlier release wrote without them. Until then filters do not match them,
    and they do not count against the quota of their owner."""
    ids = catalog.take_incomplete()
    if ids:
        async for page in store.scan(ids):
            for registration in page:
                catalog.complete(entry_of(registration))
