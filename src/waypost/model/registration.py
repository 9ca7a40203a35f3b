"""The registry's data about one agent: record, owner, visibility, lease, sources and revision; and merging of
sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.federation import Federation
from waypost.model.health import HEALTH_FACT, SUSPENDED, UNHEALTHY, UNKNOWN, Health, endpoint_to_check
from waypost.model.json import memory_size
from waypost.model.principal import record_scopes
from waypost.model.record import AgentRecord
from waypost.model.times import find_instant
from waypost.model.verdict import UNCHECKED, TrustState, TrustSummary, Verdict, level_of, trust_summary


def granted_ttl(requested: int | None, dialect: str) -> int | None:
    """Return the duration of a lease, clamped to the limits; None if none is requested and the dialect has none."""
    ttl = requested if requested is not None else limits.TTL_DEFAULT_SECONDS.get(dialect)
    if ttl is None:
        return None
    return max(limits.TTL_MIN_SECONDS, min(limits.TTL_MAX_SECONDS, ttl))


def parse_ttl(value: object, path: str = "ttl_seconds") -> int:
    """Parse a TTL: a positive integer of seconds (T1 of the threat list)."""
    number = value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        number = int(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= 2**31:
        raise InvalidParameter(
            "A TTL must be a positive integer of seconds.",
            path=path,
            hint=f"Use {limits.TTL_MIN_SECONDS} to {limits.TTL_MAX_SECONDS}; other values are clamped to that.",
        )
    return number


TRUST_FACT = "trust"
VERIFIED_FACT = "trust:verified"
KEY_FACT = "key"
_HEALTH_PREFIX = f"{HEALTH_FACT}:"
_SOURCE_BYTES = 1024  # of memory, in addition to the document


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One document as received. The latest of each dialect is stored, byte for byte."""

    dialect: str
    document: bytes
    digest: str  # SHA-256 of `document`, hex
    id: str  # the agent's id in this dialect
    received_at: float
    subject: str
    via: str  # the API or transport that received it: http, rtfs, announce, import …
    sequence: int | None = None  # with the next two: the freshness marks of this source
    updated_at: float | None = None
    version: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    url: str | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent has one registration, however many sources describe it."""

    record: AgentRecord
    owner: str
    visibility: str
    etag: str  # content hash, unquoted
    revision: int
    created_at: float
    changed_at: float  # content or visibility
    renewed_at: float
    ttl_seconds: int | None = None
    lease_expires_at: float | None = None
    aliases: tuple[str, ...] = ()
    peer_aliases: tuple[str, ...] = ()  # those that copies of peers gave it: they go with the copies
    invitees: tuple[str, ...] = ()
    sources: tuple[SourceDocument, ...] = ()  # newest first
    announce_id: str | None = None  # a stable UUIDv4 for records that were not announced
    hosted: str | None = None  # the domain under which the service hosts this agent
    health: Health | None = None  # of its endpoint, if it is checked
    federation: Federation | None = None  # of a record that a peer sent

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def scopes(self) -> tuple[str, ...]:
        return record_scopes(self.owner, self.visibility, self.invitees)

    @property
    def is_unhealthy(self) -> bool:
        return self.health is not None and self.health.state == UNHEALTHY

    @property
    def status(self) -> str:
        """The record's own status, unless its endpoint is unhealthy."""
        return SUSPENDED if self.is_unhealthy else self.record.effective_status

    @property
    def expires_at(self) -> float | None:
        """When it is no longer listed: the end of its lease, or the record's own `expires_at` (PRO-22)."""
        own = self.record.expires_at
        if own is None:  # nearly always
            return self.lease_expires_at
        ends = [instant for instant in (self.lease_expires_at, find_instant(own)) if instant is not None]
        return min(ends) if ends else None

    def has_expired(self, now: float) -> bool:
        expires_at = self.expires_at
        return expires_at is not None and expires_at <= now

    def source(self, dialect: str) -> SourceDocument | None:
        for source in self.sources:
            if source.dialect == dialect:
                return source
        return None


def memory_of(registration: Registration) -> int:
    """Estimate the bytes of memory of a registration with its documents."""
    parts = registration.record, registration.aliases, registration.invitees, verdicts_of(registration)
    return memory_size(parts) + sum(len(source.document) + _SOURCE_BYTES for source in registration.sources)


def stored_bytes_of(registration: Registration) -> int:
    """Return the bytes of its documents as received, which count against the quota of its owner."""
    return sum(len(source.document) for source in registration.sources)


def verdicts_of(registration: Registration) -> tuple[Verdict, ...]:
    """Return the verdicts on all its documents."""
    sources = registration.sources
    if len(sources) == 1:  # nearly always
        return sources[0].verdicts
    return tuple(verdict for source in sources for verdict in source.verdicts)


