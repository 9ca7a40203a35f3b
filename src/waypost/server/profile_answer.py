"""The profile's Discovery Response as bytes (Tables 6 and 7): what is told of candidates, and what of the whole answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from waypost import limits
from waypost.model.json import JsonObject, dump_json
from waypost.model.query import Candidate, Emptiness, Evidence, Findings, Hit, Query
from waypost.model.record import Binding, record_to_json
from waypost.model.registration import Entry
from waypost.model.times import find_instant, to_rfc3339, to_rfc3339_millis
from waypost.model.verdict import TRUST_MEMBER
from waypost.registry.catalogue import Catalogue
from waypost.registry.constraints import MAX_AGE
from waypost.registry.lru import Halves
from waypost.server.facets import facets_json

_SHORT_DESCRIPTION = 280
_PLACES: Final = 4
_OURS = (
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


class ResponseWriter:
    """Discovery Responses as bytes. What a candidate shows apart from its score is written once and kept, bounded, for as long as
    the catalogue holds the very entry that it was written for: every change of an agent makes another one."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kept: Halves[tuple[str, str, bool], tuple[Entry, bytes]] = Halves(limits.CANDIDATE_CACHE)

    def recalled(self, hits: Sequence[Hit], query: Query, *, redact: bool) -> list[bytes | None]:
        """What was written of each before, for a plain question; None where its record has to be read."""
        entries = self._catalogue.find_each([hit.id for hit in hits])
        get, detail = self._kept.get, query.detail
        kept = [get((hit.id, detail, redact)) for hit in hits]
        return [
            found[1] if found is not None and found[0] is entry else None
            for found, entry in zip(kept, entries, strict=True)
        ]

    def candidates(self, findings: Findings, query: Query, *, redact: bool) -> list[bytes]:
        """All of them without their scores, each open at its end (see `answered`)."""
        asked = query.constraints.get(MAX_AGE)
        oldest = None if asked is None else findings.generated_at - asked
        return [self._candidate(item, query, oldest, redact=redact) for item in findings.candidates]

    def _candidate(self, candidate: Candidate, query: Query, oldest: float | None, *, redact: bool) -> bytes:
        key = (candidate.record.id, query.detail, redact)
        entry = self._catalogue.find(key[0])
        is_usual = candidate.evidence is None and oldest is None
        if entry is None or entry.revision != candidate.revision or not is_usual:
            return _unscored(candidate_json(candidate, query, oldest, redact=redact))
        kept = self._kept.get(key)
        if kept is None or kept[0] is not entry:
            kept = (entry, _unscored(candidate_json(candidate, query, None, redact=redact)))
            self._kept.put(key, kept)
        return kept[1]


def _unscored(shown: JsonObject) -> bytes:
    return dump_json(shown)[:-1] + b',"score":'


def answered(
    findings: Findings,
    notes: list[str],
    request_id: str,
    candidates: Sequence[bytes],
    scores: Iterable[float],
    *,
    redact: bool,
) -> bytes:
    """Table 6. Callers who are known may have everything with detail=full; others get it redacted, and are told (PRO-36)."""
    head = dump_json(_response_head(findings, notes, request_id, redact=redact and bool(candidates)))
    return b'%s,"candidates":[%s]}' % (head[:-1], _scored(candidates, scores))


def _scored(candidates: Sequence[bytes], scores: Iterable[float]) -> bytes:
    """Candidates with their scores, which are written all at once."""
    if not candidates:
        return b""
    texts = dump_json([round(score, _PLACES) for score in scores])[1:-1].split(b",")
    return b"},".join([shown + text for shown, text in zip(candidates, texts, strict=True)]) + b"}"


def _response_head(findings: Findings, notes: list[str], request_id: str, *, redact: bool) -> JsonObject:
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
    return head | _explanations(findings)


def _explanations(findings: Findings) -> JsonObject:
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


def _empty_json(empty: Emptiness) -> JsonObject:
    told: JsonObject = {"reason": empty.reason, "visible": empty.visible}
    if empty.filters:
        told["filters"] = [
            {"filter": each.filter, "value": each.value, "matching": each.matching, "remaining": each.remaining}
            for each in empty.filters
        ]
    if empty.best_score is not None:
        told["best_score"] = empty.best_score
    return told


def candidate_json(candidate: Candidate, query: Query, oldest: float | None, *, redact: bool) -> JsonObject:
    """Table 7, without the score. `oldest` is the time before which the caller takes metadata for old."""
    record = candidate.record
    shown: JsonObject
    if query.detail == "full" and not redact:
        shown = _told_apart(record_to_json(record))
    else:
        shown = {"id": record.id}
        if query.detail != "minimal":
            shown["name"] = record.name
            shown["description"] = _shorten(record.description)
            if record.tags:
                shown["tags"] = list(record.tags)
        shown["bindings"] = [_binding_json(binding, query.detail) for binding in record.bindings]
    shown["status"] = record.effective_status
    if redact:
        shown["redacted"] = True
    if query.detail != "minimal":
        shown["freshness"] = _freshness(candidate, oldest)
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
    return shown


def _told_apart(document: JsonObject) -> JsonObject:
    """What only we may say of a candidate stands apart where a publisher said it of itself (PRO-55, P11)."""
    claimed = {name: document.pop(name) for name in _OURS if name in document}
    if claimed:
        document["self_asserted"] = claimed
    return document


def _credential_refs(trust: JsonObject) -> list[str]:
    """The keys and domains by which the agent was verified."""
    passed = [check["evidence"] for check in trust["checks"] if check["state"] == "passed" and "evidence" in check]
    return list(
        dict.fromkeys(str(told[name]) for told in passed for name in ("key_id", "domain") if told.get(name) is not None)
    )


def _freshness(candidate: Candidate, oldest: float | None) -> JsonObject:
    """PRO-21: when it was indexed, and whether its source says that it is older than the caller asked for."""
    freshness: JsonObject = {"indexed_at": to_rfc3339(candidate.changed_at)}
    updated_at = candidate.record.updated_at
    if updated_at is not None:
        freshness["metadata_updated_at"] = updated_at
    if candidate.expires_at is not None:
        freshness["expires_at"] = to_rfc3339(candidate.expires_at)
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
            shown["media_types"] = list(binding.media_types)
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
