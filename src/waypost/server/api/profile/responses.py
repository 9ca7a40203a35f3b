"""The profile's Discovery Response (Table 6) and its candidates (Table 7)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.model.json import JsonObject, dump_json
from waypost.model.query import DiscoverResult, Evidence, MatchedAgent, Query
from waypost.model.record import AgentRecord, Binding, record_to_json
from waypost.model.times import find_instant, rfc3339_or_none, to_rfc3339, to_rfc3339_millis
from waypost.model.verdict import TRUST_MEMBER, TrustSummary
from waypost.registry.find.filters import MAX_AGE
from waypost.responses.base import embedded
from waypost.responses.search import (
    CandidateHealth,
    DiscoveryResponse,
    ExampleEvidence,
    ExplainedCandidate,
    Freshness,
    RankedCandidate,
)

_PLACES: Final = 4

_SHORT_DESCRIPTION: Final = 280

# Members of a candidate that only the service may set.
_PUBLISHED_MEMBERS: Final = ("id", "name", "description", "tags", "bindings", "status")
_RESERVED_MEMBERS: Final = (
    *(name for name in RankedCandidate.__struct_fields__ if name not in _PUBLISHED_MEMBERS),
    TRUST_MEMBER,
)


def discovery_response(
    findings: DiscoverResult, query: Query, notes: list[str], request_id: str, *, redact: bool
) -> bytes:
    """Table 6. Authenticated callers may have everything with detail=full; others get it redacted, with a warning
    (PRO-36)."""
    max_age = query.constraints.get(MAX_AGE)
    oldest = None if max_age is None else findings.generated_at - max_age
    warnings = [*notes, *findings.warnings]
    if redact and findings.candidates:
        warnings.append("detail=full needs a token: candidates are redacted")
    if findings.unsupported_filters:
        warnings.append("constraints that could not be applied are listed in unsupported_filters")
    response = DiscoveryResponse(
        request_id=request_id,
        generated_at=to_rfc3339_millis(findings.generated_at),
        applied_filters=findings.applied_filters,
        unsupported_filters=findings.unsupported_filters,
        warnings=tuple(warnings),
        facets=findings.facets or {},
        rejected_constraints=findings.rejected,
        suggestions={"tags": findings.suggestions} if findings.suggestions else {},
        empty=findings.empty,
        candidates=tuple(_shown(each, query, oldest, redact=redact) for each in findings.candidates),
    )
    return dump_json(response)


def _shown(agent: MatchedAgent, query: Query, oldest: float | None, *, redact: bool) -> RankedCandidate:
    """A candidate with the requested detail; with detail=full inside the agent's whole document."""
    candidate = make_candidate(agent, query, oldest, redact=redact)
    if query.detail != "full" or redact:
        return candidate
    document = _separate_reserved(record_to_json(agent.record))
    full: RankedCandidate = embedded(dump_json({**msgspec.to_builtins(candidate), **document}))
    return full


def make_candidate(agent: MatchedAgent, query: Query, oldest: float | None, *, redact: bool) -> RankedCandidate:
    """Table 7. `oldest` is the time before which the caller considers metadata old."""
    record = agent.record
    members: dict[str, Any] = {
        "id": record.id,
        "bindings": tuple(_binding(binding, query.detail) for binding in record.bindings),
        "status": record.effective_status,
        "redacted": redact,
        "score": agent.score,
    }
    if query.detail != "minimal":
        members |= {
            "name": record.name,
            "description": _shorten(record.description),
            "tags": record.tags,
            "freshness": _freshness(record, agent.changed_at, agent.expires_at, oldest),
            "trust": TrustSummary(level=agent.trust.level),
        }
        if agent.health is not None:  # without the reason, which only the owner may know
            members["health"] = CandidateHealth(state=agent.health.state, since=to_rfc3339(agent.health.since))
    if agent.evidence is None:
        return RankedCandidate(**members)
    members |= {"trust": agent.trust, "credential_refs": _credential_refs(agent.trust), "untrusted": True}
    return ExplainedCandidate(**members, **_evidence_members(agent.evidence))


def _separate_reserved(document: JsonObject) -> JsonObject:
    """Move members that only the service may set into `self_asserted` (PRO-55, P11)."""
    claimed = {name: document.pop(name) for name in _RESERVED_MEMBERS if name in document}
    if claimed:
        document["self_asserted"] = claimed
    return document


def _credential_refs(trust: TrustSummary) -> tuple[str, ...]:
    """The keys and domains by which the agent was verified."""
    passed = [check.evidence for check in trust.checks or () if check.state == "passed"]
    return tuple(
        dict.fromkeys(
            str(evidence[name])
            for evidence in passed
            for name in ("key_id", "domain")
            if evidence.get(name) is not None
        )
    )


def _freshness(record: AgentRecord, changed_at: float, expires_at: float | None, oldest: float | None) -> Freshness:
    """PRO-21: when the agent was indexed, and whether its metadata is older than the caller accepts."""
    updated = None if oldest is None else find_instant(record.updated_at)
    return Freshness(
        indexed_at=to_rfc3339(changed_at),
        metadata_updated_at=record.updated_at,
        expires_at=rfc3339_or_none(expires_at),
        older_than_constraint=None if oldest is None or updated is None else updated < oldest,
    )


def _shorten(text: str) -> str:
    if len(text) <= _SHORT_DESCRIPTION:
        return text
    return text[:_SHORT_DESCRIPTION].rsplit(" ", 1)[0] + "…"


def _binding(binding: Binding, detail: str) -> JsonObject:
    shown: JsonObject = {"protocol": binding.protocol, "endpoint": binding.endpoint}
    if detail != "minimal":
        if binding.media_types:
            shown["media_types"] = binding.media_types
        if binding.interaction_model is not None:
            shown["interaction_model"] = binding.interaction_model
        if binding.priority is not None:
            shown["priority"] = binding.priority
    return shown


def _evidence_members(evidence: Evidence) -> dict[str, Any]:
    return {
        "score_components": {name: round(value, _PLACES) for name, value in evidence.components.items()},
        "matched_tags": evidence.matched_tags,
        "expanded_tags": evidence.expanded_tags,
        "matched_examples": tuple(
            ExampleEvidence(id=item.id, score=round(item.score, _PLACES), text=item.text)
            for item in evidence.matched_examples
        ),
        "snippets": evidence.snippets,
        "flags": evidence.flags,
    }
