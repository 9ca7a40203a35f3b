"""From a name to an agent: what was asked, what was answered, and how far that is proven. Values only; who asks whom, and
what follows from which answer, is not known here.

A rung of the ladder is a verdict: passed, failed, unknown or not checked. The level is the highest rung that passed; where
one failed there is none, since an agent that is not who the DNS says is not to be trusted at all (ADP-51).
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

SIGNATURE: Final = "svcb-signature"  # of a record that carries one: beside the rungs, never one of them

Depth = Literal["dns", "document", "key"]
DEPTHS: Final[tuple[Depth, ...]] = ("dns", "document", "key")
Outcome = Literal["resolved", "not_found", "failed"]
LookupMethod = Literal["svcb", "https", "txt", "aid", "well-known", "url"]
Dnssec = Literal["secure", "insecure", "bogus", "indeterminate"]


class ResolutionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was asked or compared. `code` is the reason as a word, for programs."""

    name: str  # svcb https txt srv tlsa document capability identity key index …
    state: VerdictState
    reason: str = ""
    code: str = ""
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    queries: int = 0  # of the DNS, sent for this step
    round_trips: int = 0  # of them, one after another
    took_ms: float = 0.0
    at: str = ""


class AgentEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent is, as the DNS says."""

    host: str
    port: int = 443
    alpn: tuple[str, ...] = ()
    protocol: str = ""  # the agent's own: `bap`, else the first of alpn that is none of a transport
    priority: int = 0
    url: str = ""  # where the record names one
    hints: tuple[str, ...] = ()  # addresses; told, never connected to


class ResolvedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was fetched. Its bytes stay with whoever asked for them; this is what is told of them."""

    role: Literal["capability", "metadata"]
    url: str
    dialect: str  # adp a2a … dns-aid aid; empty when none recognises it
    sha256: str  # hex, of the bytes as they came
    size: int
    media_type: str = ""
    id: str = ""
    name: str = ""
    max_age_seconds: int = 0


class AgentKey(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprint that the DNS gives, and the key of the document that hashes to it, where there is one."""

    fingerprint: str
    source: str  # the name at which it was given
    dnssec: Dnssec = "indeterminate"
    public_key: str = ""  # PEM


class ResolutionCost(msgspec.Struct, frozen=True, kw_only=True):
    """What it took, all in all. Round trips are those of the longest way; what went side by side counts once."""

    queries: int = 0
    round_trips: int = 0
    fetches: int = 0
    took_ms: float = 0.0


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # as asked
    domain: str
    agent: str  # agent:{domain}
    outcome: Outcome
    level: TrustLevel
    verdicts: tuple[Verdict, ...]  # one for each rung, lowest first; then that of a signed record, where there is one
    reason: str = ""  # why it is not resolved
    code: str = ""
    how: LookupMethod | None = None
    depth: Depth = "key"  # how far it was asked
    dnssec: Dnssec = "indeterminate"  # of the records that lead to the agent
    endpoints: tuple[AgentEndpoint, ...] = ()
    document: ResolvedDocument | None = None  # the one that describes the agent best
    documents: tuple[ResolvedDocument, ...] = ()
    capabilities: tuple[str, ...] = ()  # as its document tells them, else the DNS
    key: AgentKey | None = None
    steps: tuple[ResolutionStep, ...] = ()
    warnings: tuple[str, ...] = ()
    ttl_seconds: int = 0  # for so long it may be taken for true
    cost: ResolutionCost = ResolutionCost()
    at: str = ""
    remembered: bool = False  # told from memory; nothing was asked

    @property
    def is_resolved(self) -> bool:
        return self.outcome == "resolved"

    @property
    def is_unanswered(self) -> bool:
        """Nobody could be asked: it may be there all the same."""
        return self.outcome == "failed" and self.code == "dns_failed"

    def rung(self, name: str) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.check == name), None)


class OrganisationIndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One agent in the index of an organisation: a name to resolve, or a document that the index itself holds."""

    name: str
    domain: str = ""
    url: str = ""
    protocol: str = ""
    via: str = ""  # aliases, catalog, index, txt
    signature: Verdict | None = None  # of an entry in an index that another organisation keeps (AID-25)


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
    return next((rung for rung in reversed(VERIFIED_LEVELS) if states.get(rung) == "passed"), "unverified")
