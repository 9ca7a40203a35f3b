"""Results of resolving a name to an agent: steps, documents, key and trust level. Values only.

Each trust level has a verdict: passed, failed, unknown or not checked. The result is the highest level that passed. If
one failed the agent is unverified: an agent that contradicts its DNS must not be trusted at all (ADP-51).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from waypost.model.verdict import Verdict, VerdictState

TrustLevel = Literal["unverified", "dns-verified", "dane-verified", "key-verified", "peer-verified"]
VERIFIED_LEVELS: Final[tuple[TrustLevel, ...]] = (
    "dns-verified",
    "dane-verified",
    "key-verified",
    "peer-verified",
)  # lowest first

SIGNATURE: Final = "svcb-signature"  # the check of a signed record; not a trust level

Depth = Literal["dns", "document", "key"]
DEPTHS: Final[tuple[Depth, ...]] = ("dns", "document", "key")
Outcome = Literal["resolved", "not_found", "failed"]
LookupMethod = Literal["svcb", "https", "txt", "aid", "well-known", "url"]
Dnssec = Literal["secure", "insecure", "bogus", "indeterminate"]


class ResolutionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One query or comparison. `code` is the reason in machine-readable form."""

    name: str  # svcb https txt srv tlsa document capability identity key index …
    state: VerdictState
    reason: str = ""
    code: str = ""
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    queries: int = 0  # DNS queries sent for this step
    round_trips: int = 0  # sequential ones among them
    took_ms: float = 0.0
    at: str = ""


class AgentEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint of the agent, from the DNS."""

    host: str
    port: int = 443
    alpn: tuple[str, ...] = ()
    protocol: str = ""  # the agent's own: `bap`, else the first ALPN id that is not a transport
    priority: int = 0
    url: str = ""  # if the record has one
    hints: tuple[str, ...] = ()  # address hints; reported, never connected to


class ResolvedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fetched document, without its bytes."""

    role: Literal["capability", "metadata"]
    url: str
    dialect: str  # adp a2a … dns-aid aid; empty if none recognises it
    sha256: str  # hex, of the received bytes
    size: int
    media_type: str = ""
    id: str = ""
    name: str = ""
    max_age_seconds: int = 0


class AgentKey(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprint in the DNS, and the key of the document that hashes to it, if there is one."""

    fingerprint: str
    source: str  # the DNS name of the record
    dnssec: Dnssec = "indeterminate"
    public_key: str = ""  # PEM


class ResolutionCost(msgspec.Struct, frozen=True, kw_only=True):
    """The total cost. Round trips are those of the longest path; concurrent ones count once."""

    queries: int = 0
    round_trips: int = 0
    fetches: int = 0
    took_ms: float = 0.0


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # as requested
    domain: str
    agent: str  # agent:{domain}
    outcome: Outcome
    level: TrustLevel
    verdicts: tuple[Verdict, ...]  # one per trust level, lowest first; then that of a signed record, if any
    reason: str = ""  # why the name is not resolved
    code: str = ""
    how: LookupMethod | None = None
    depth: Depth = "key"  # how far it was resolved
    dnssec: Dnssec = "indeterminate"  # of the records that lead to the agent
    endpoints: tuple[AgentEndpoint, ...] = ()
    document: ResolvedDocument | None = None  # the best description of the agent
    documents: tuple[ResolvedDocument, ...] = ()
    capabilities: tuple[str, ...] = ()  # from its document, else from the DNS
    key: AgentKey | None = None
    steps: tuple[ResolutionStep, ...] = ()
    warnings: tuple[str, ...] = ()
    ttl_seconds: int = 0  # how long the result may be cached
    cost: ResolutionCost = ResolutionCost()
    at: str = ""
    remembered: bool = False  # from the cache

    @property
    def is_resolved(self) -> bool:
        return self.outcome == "resolved"

    @property
    def is_unanswered(self) -> bool:
        """Whether the DNS did not answer: the agent may exist."""
        return self.outcome == "failed" and self.code == "dns_failed"

    def find_verdict(self, check: str) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.check == check), None)


class OrganisationIndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One agent in the index of an organisation: a name to resolve, or a document in the index itself."""

    name: str
    domain: str = ""
    url: str = ""
    protocol: str = ""
    via: str = ""  # aliases, catalog, index, txt
    signature: Verdict | None = None  # of an entry in the index of another organisation (AID-25)


class OrganisationIndex(msgspec.Struct, frozen=True, kw_only=True):
    domain: str
    outcome: Outcome
    entries: tuple[OrganisationIndexEntry, ...] = ()
    reason: str = ""
    code: str = ""
    dnssec: Dnssec = "indeterminate"
    steps: tuple[ResolutionStep, ...] = ()
    warnings: tuple[str, ...] = ()
    cost: ResolutionCost = ResolutionCost()
    at: str = ""


def highest_level(verdicts: Iterable[Verdict]) -> TrustLevel:
    states = {verdict.check: verdict.state for verdict in verdicts}
    if "failed" in states.values():
        return "unverified"
    return next((level for level in reversed(VERIFIED_LEVELS) if states.get(level) == "passed"), "unverified")
