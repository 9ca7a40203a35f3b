"""What the client gives back: typed values read off the service's answers. Members it does not know are no error."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from waypost.client.agent import Agent
from waypost.errors import WaypostError
from waypost.model.events import AuditRecord
from waypost.model.history import JsonDifference
from waypost.trust.document_signatures import canonicalize
from waypost.trust.transparency_log import leaf_hash


class ReportedLoss(msgspec.Struct, frozen=True):
    """A member that a dialect cannot carry."""

    path: str
    reason: str


class PendingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a verified agent that a change would make another: endpoint, key or auth."""

    part: str
    before: Any = None
    after: Any = None


class PendingChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """A change that waits for the agent's owner. `etag` names it when it is confirmed or rejected."""

    etag: str
    base: str = ""
    changes: tuple[PendingDifference, ...] = ()
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


class VerificationResult(msgspec.Struct, frozen=True, kw_only=True):
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
    losses: tuple[ReportedLoss, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    held: PendingChangeView | None = None  # what waits, where the outcome is `held`
    expires_at: str | None = None
    ttl_seconds: int | None = None
    invitees: tuple[str, ...] | None = None  # who sees a private agent, in the answer of `share`


class FetchedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One document at an address. `outcome` is `found`, or what became of it when it was registered."""

    id: str
    name: str = ""
    dialect: str = ""
    outcome: str = "found"
    url: str = ""
    losses: tuple[ReportedLoss, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    agent: dict[str, Any] = msgspec.field(default_factory=dict)  # what it says, as a profile document
    document: Any = None  # what it is, as JSON or as a text
    existing: dict[str, Any] | None = None  # what is registered under its id already
    receipt: Receipt | None = None  # when it was registered


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is at an address: one agent, or those of a catalogue. `digest` names what was seen."""

    url: str
    digest: str
    agents: tuple[FetchedAgent | Failure, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A document of a batch that was refused. The others are not touched by it."""

    error: WaypostError

    @property
    def outcome(self) -> str:
        return "failed"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in one dialect, as it was sent: `content` byte for byte, `body` as JSON (empty for a text)."""

    dialect: str
    content: bytes
    body: dict[str, Any]
    etag: str | None = None
    last_modified: str | None = None
    losses: tuple[ReportedLoss, ...] = ()
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


class ExampleEvidence(msgspec.Struct, frozen=True, kw_only=True):
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
    matched_examples: tuple[ExampleEvidence, ...] = ()
    snippets: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    status: str | None = None
    freshness: dict[str, Any] = msgspec.field(default_factory=dict)
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    redacted: bool = False
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class FacetBucket(msgspec.Struct, frozen=True):
    """One value, and how many agents have it."""

    value: str
    count: int


class FilterStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many agents pass one filter by itself, and how many are left after it and those before it."""

    filter: str
    value: Any = None
    matching: int = 0
    remaining: int = 0


class EmptyReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was found: nothing_registered, filtered, no_match or below_min_score."""

    reason: str
    visible: int = 0
    filters: tuple[FilterStats, ...] = ()
    best_score: float | None = None


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question: candidates, best first, and what was and was not applied."""

    candidates: tuple[Candidate, ...]
    request_id: str | None = None
    generated_at: str | None = None
    applied_filters: dict[str, Any] = msgspec.field(default_factory=dict)
    unsupported_filters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facets: dict[str, tuple[FacetBucket, ...]] = msgspec.field(default_factory=dict)
    suggestions: dict[str, dict[str, tuple[str, ...]]] = msgspec.field(default_factory=dict)  # kind → word → others
    rejected_constraints: dict[str, int] = msgspec.field(default_factory=dict)
    empty: EmptyReason | None = None  # set when there is no candidate
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class FacetOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A list in numbers: the most frequent values of each facet, most frequent first."""

    total: int
    facets: dict[str, tuple[FacetBucket, ...]]
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


def parse_verification(document: Mapping[str, Any]) -> VerificationResult:
    trust = document["trust"]
    return VerificationResult(
        id=document["id"],
        level=trust["level"],
        checks=msgspec.convert(trust.get("checks", ()), tuple[CheckResult, ...]),
        shown=document.get("shown", ""),
        document=dict(document),
    )


def parse_pending_change(document: Mapping[str, Any]) -> PendingChangeView:
    return msgspec.structs.replace(msgspec.convert(document, PendingChangeView), document=dict(document))


def parse_candidate(document: Mapping[str, Any]) -> Candidate:
    """Evidence may stand beside the candidate's members or in their member `evidence`."""
    evidence = document.get("evidence")
    members = {**(evidence if isinstance(evidence, dict) else {}), **document, "document": dict(document)}
    return msgspec.convert(members, Candidate)


def parse_facets(document: Mapping[str, Any]) -> FacetOverview:
    return msgspec.structs.replace(msgspec.convert(document, FacetOverview), document=dict(document))


def parse_search_result(document: Mapping[str, Any]) -> SearchResult:
    candidates = tuple(parse_candidate(item) for item in document["candidates"])
    return msgspec.structs.replace(
        msgspec.convert({**document, "candidates": ()}, SearchResult), candidates=candidates, document=dict(document)
    )


# ---- Earlier versions of an agent, as values.


class AgentVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One content. `changed` are paths against the next older one; `subject` is told to the owner and to admins."""

    etag: str
    at: str
    current: bool = False
    changed: tuple[str, ...] | None = None
    subject: str | None = None
    digests: dict[str, str] = msgspec.field(default_factory=dict)


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    versions: tuple[AgentVersion, ...]
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class DiffResult(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `after` of a difference are UNSET where that side has no such place."""

    id: str
    from_: str = msgspec.field(name="from")
    to: str
    differences: tuple[JsonDifference, ...]
    complete: bool = True
    document: dict[str, Any] = msgspec.field(default_factory=dict)


def parse_history(document: Mapping[str, Any]) -> HistoryResult:
    return msgspec.structs.replace(msgspec.convert(document, HistoryResult), document=dict(document))


def parse_diff(document: Mapping[str, Any]) -> DiffResult:
    return msgspec.structs.replace(msgspec.convert(document, DiffResult), document=dict(document))


# ---- The DNS records of an agent, as values.


class AgentZoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record: `data` is written as zone files have it, `name` is without its final dot."""

    name: str
    type: str
    ttl: int
    data: str


class AgentZone(msgspec.Struct, frozen=True, kw_only=True):
    """What leads to an agent from its domain. `text` is the zone in `format`; `warnings` say what is missing, and for what."""

    id: str
    domain: str
    format: str
    text: str
    records: tuple[AgentZoneRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    document: dict[str, Any] = msgspec.field(default_factory=dict)


def parse_zone(document: Mapping[str, Any]) -> AgentZone:
    return msgspec.structs.replace(msgspec.convert(document, AgentZone), document=dict(document))


# ---- What the client gives back about the allow-list and the trust store.


class AllowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that lets agents announce."""

    rule: str
    added_at: str
    added_by: str = ""
    outcome: str | None = None  # added, unchanged: of the call that gave it


class TrustedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is, or was, bound to an agent."""

    agent_id: str
    key_id: str
    state: str  # active retiring retired revoked
    kind: str = ""
    via: str = ""
    first_seen: str | None = None
    until: str | None = None
    outcome: str | None = None  # trusted, unchanged: of the call that gave it


class RevokedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One of key_id, agent_id, serial and token_id says what was revoked."""

    revoked_at: str
    key_id: str | None = None
    agent_id: str | None = None
    serial: str | None = None
    token_id: str | None = None
    reason: str | None = None
    outcome: str | None = None  # revoked, already: of the call that gave it
    withdrawn: tuple[str, ...] = ()  # agents that went with it

    @property
    def what(self) -> str:
        if self.token_id is not None:
            return f"token:{self.token_id}"
        return self.key_id or self.agent_id or f"serial:{self.serial}"


class TrustStorePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the keys by agent, and of what was revoked. `next_cursor` is None on the last one."""

    keys: tuple[TrustedKey, ...] = ()
    revoked: tuple[RevokedItem, ...] = ()
    next_cursor: str | None = None


def parse_allow_rules(document: Mapping[str, Any]) -> tuple[AllowEntry, ...]:
    return msgspec.convert(document["rules"], tuple[AllowEntry, ...])


def parse_revocations(document: Mapping[str, Any]) -> tuple[RevokedItem, ...]:
    return msgspec.convert(document["revoked"], tuple[RevokedItem, ...])


# ---- The audit trail as a client sees it, and what can be checked of it without trusting the service.


class AuditTrailPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in the order of their numbers. `next_after` is there when more follow."""

    entries: tuple[AuditRecord, ...]
    size: int
    oldest: int = 1  # the first entry whose content is kept
    next_after: int | None = None
    document: dict[str, Any] = msgspec.field(default_factory=dict)

    def leaves(self) -> dict[int, bytes]:
        """The leaf hash of each entry by its number, from what was sent."""
        return {entry["number"]: leaf_hash(canonicalize(entry)) for entry in self.document["entries"]}


class LogCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the service says of its trail. Only `note` is signed; `key` is who the service says it is."""

    origin: str
    size: int
    root: bytes
    key: str
    note: str


class LogProof(msgspec.Struct, frozen=True, kw_only=True):
    hashes: tuple[bytes, ...]
    document: dict[str, Any] = msgspec.field(default_factory=dict)


def parse_audit_page(document: Mapping[str, Any]) -> AuditTrailPage:
    return msgspec.structs.replace(msgspec.convert(document, AuditTrailPage), document=dict(document))


def parse_log_checkpoint(document: Mapping[str, Any]) -> LogCheckpoint:
    return msgspec.convert(document, LogCheckpoint)


def parse_log_proof(document: Mapping[str, Any]) -> LogProof:
    return LogProof(hashes=tuple(map(base64.b64decode, document["hashes"])), document=dict(document))


# ---- What the client gives back about tasks, swarms and invitations. Members it does not know are no error.

TASKS = "/agent/tasks"

SWARMS = "/agent/swarm"

INVITATIONS = "/api/v1/invitations"

FINAL_STATUSES = frozenset(("succeeded", "failed", "cancelled"))


class TaskError(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str = ""


class AcceptedTask(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task that was accepted."""

    task_id: str
    status: str = "accepted"
    status_url: str = ""


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a task goes: accepted, running, succeeded, failed or cancelled."""

    task_id: str
    status: str
    updated: str = ""
    result: Any = None
    error: TaskError | None = None
    task: str = ""
    agent: str = ""
    expires: str | None = None
    callback: dict[str, Any] | None = None

    @property
    def is_done(self) -> bool:
        return self.status in FINAL_STATUSES


class LeasedTask(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task to work on. `lease` is to be shown with every report; it ends at `lease_until`."""

    task_id: str
    task: str
    input: Any = None
    agent: str = ""
    status: str = "running"
    lease: str = ""
    lease_until: str | None = None
    expires: str | None = None
    from_: str = msgspec.field(name="from", default="")


class SwarmMemberView(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    role: str
    joined: str = ""


class SwarmMembership(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent in a swarm."""

    swarm_id: str
    agent: str
    role: str
    members: tuple[SwarmMemberView, ...] = ()


class SwarmView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A swarm, for those who are in it."""

    swarm_id: str
    host: str
    task: str
    created: str = ""
    messages: int = 0
    members: tuple[SwarmMemberView, ...] = ()


class SwarmMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    swarm_id: str
    message_id: str
    number: int
    content: str
    content_type: str = "text/plain"
    task: str = ""
    at: str = ""
    from_: str = msgspec.field(name="from", default="")


class InvitationView(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation. `invitation` is what is given to whoever is invited; it is told once, when it is made."""

    id: str
    agent: str
    state: str  # open used expired revoked
    uses: int = 1
    used: int = 0
    record: str = ""
    redeemed_by: tuple[str, ...] = ()
    created: str = ""
    expires: str = ""
    by: str = ""
    invitation: dict[str, Any] | None = None

    @property
    def code(self) -> str | None:
        return None if self.invitation is None else self.invitation["invite"]["code"]


class RedeemedInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """What an invitation led to. `shared`: the record can be read here from now on; `pinned`: the key is kept as the agent's."""

    agent: str
    document: dict[str, Any]
    id: str | None = None
    fingerprint: str | None = None
    shared: bool = False
    pinned: bool = False


def task_path(task_id: str, verb: str = "") -> str:
    return f"{TASKS}/{quote(task_id, safe='')}{verb}"


def swarm_path(swarm_id: str, verb: str = "") -> str:
    return f"{SWARMS}/{quote(swarm_id, safe='')}{verb}"


def invitation_path(invitation_id: str) -> str:
    return f"{INVITATIONS}/{quote(invitation_id, safe='')}"


def drop_none(**members: Any) -> dict[str, Any]:
    """The members that were given."""
    return {name: value for name, value in members.items() if value is not None}


def redeem_body(invitation: Mapping[str, Any] | str) -> dict[str, Any]:
    return {"code": invitation} if isinstance(invitation, str) else {"invitation": dict(invitation)}
