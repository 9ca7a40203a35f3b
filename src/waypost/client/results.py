"""What the client gives back: typed values read off the service's answers. Members it does not know are no error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.client.agent import Agent
from waypost.errors import WaypostError


class Loss(msgspec.Struct, frozen=True):
    """A member that a dialect cannot carry."""

    path: str
    reason: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a verified agent that a change would make another: endpoint, key or auth."""

    part: str
    before: Any = None
    after: Any = None


class HeldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that waits for the agent's owner. `etag` names it when it is confirmed or rejected."""

    etag: str
    base: str = ""
    changes: tuple[Difference, ...] = ()
    dialect: str | None = None
    subject: str | None = None
    at: str | None = None
    expires_at: str | None = None
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found: passed, failed, unknown or not_checked, and why."""

    check: str
    state: str
    reason: str = ""
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    at: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as it is judged now. `shown` is the level that other answers show."""

    id: str
    level: str  # verified self_asserted failed
    checks: tuple[CheckResult, ...] = ()
    shown: str = ""
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a write."""

    id: str
    outcome: str  # created updated refreshed unchanged held rejected
    etag: str = ""
    dialect: str | None = None
    aliases: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    held: HeldChange | None = None  # what waits, where the outcome is `held`
    expires_at: str | None = None
    ttl_seconds: int | None = None
    invitees: tuple[str, ...] | None = None  # who sees a private agent, in the answer of `share`


class FoundAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One document at an address. `outcome` is `found`, or what became of it when it was registered."""

    id: str
    name: str = ""
    dialect: str = ""
    outcome: str = "found"
    url: str = ""
    losses: tuple[Loss, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    agent: dict[str, Any] = msgspec.field(default_factory=dict)  # what it says, as a profile document
    document: Any = None  # what it is, as JSON or as a text
    existing: dict[str, Any] | None = None  # what is registered under its id already
    receipt: Receipt | None = None  # when it was registered


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What is at an address: one agent, or those of a catalogue. `digest` names what was seen."""

    url: str
    digest: str
    agents: tuple[FoundAgent | Failure, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A document of a batch that was refused. The others are not touched by it."""

    error: WaypostError

    @property
    def outcome(self) -> str:
        return "failed"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in one dialect, as it was sent: `content` byte for byte, `body` as JSON."""

    dialect: str
    content: bytes
    body: dict[str, Any]
    etag: str | None = None
    last_modified: str | None = None
    losses: tuple[Loss, ...] = ()
    trust: str | None = None  # verified, self_asserted or failed
    health: str | None = None  # healthy, suspect or unhealthy, where the service checks it


class AgentHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the endpoint of an agent answers. `status` is the one under which it is listed, or not."""

    id: str
    state: str  # unknown healthy suspect unhealthy
    status: str
    since: str | None = None
    endpoint: str | None = None
    reason: str | None = None  # for its owner


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list. `next_cursor` is None on the last one."""

    agents: tuple[Agent, ...]
    next_cursor: str | None = None
    suggestions: dict[str, dict[str, tuple[str, ...]]] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class MatchedExample(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    score: float | None = None
    id: str | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that was found, and why. `document` is the candidate as it was sent."""

    id: str
    name: str = ""
    description: str = ""
    bindings: tuple[dict[str, Any], ...] = ()
    score: float | None = None
    score_components: dict[str, float] = msgspec.field(default_factory=dict)
    matched_tags: tuple[str, ...] = ()
    expanded_tags: tuple[str, ...] = ()
    matched_examples: tuple[MatchedExample, ...] = ()
    snippets: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    status: str | None = None
    freshness: dict[str, Any] = msgspec.field(default_factory=dict)
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    redacted: bool = False
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class FacetValue(msgspec.Struct, frozen=True):
    """One value, and how many agents have it."""

    value: str
    count: int


class FilterCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many agents pass one filter by itself, and how many are left after it and those before it."""

    filter: str
    value: Any = None
    matching: int = 0
    remaining: int = 0


class Emptiness(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was found: nothing_registered, filtered, no_match or below_min_score."""

    reason: str
    visible: int = 0
    filters: tuple[FilterCount, ...] = ()
    best_score: float | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question: candidates, best first, and what was and was not applied."""

    candidates: tuple[Candidate, ...]
    request_id: str | None = None
    generated_at: str | None = None
    applied_filters: dict[str, Any] = msgspec.field(default_factory=dict)
    unsupported_filters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facets: dict[str, tuple[FacetValue, ...]] = msgspec.field(default_factory=dict)
    suggestions: dict[str, dict[str, tuple[str, ...]]] = msgspec.field(default_factory=dict)  # kind → word → others
    rejected_constraints: dict[str, int] = msgspec.field(default_factory=dict)
    empty: Emptiness | None = None  # set when there is no candidate
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A list in numbers: the most frequent values of each facet, most frequent first."""

    total: int
    facets: dict[str, tuple[FacetValue, ...]]
    suggestions: dict[str, dict[str, tuple[str, ...]]] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the registry. `cursor` continues after it."""

    type: str  # registered updated renewed withdrawn expired
    id: str
    at: str
    cursor: str
    etag: str | None = None
    agent: Agent | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the service. `revision` is told to admin only."""

    agents: int
    indexing_pending: int = 0
    revision: int | None = None
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class DomainClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim on a domain: pending, proven or lapsed. `line` is to be published at `place`."""

    domain: str
    state: str
    method: str
    place: str
    line: str
    subject: str = ""
    subdomains: bool = False
    failures: int = 0
    expires_at: str | None = None
    proven_at: str | None = None
    checked_at: str | None = None
    next_check_at: str | None = None


class MintedToken(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    expires_at: str | None = None


def verification_of(document: Mapping[str, Any]) -> Verification:
    trust = document["trust"]
    return Verification(
        id=document["id"],
        level=trust["level"],
        checks=msgspec.convert(trust.get("checks", ()), tuple[CheckResult, ...]),
        shown=document.get("shown", ""),
        document=dict(document),
    )


def held_of(document: Mapping[str, Any]) -> HeldChange:
    return msgspec.structs.replace(msgspec.convert(document, HeldChange), document=dict(document))


def candidate_of(document: Mapping[str, Any]) -> Candidate:
    """Evidence may stand beside the candidate's members or in their member `evidence`."""
    evidence = document.get("evidence")
    members = {**(evidence if isinstance(evidence, dict) else {}), **document, "document": dict(document)}
    return msgspec.convert(members, Candidate)


def overview_of(document: Mapping[str, Any]) -> Overview:
    return msgspec.structs.replace(msgspec.convert(document, Overview), document=dict(document))


def found_of(document: Mapping[str, Any]) -> Found:
    candidates = tuple(candidate_of(item) for item in document["candidates"])
    return msgspec.structs.replace(
        msgspec.convert({**document, "candidates": ()}, Found), candidates=candidates, document=dict(document)
    )
