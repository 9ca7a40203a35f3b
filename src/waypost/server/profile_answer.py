"""The profile's Discovery Response as bytes (Table 6): candidates and their scores, and what is told of the whole answer."""

from __future__ import annotations

from collections.abc import Sequence

from waypost.model.json import JsonObject, dump_json
from waypost.model.query import Emptiness, Findings
from waypost.model.times import to_rfc3339_millis
from waypost.server.facets import facets_json


def answered(
    findings: Findings,
    notes: list[str],
    request_id: str,
    candidates: Sequence[bytes],
    scores: Sequence[float],
    *,
    redact: bool,
) -> bytes:
    """Table 6. Callers who are known may have everything with detail=full; others get it redacted, and are told (PRO-36)."""
    head = dump_json(_response_head(findings, notes, request_id, redact=redact and bool(candidates)))
    return b"".join((head[:-1], b',"candidates":[', _scored(candidates, scores), b"]}"))


def _scored(candidates: Sequence[bytes], scores: Sequence[float]) -> bytes:
    """Candidates with their scores, which are rounded already and written all at once."""
    if not candidates:
        return b""
    texts = dump_json(scores)[1:-1].split(b",")
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
    told = _explanations(findings)
    return head | told if told else head


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
