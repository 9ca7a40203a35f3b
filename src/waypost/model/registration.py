"""Leases: a table of states, and how long a registration lives."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.health import HEALTH_FACT, SUSPENDED, UNHEALTHY, UNKNOWN, Health, endpoint_to_check
from waypost.model.principal import record_scopes
from waypost.model.record import AgentRecord
from waypost.model.verdict import UNCHECKED, TrustState, Verdict, trust_summary


def granted_ttl(asked: int | None, dialect: str) -> int | None:
    """The time a lease runs, clamped to the bounds; None when the dialect has no lease and none was asked for."""
    ttl = asked if asked is not None else limits.TTL_DEFAULT_SECONDS.get(dialect)
    if ttl is None:
        return None
    return max(limits.TTL_MIN_SECONDS, min(limits.TTL_MAX_SECONDS, ttl))


def parse_ttl(value: object, path: str = "ttl_seconds") -> int:
    """A TTL as callers send it: a whole, positive number of seconds (T1 of the threat list)."""
    number = value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        number = int(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= 2**31:
        raise InvalidParameter(
            "A TTL is a whole number of seconds above 0.",
            path=path,
            hint=f"Use {limits.TTL_MIN_SECONDS} to {limits.TTL_MAX_SECONDS}; other values are clamped to that.",
        )
    return number


def earliest(*instants: float | None) -> float | None:
    known = [instant for instant in instants if instant is not None]
    return min(known) if known else None


# ---- What the registry holds about one agent: the record, and around it owner, visibility, lease, sources and revision.

TRUST_FACT = "trust"

VERIFIED_FACT = "trust:verified"

KEY_FACT = "key"

_HEALTH_PREFIX = f"{HEALTH_FACT}:"


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One document as it was received. The latest of each dialect is kept, byte for byte."""

    dialect: str
    document: bytes
    digest: str  # SHA-256 of `document`, hex
    id: str  # the agent's id in this dialect
    received_at: float
    subject: str
    via: str  # the face or transport that brought it: http, rtfs, announce, import …
    sequence: int | None = None  # the three marks of freshness, as this source gave them
    updated_at: float | None = None
    version: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    url: str | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent has one of these, however many sources tell of it."""

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
    invitees: tuple[str, ...] = ()
    sources: tuple[SourceDocument, ...] = ()  # newest first
    announce_id: str | None = None  # a stable UUIDv4 for records that were never announced
    hosted: str | None = None  # the domain under which the service answers for this agent by `Host`
    health: Health | None = None  # how its endpoint answers, where it is checked

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
        """What it says of itself, unless its endpoint is dead."""
        return SUSPENDED if self.is_unhealthy else self.record.effective_status

    def source(self, dialect: str) -> SourceDocument | None:
        for source in self.sources:
            if source.dialect == dialect:
                return source
        return None


def verdicts_of(registration: Registration) -> tuple[Verdict, ...]:
    """What was found of all its documents."""
    sources = registration.sources
    if len(sources) == 1:  # nearly always
        return sources[0].verdicts
    return tuple(verdict for source in sources for verdict in source.verdicts)


def trust_of(registration: Registration) -> dict[str, Any]:
    """The verdicts on all its documents; a document without a signature counts as not checked."""
    unchecked = [
        UNCHECKED[source.dialect]
        for source in registration.sources
        if not source.verdicts and source.dialect in UNCHECKED
    ]
    return trust_summary((*verdicts_of(registration), *unchecked))


def key_id_of(source: SourceDocument) -> str | None:
    """The key behind a source, as the checks found it."""
    for verdict in source.verdicts:
        found: Any = verdict.evidence.get("key_id")
        if verdict.state == "passed" and isinstance(found, str):
            return found
    return None


def keys_of(registration: Registration) -> tuple[str, ...]:
    """The keys that stand behind it, each once."""
    found = [key_id_of(source) for source in registration.sources if source.verdicts]
    return tuple(dict.fromkeys(key_id for key_id in found if key_id is not None)) if found else ()


def endpoint_of(registration: Registration) -> str | None:
    """Where it is asked whether it lives: an RTFS registration names that place beside its card."""
    source = registration.source("rtfs")
    named = source.url if source is not None and source.via == "rtfs" else None
    return endpoint_to_check(registration.record, named)


class CatalogEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a registration that is kept in memory for every agent: enough to list, filter and authorise.

    Stores keep it as an array, so a new member goes to the end and has a default.
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
    domain: str | None = None  # set when the agent is hosted under this Host
    renewed_at: float | None = None  # where it was renewed after its last change
    facts: tuple[str, ...] | None = (
        None  # what constraints ask for (`model.facts`, and the level of trust); None: written before there were any
    )
    number: int = 0  # where its store keeps it, so that it is found there without a search; 0: nobody says

    @property
    def trust(self) -> TrustState:
        """As its documents were judged."""
        for fact in self.facts or ():
            if fact.startswith("trust:"):
                return "verified" if fact == VERIFIED_FACT else "failed"
        return "self_asserted"

    @property
    def health(self) -> str:
        """As its endpoint answers: a state of `model.health`."""
        for fact in self.facts or ():
            if fact.startswith(_HEALTH_PREFIX):
                return fact[len(_HEALTH_PREFIX) :]
        return UNKNOWN

    @property
    def scopes(self) -> tuple[str, ...]:
        return record_scopes(self.owner, self.visibility, self.invitees)
