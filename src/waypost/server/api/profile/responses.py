"""What the profile's Discovery Response shows of candidates (Table 7), as bytes.

What a candidate shows apart from its score is written once and kept, bounded, for as long as the catalogue holds the very entry
that it was written for: every change of an agent makes another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from waypost import limits
from waypost.cache import GenerationalCache
from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject, dump_json
from waypost.model.query import DiscoverResult, EmptyResult, Evidence, MatchedAgent, Query, Ranking
from waypost.model.record import AgentRecord, Binding, BindingSummary, RecordSummary, record_to_json
from waypost.model.registration import CatalogEntry
from waypost.model.times import find_instant, to_rfc3339, to_rfc3339_millis
from waypost.model.verdict import TRUST_MEMBER
from waypost.registry.find.filters import MAX_AGE
from waypost.registry.find.search import AgentSearch
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry
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

_DEFAULT_QUERY: Final = Query(text="")  # as most are asked

_Key = str | tuple[str, str, bool]  # an id, and how it is shown where that is unusual


def _is_default(query: Query, *, redact: bool) -> bool:
    return query.detail == "summary" and not redact


def _key(agent_id: str, query: Query, *, redact: bool) -> _Key:
    return agent_id if _is_default(query, redact=redact) else (agent_id, query.detail, redact)


class CandidateWriter:
    """Candidates without their scores, each open at its end: `profile_answer.answered` adds them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._catalogue = registry.catalog
        self._kept: GenerationalCache[_Key, tuple[CatalogEntry, bytes]] = GenerationalCache(limits.CANDIDATE_CACHE)
        registry.observe(self._take_in)

    def _take_in(self, committed: CommittedChange) -> None:
        """Write a public agent down while it is at hand: whoever finds it need not read it. Hidden ones are left alone, so that
        they take no place of others (V2); so are renewals, which are many."""
        registration = committed.registration
        if registration is None or registration.visibility != "public" or committed.event.type == "renewed":
            return
        entry = self._catalogue.find(registration.id)
        if entry is not None and entry.protocols and entry.health == UNKNOWN:
            shown = _brief_candidate(registration.record, entry, _DEFAULT_QUERY, redact=False)
            self._kept.put(entry.id, (entry, _unscored(shown)))

    async def plain(
        self, search: AgentSearch, ranking: Ranking, query: Query, *, redact: bool
    ) -> tuple[list[bytes], list[float]]:
        """Those of a plain question, and their scores: as they were written before, and where they were not, or have changed
        since, from the store. What is gone by then is left out."""
        hits = ranking.hits[: query.limit]
        ids = [hit.id for hit in hits]
        entries = self._catalogue.find_each(ids)
        shown = self._recalled(ids, entries, query, redact=redact)
        if None in shown:
            missing = [
                entry for entry, found in zip(entries, shown, strict=True) if found is None and entry is not None
            ]
            read = await self._read(missing, search, ranking, query, redact=redact)
            shown = [read.get(hit.id) if found is None else found for hit, found in zip(hits, shown, strict=True)]
        scores = [hit.score for hit, found in zip(hits, shown, strict=True) if found is not None]
        return [found for found in shown if found is not None], scores

    def _recalled(
        self, ids: Sequence[str], entries: Sequence[CatalogEntry | None], query: Query, *, redact: bool
    ) -> list[bytes | None]:
        keys = ids if _is_default(query, redact=redact) else [_key(each, query, redact=redact) for each in ids]
        return [
            found[1] if found is not None and found[0] is entry else None
            for found, entry in zip(self._kept.get_each(keys), entries, strict=True)
        ]

    async def _read(
        self, missing: Sequence[CatalogEntry], search: AgentSearch, ranking: Ranking, query: Query, *, redact: bool
    ) -> dict[str, bytes]:
        read: dict[str, bytes] = {}
        if query.detail != "full" or redact:  # health has a time of its own, which only the registration tells
            brief = [entry for entry in missing if entry.health == UNKNOWN]
            found = await self._registry.briefs(brief)
            for entry in brief:
                if entry.id in found:
                    shown = _unscored(_brief_candidate(found[entry.id].record, entry, query, redact=redact))
                    read[entry.id] = shown
                    self._kept.put(_key(entry.id, query, redact=redact), (entry, shown))
        rest = {entry.id for entry in missing if entry.id not in read}
        if rest:
            hits = tuple(hit for hit in ranking.hits if hit.id in rest)
            findings = await self._registry.told(search, Ranking(hits=hits))
            written = self.candidates(findings, query, redact=redact)
            read |= {each.record.id: shown for each, shown in zip(findings.candidates, written, strict=True)}
        return read

    def candidates(self, findings: DiscoverResult, query: Query, *, redact: bool) -> list[bytes]:
        asked = query.constraints.get(MAX_AGE)
        oldest = None if asked is None else findings.generated_at - asked
        return [self._candidate(item, query, oldest, redact=redact) for item in findings.candidates]

    def _candidate(self, candidate: MatchedAgent, query: Query, oldest: float | None, *, redact: bool) -> bytes:
        key = _key(candidate.record.id, query, redact=redact)
        entry = self._catalogue.find(candidate.record.id)
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


