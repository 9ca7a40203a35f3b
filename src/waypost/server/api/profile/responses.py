"""The profile's Discovery Response (Table 6) and its candidates (Table 7) as JSON."""

from __future__ import annotations

from typing import Final

from waypost.model.json import JsonObject, dump_json
from waypost.model.query import DiscoverResult, EmptyResult, Evidence, MatchedAgent, Query
from waypost.model.record import AgentRecord, Binding, record_to_json
from waypost.model.times import find_instant, to_rfc3339, to_rfc3339_millis
from waypost.model.verdict import TRUST_MEMBER
from waypost.registry.find.filters import MAX_AGE
from waypost.server.facets import facets_json

_PLACES: Final = 4

_SHORT_DESCRIPTION = 280

_RESERVED_MEMBERS = (
    "score",
    "score_components",
    "matched_tags",
    "expanded_tags",
    "matched_examples",
    "snippets",
    "flags",
    "credential_refs",
    "redacted",
    "freshness",
    "trust",
    "health",
    "untrusted",
    "self_asserted",
    TRUST_MEMBER,
)


def candidate_json(candidate: MatchedAgent, query: Query, oldest: float | None, *, redact: bool) -> JsonObject:
    """Table 7. `oldest` is the time before which the caller takes metadata for old."""
    record = candidate.record
    is_whole = query.detail == "full" and not redact
    shown = _separate_reserved(record_to_json(record)) if is_whole else _summary_json(record, query.detail)
    shown["status"] = record.effective_status
    if redact:
        shown["redacted"] = True
    if query.detail != "minimal":
        shown["freshness"] = _freshness(record, candidate.changed_at, candidate.expires_at, oldest)
        shown["trust"] = {"level": candidate.trust["level"]}
        if candidate.health is not None:  # a state and since when: why, is its owner's to know
            shown["health"] = {"state": candidate.health.state, "since": to_rfc3339(candidate.health.since)}
    if candidate.evidence is not None:
        shown.update(_evidence_json(candidate.evidence))
        shown["trust"] = candidate.trust
        references = _credential_refs(candidate.trust)
        if references:
            shown["credential_refs"] = references
        shown["untrusted"] = (
            True  # name, description, examples and snippets are the publisher's words: data, not orders
        )
    shown["score"] = candidate.score
    return shown


def _summary_json(record: AgentRecord, detail: str) -> JsonObject:
    shown: JsonObject = {"id": record.id}
    if detail != "minimal":
        shown["name"] = record.name
        shown["description"] = _shorten(record.description)
        if record.tags:
            shown["tags"] = record.tags
    shown["bindings"] = [_binding_json(binding, detail) for binding in record.bindings]
    return shown


def _separate_reserved(document: JsonObject) -> JsonObject:
    """What only we may say of a candidate stands apart where a publisher said it of itself (PRO-55, P11)."""
    claimed = {name: document.pop(name) for name in _RESERVED_MEMBERS if name in document}
    if claimed:
        document["self_asserted"] = claimed
    return document


def _credential_refs(trust: JsonObject) -> list[str]:
    """The keys and domains by which the agent was verified."""
    passed = [check["evidence"] for check in trust["checks"] if check["state"] == "passed" and "evidence" in check]
    return list(
        dict.fromkeys(str(told[name]) for told in passed for name in ("key_id", "domain") if told.get(name) is not None)
    )


def _freshness(record: AgentRecord, changed_at: float, expires_at: float | None, oldest: float | None) -> JsonObject:
    """PRO-21: when it was indexed, and whether its source says that it is older than the caller asked for."""
    freshness: JsonObject = {"indexed_at": to_rfc3339(changed_at)}
    updated_at = record.updated_at
    if updated_at is not None:
        freshness["metadata_updated_at"] = updated_at
    if expires_at is not None:
        freshness["expires_at"] = to_rfc3339(expires_at)
    if oldest is not None and (updated := find_instant(updated_at)) is not None:
        freshness["older_than_constraint"] = updated < oldest
    return freshness


def _shorten(text: str) -> str:
    if len(text) <= _SHORT_DESCRIPTION:
        return text
    return text[:_SHORT_DESCRIPTION].rsplit(" ", 1)[0] + "…"


def _binding_json(binding: Binding, detail: str) -> JsonObject:
    shown: JsonObject = {"protocol": binding.protocol, "endpoint": binding.endpoint}
    if detail != "minimal":
        if binding.media_types:
            shown["media_types"] = binding.media_types
        if binding.interaction_model is not None:
            shown["interaction_model"] = binding.interaction_model
        if binding.priority is not None:
            shown["priority"] = binding.priority
    return shown


def _evidence_json(evidence: Evidence) -> JsonObject:
    shown: JsonObject = {
        "score_components": {name: round(value, _PLACES) for name, value in evidence.components.items()}
    }
    shown["matched_tags"] = list(evidence.matched_tags)
    if evidence.expanded_tags:
        shown["expanded_tags"] = list(evidence.expanded_tags)
    shown["matched_examples"] = [
        {
            name: value
            for name, value in (("id", item.id), ("score", round(item.score, _PLACES)), ("text", item.text))
            if value is not None
        }
        for item in evidence.matched_examples
    ]
    if evidence.snippets:
        shown["snippets"] = list(evidence.snippets)
    if evidence.flags:
        shown["flags"] = list(evidence.flags)
    return shown


def discovery_response(
    findings: DiscoverResult, query: Query, notes: list[str], request_id: str, *, redact: bool
) -> bytes:
    """Table 6. Authenticated callers may have everything with detail=full; others get it redacted, with a warning
    (PRO-36)."""
    max_age = query.constraints.get(MAX_AGE)
    oldest = None if max_age is None else findings.generated_at - max_age
    response = _response_head(findings, notes, request_id, redact=redact and bool(findings.candidates))
    response["candidates"] = [candidate_json(each, query, oldest, redact=redact) for each in findings.candidates]
    return dump_json(response)


def _response_head(findings: DiscoverResult, notes: list[str], request_id: str, *, redact: bool) -> JsonObject:
    warnings = [*notes, *findings.warnings]
    if redact:
        warnings.append("detail=full needs a token: candidates are redacted")
    if findings.unsupported_filters:
        warnings.append("constraints that could not be applied are listed in unsupported_filters")
    head: JsonObject = {
        "request_id": request_id,
        "generated_at": to_rfc3339_millis(findings.generated_at),
        "applied_filters": findings.applied_filters,
    }
    if findings.unsupported_filters:
        head["unsupported_filters"] = list(findings.unsupported_filters)
    if warnings:
        head["warnings"] = warnings
    told = _explanations(findings)
    return head | told if told else head


def _explanations(findings: DiscoverResult) -> JsonObject:
    """Members beyond Table 6, each where it has something to say."""
    told: JsonObject = {}
    if findings.facets is not None:
        told["facets"] = facets_json(findings.facets)
    if findings.rejected:
        told["rejected_constraints"] = findings.rejected
    if findings.suggestions:
        told["suggestions"] = {"tags": findings.suggestions}
    if findings.empty is not None:
        told["empty"] = _empty_json(findings.empty)
    return told


def _empty_json(empty: EmptyResult) -> JsonObject:
    told: JsonObject = {"reason": empty.reason, "visible": empty.visible}
    if empty.filters:
        told["filters"] = [
            {"filter": each.filter, "value": each.value, "matching": each.matching, "remaining": each.remaining}
            for each in empty.filters
        ]
    if empty.best_score is not None:
        told["best_score"] = empty.best_score
    return told