def trust_of(registration: Registration) -> TrustSummary:
    """Return the trust summary of all its documents; those without a signature count as not checked."""
    unchecked = [
        UNCHECKED[source.dialect]
        for source in registration.sources
        if not source.verdicts and source.dialect in UNCHECKED
    ]
    return trust_summary((*verdicts_of(registration), *unchecked))


def key_id_of(source: SourceDocument) -> str | None:
    """Return the key that signed a source, if a check passed."""
    for verdict in source.verdicts:
        found: Any = verdict.evidence.get("key_id")
        if verdict.state == "passed" and isinstance(found, str):
            return found
    return None


def keys_of(registration: Registration) -> tuple[str, ...]:
    """Return the keys that signed its sources, each once."""
    found = [key_id_of(source) for source in registration.sources if source.verdicts]
    return tuple(dict.fromkeys(key_id for key_id in found if key_id is not None)) if found else ()


def trust_facts(registration: Registration) -> tuple[str, ...]:
    """Return the trust level as a fact, unless it is the usual one."""
    verdicts = verdicts_of(registration)
    level = level_of(verdicts) if verdicts else "self_asserted"
    return () if level == "self_asserted" else (f"{TRUST_FACT}:{level}",)


def check_facts(registration: Registration) -> tuple[str, ...]:
    """Return the health of the endpoint and the keys that signed its documents, as facts."""
    health = () if registration.health is None else (f"{HEALTH_FACT}:{registration.health.state}",)
    return (*health, *(f"{KEY_FACT}:{key_id}" for key_id in keys_of(registration)))


def endpoint_of(registration: Registration) -> str | None:
    """Return the endpoint for health checks; an RTFS registration names it beside its card."""
    source = registration.source("rtfs")
    named = source.url if source is not None and source.via == "rtfs" else None
    return endpoint_to_check(registration.record, named)


class CatalogEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a registration that is kept in memory for every agent: enough to list, filter and authorise.

    Stores write it as an array, so a new member goes to the end and has a default.
    """

    id: str
    name: str
    owner: str
    visibility: str
    status: str
    etag: str
    revision: int
    changed_at: float
    expires_at: float | None  # the earlier of lease end and the record's own expires_at
    aliases: tuple[str, ...]
    invitees: tuple[str, ...]
    tags: tuple[str, ...]  # folded
    protocols: tuple[str, ...]
    domain: str | None = None  # of a hosted agent
    renewed_at: float | None = None  # if it was renewed after its last change
    facts: tuple[str, ...] | None = (
        None  # for constraints (`model.facts`, trust, health); None: stored before they existed
    )
    number: int = 0  # row number in its store; 0: unknown
    stored_bytes: int | None = None  # of its documents; None: stored before they were counted

    @property
    def trust(self) -> TrustState:
        """The trust state of its documents."""
        for fact in self.facts or ():
            if fact.startswith("trust:"):
                return "verified" if fact == VERIFIED_FACT else "failed"
        return "self_asserted"

    @property
    def health(self) -> str:
        """The health state of its endpoint."""
        for fact in self.facts or ():
            if fact.startswith(_HEALTH_PREFIX):
                return fact[len(_HEALTH_PREFIX) :]
        return UNKNOWN

    @property
    def scopes(self) -> tuple[str, ...]:
        return record_scopes(self.owner, self.visibility, self.invitees)


# --- One agent from several sources ---------------------------------------------------------------

_MERGED_MEMBERS = ("bindings", "tags", "examples", "auth", "constraints", "status", "version")


def is_link(record: AgentRecord) -> bool:
    """Return whether a record only links to a document of the agent, like an entry of a catalog."""
    return bool(record.bindings) and all(binding.is_link for binding in record.bindings)


def merge_sources(newest_first: Iterable[AgentRecord]) -> AgentRecord:
    """Merge all sources of an agent, at least one. The newest has precedence, but links come after descriptions."""
    primary, *others = sorted(newest_first, key=is_link)
    return merge_records(primary, others)


def merge_records(primary: AgentRecord, others: Iterable[AgentRecord]) -> AgentRecord:
    """Fill the empty members of `primary` from the others, in their order. Names and ids are never mixed."""
    changes: dict[str, object] = {}
    extra = dict(primary.extra)
    for other in others:
        for name in _MERGED_MEMBERS:
            if name not in changes and not getattr(primary, name) and getattr(other, name):
                changes[name] = getattr(other, name)
        for name, value in other.extra.items():
            extra.setdefault(name, value)
    if not changes and extra == primary.extra:
        return primary
    return msgspec.structs.replace(primary, extra=extra, **changes)