def candidate_json(candidate: MatchedAgent, query: Query, oldest: float | None, *, redact: bool) -> JsonObject:
    """Table 7, without the score. `oldest` is the time before which the caller takes metadata for old."""
    record = candidate.record
    is_whole = query.detail == "full" and not redact
    shown = _separate_reserved(record_to_json(record)) if is_whole else _brief_json(record, query.detail)
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
    return shown


def _brief_candidate(
    record: AgentRecord | RecordSummary, entry: CatalogEntry, query: Query, *, redact: bool
) -> JsonObject:
    """The same of an agent that is told in short and whose endpoint is not checked."""
    shown = _brief_json(record, query.detail)
    shown["status"] = record.effective_status
    if redact:
        shown["redacted"] = True
    if query.detail != "minimal":
        shown["freshness"] = _freshness(record, entry.changed_at, entry.expires_at, None)
        shown["trust"] = {"level": entry.trust}
    return shown


def _brief_json(record: AgentRecord | RecordSummary, detail: str) -> JsonObject:
    shown: JsonObject = {"id": record.id}
    if detail != "minimal":
        shown["name"] = record.name
        shown["description"] = _shorten(record.description)
        if record.tags:
            shown["tags"] = record.tags
    is_brief = detail != "minimal" and isinstance(record, RecordSummary)  # its bindings are written as they are shown
    shown["bindings"] = record.bindings if is_brief else [_binding_json(each, detail) for each in record.bindings]
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


def _freshness(
    record: AgentRecord | RecordSummary, changed_at: float, expires_at: float | None, oldest: float | None
) -> JsonObject:
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


def _binding_json(binding: Binding | BindingSummary, detail: str) -> JsonObject:
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


# ---- The profile's Discovery Response as bytes (Table 6): candidates and their scores, and what is told of the whole answer.


def discovery_response(
    findings: DiscoverResult,
    notes: list[str],
    request_id: str,
    candidates: Sequence[bytes],
    scores: Sequence[float],
    *,
    redact: bool,
) -> bytes:
    """Table 6. Callers who are known may have everything with detail=full; others get it redacted, and are told (PRO-36)."""
    head = dump_json(_response_head(findings, notes, request_id, redact=redact and bool(candidates)))
    return b"".join((head[:-1], b',"candidates":[', _with_scores(candidates, scores), b"]}"))


def _with_scores(candidates: Sequence[bytes], scores: Sequence[float]) -> bytes:
    """Candidates with their scores, which are rounded already and written all at once."""
    if not candidates:
        return b""
    texts = dump_json(scores)[1:-1].split(b",")
    return b"},".join([shown + text for shown, text in zip(candidates, texts, strict=True)]) + b"}"


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
