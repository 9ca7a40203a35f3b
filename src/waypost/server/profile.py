"""The IETF discovery profile on the wire: publish, read, withdraw, list, discover (profile.md §4–12)."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument, InvalidRequest
from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject, dump_json, kind_of
from waypost.model.names import fold_tag, slug
from waypost.model.principal import Principal, audience
from waypost.model.query import FACETS, Candidate, Emptiness, Evidence, Findings, Query, Ranking
from waypost.model.record import LISTED, Binding, record_to_json
from waypost.model.times import find_instant, to_rfc3339, to_rfc3339_millis
from waypost.model.verdict import TRUST_MEMBER
from waypost.registry.catalogue import Catalogue
from waypost.registry.constraints import MAX_AGE, SUPPORTED
from waypost.registry.engine import Registry
from waypost.registry.lru import Lru
from waypost.registry.publication import Publication
from waypost.server.asgi import AnyResponse, Response, json_response
from waypost.server.facets import facets_json
from waypost.server.own import PAGING, WRITE_HEADERS, OwnFace, answer_with, list_answer, written
from waypost.server.reading import read_if_match, read_limit, read_object, read_texts, read_visibility
from waypost.server.routes import Body, Call, Route
from waypost.server.shapes import AGENT_LIST, DISCOVERY_REQUEST, DISCOVERY_RESPONSE, RECEIPT, document_schema

_LEVEL = b"D2"
_SHORT_DESCRIPTION = 280
_DETAILS = ("minimal", "summary", "full")
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


class ProfileFace:
    def __init__(self, registry: Registry, own: OwnFace) -> None:
        self._registry = registry
        self._own = own
        self._written = ResponseWriter()

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/profile/v1",
                operation="describe",
                handler=self.describe,
                summary="What of the profile is supported",
                answers={200: Body(schema={"type": "object"})},
            ),
            Route(
                method="POST",
                path="/profile/v1/discover",
                operation="find",
                handler=self.discover,
                summary="Find agents for a task",
                body=Body(schema=DISCOVERY_REQUEST),
                answers={200: Body(schema=DISCOVERY_RESPONSE)},
            ),
            Route(
                method="GET",
                path="/profile/v1/agents",
                operation="list",
                handler=self.list_agents,
                summary="List agents",
                parameters=PAGING,
                answers={200: Body(schema=AGENT_LIST)},
            ),
            Route(
                method="PUT",
                path="/profile/v1/agents/{id}",
                operation="register",
                handler=self.publish,
                summary="Publish Agent Metadata",
                parameters=WRITE_HEADERS,
                body=Body(schema=document_schema("profile"), description="Agent Metadata"),
                answers={201: Body(schema=RECEIPT), 200: Body(schema=RECEIPT), 202: Body(schema=RECEIPT)},
            ),
            Route(
                method="GET",
                path="/profile/v1/agents/{id}",
                operation="get",
                handler=self.get,
                summary="Read Agent Metadata",
                answers={200: Body(schema=document_schema("profile"))},
            ),
            Route(
                method="DELETE",
                path="/profile/v1/agents/{id}",
                operation="withdraw",
                handler=self.withdraw,
                summary="Withdraw an agent",
                parameters=(WRITE_HEADERS[1],),
                answers={204: Body(description="withdrawn")},
            ),
        ]

    async def describe(self, call: Call) -> AnyResponse:
        """PRO-4 and the checklist of §18, for programs."""
        return json_response(
            {
                "conformance": ["D0", "D1", "D2"],
                "highest": "D2",
                "serialization": "application/json",
                "unknown_fields": "kept and returned",
                "supported_constraints": list(SUPPORTED),
                "supported_facets": list(FACETS),
                "hard_filter_failure": "listed in unsupported_filters",
                "score_components": ["tag", "context", "example", "protocol", "freshness", "policy", "preference"],
                "links": {
                    "discover": "/profile/v1/discover",
                    "agents": "/profile/v1/agents",
                    "schema": "/schemas/profile.json",
                },
            }
        )

    async def publish(self, call: Call) -> AnyResponse:
        request = call.request
        document = await request.body(limits.DOCUMENT_BYTES)
        name, decoded = self._registry.decode(document, dialect="profile")
        if call.id not in (decoded.record.id, slug(decoded.record.id)):
            raise InvalidDocument(
                f"The document is of {decoded.record.id[:64]!r}, the path names another agent.",
                path="$.id",
                hint="Use the document's id, percent-encoded, in the path.",
            )
        receipt = await self._registry.publish(
            Publication(
                dialect=name,
                document=document,
                decoded=decoded,
                principal=call.principal,
                via="profile",
                visibility=read_visibility(request),
                if_match=read_if_match(request),
                if_none_match_any=request.header(b"if-none-match") == "*",
                idempotency_key=request.header(b"idempotency-key"),
            )
        )
        return written(receipt, f"/profile/v1/agents/{slug(receipt.id)}")

    async def get(self, call: Call) -> AnyResponse:
        return answer_with(call, await self._own.rendering(call, "profile"))

    async def withdraw(self, call: Call) -> AnyResponse:
        return await self._own.withdraw(call)

    async def list_agents(self, call: Call) -> AnyResponse:
        page = self._registry.page(call.principal, limit=read_limit(call.request), cursor=call.request.param("cursor"))
        body = await self._own.list_body([entry.id for entry in page.entries], "profile", page.next_cursor)
        return list_answer(call, body, self._registry.catalogue.last_modified(audience(call.principal)))

    async def discover(self, call: Call) -> AnyResponse:
        body = await self.found(await read_object(call.request), call.principal, call.request_id)
        headers = [(b"cache-control", b"no-store"), (b"discovery-level", _LEVEL)]
        return Response(200, body, headers=headers)

    async def found(self, request: JsonObject, principal: Principal, request_id: str) -> bytes:
        """The Discovery Response to a Discovery Request."""
        query, notes = parse_query(request)
        search, ranking = await self._registry.ranked(query, principal)
        redact = query.detail == "full" and principal.is_anonymous
        kept = self._written.kept(ranking, query, self._registry.catalogue, redact=redact) if search.is_plain else None
        if kept:
            return answered(search.outline(ranking), notes, request_id, kept, redact=redact)
        findings = await self._registry.told(search, ranking)
        return answered(
            findings, notes, request_id, self._written.candidates(findings, query, redact=redact), redact=redact
        )


# --- Request --------------------------------------------------------------------------------------


def parse_query(document: JsonObject) -> tuple[Query, list[str]]:
    """A Discovery Request (Table 5), and notes on what was adjusted. Unknown members are ignored (PRO-9)."""
    notes: list[str] = []
    text = document.get("query")
    if not isinstance(text, str):
        found = "is missing" if text is None else f"must be a string, not {kind_of(text)}"
        raise InvalidRequest(f"query {found}.", path="$.query", hint="Say in words what the agent should do.")
    if len(text) > limits.QUERY_CHARS:
        raise InvalidRequest(
            f"The query has {len(text)} characters; at most {limits.QUERY_CHARS} are read.",
            path="$.query",
            hint="Shorten it.",
        )
    detail: Any = document.get("detail")
    detail = "summary" if detail is None else detail
    if detail not in _DETAILS:
        raise InvalidRequest(f"detail must be one of {', '.join(_DETAILS)}.", path="$.detail")
    query = Query(
        text=text,
        required_tags=_tags(document, "required_tags"),
        preferred_tags=_tags(document, "preferred_tags"),
        excluded_tags=_tags(document, "excluded_tags"),
        protocols=tuple(dict.fromkeys(item.strip().lower() for item in read_texts(document, "protocols"))),
        statuses=_statuses(document),
        constraints=_object(document, "constraints"),
        limit=_limit(document, notes),
        detail=detail,
        include_evidence=_flag(document, "include_evidence", default=False),
        diversity=_flag(document, "diversity", default=True),
        client_context=_object(document, "client_context"),
        facets=_facets(document),
        min_score=_floor(document),
    )
    return query, notes


def _tags(document: JsonObject, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fold_tag(item) for item in read_texts(document, name)))


def _statuses(document: JsonObject) -> tuple[str, ...]:
    found = read_texts(document, "statuses")
    for index, status in enumerate(found):
        if status not in LISTED:
            raise InvalidRequest(
                f"{status[:64]!r} is not a status of agents that are found.",
                path=f"$.statuses[{index}]",
                hint=f"Use {', '.join(LISTED)}.",
            )
    return tuple(dict.fromkeys(found))


def _flag(document: JsonObject, name: str, *, default: bool) -> bool:
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be a boolean, not {kind_of(value)}.", path=f"$.{name}")
    return value


def _object(document: JsonObject, name: str) -> JsonObject:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object, not {kind_of(value)}.", path=f"$.{name}")
    return value


def _limit(document: JsonObject, notes: list[str]) -> int:
    value = document.get("limit")
    if value is None:
        return limits.DISCOVER_LIMIT_DEFAULT
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest("limit must be a whole number above 0.", path="$.limit")
    if value > limits.DISCOVER_LIMIT_MAX:
        notes.append(f"limit {value} was reduced to {limits.DISCOVER_LIMIT_MAX}")
        return limits.DISCOVER_LIMIT_MAX
    return int(value)


def _facets(document: JsonObject) -> tuple[str, ...]:
    names = read_texts(document, "facets")
    for index, name in enumerate(names):
        if name not in FACETS:
            raise InvalidRequest(
                f"{name[:64]!r} is not a facet.", path=f"$.facets[{index}]", hint=f"Use {', '.join(FACETS)}."
            )
    return tuple(dict.fromkeys(names))


def _floor(document: JsonObject) -> float:
    value = document.get("min_score")
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidRequest("min_score must be a number from 0 to 1.", path="$.min_score")
    return float(value)


# --- Response -------------------------------------------------------------------------------------


class ResponseWriter:
    """Discovery Responses as bytes. What a candidate shows apart from its score is written once and kept, bounded."""

    def __init__(self) -> None:
        self._kept: Lru[tuple[str, str, bool], tuple[tuple[Any, ...], bytes]] = Lru(limits.CANDIDATE_CACHE)

    def candidates(self, findings: Findings, query: Query, *, redact: bool) -> list[bytes]:
        asked = query.constraints.get(MAX_AGE)
        oldest = None if asked is None else findings.generated_at - asked
        return [self._candidate(item, query, oldest, redact=redact) for item in findings.candidates]

    def kept(self, ranking: Ranking, query: Query, catalogue: Catalogue, *, redact: bool) -> list[bytes]:
        """The candidates of a plain question, where all that it found were written before and have not changed since: then no
        record is read. Else nothing. Health has a time of its own, which only the record tells."""
        parts = []
        for hit in ranking.hits[: query.limit]:
            kept, entry = self._kept.get((hit.id, query.detail, redact)), catalogue.find(hit.id)
            if kept is None or entry is None or kept[0] != (entry.etag, entry.changed_at, entry.expires_at, None):
                return []
            if entry.health != UNKNOWN:
                return []
            parts.append(_scored(kept[1], hit.score))
        return parts

    def _candidate(self, candidate: Candidate, query: Query, oldest: float | None, *, redact: bool) -> bytes:
        if candidate.evidence is not None or oldest is not None:
            shown = candidate_json(candidate, query, oldest, redact=redact)
            return dump_json({**shown, "score": round(candidate.score, 4)})
        key = (candidate.record.id, query.detail, redact)
        kept = self._kept.get(key)
        mark = (candidate.etag, candidate.changed_at, candidate.expires_at, candidate.health)
        if kept is None or kept[0] != mark:
            kept = (mark, dump_json(candidate_json(candidate, query, None, redact=redact))[:-1])
            self._kept.put(key, kept)
        return _scored(kept[1], candidate.score)


def _scored(shown: bytes, score: float) -> bytes:
    return b'%s,"score":%s}' % (shown, repr(round(score, 4)).encode())


def answered(findings: Findings, notes: list[str], request_id: str, candidates: list[bytes], *, redact: bool) -> bytes:
    """Table 6. Callers who are known may have everything with detail=full; others get it redacted, and are told (PRO-36)."""
    head = dump_json(_response_head(findings, notes, request_id, redact=redact and bool(candidates)))
    return b'%s,"candidates":[%s]}' % (head[:-1], b",".join(candidates))


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
    shown: JsonObject = {"score_components": {name: round(value, 4) for name, value in evidence.components.items()}}
    shown["matched_tags"] = list(evidence.matched_tags)
    if evidence.expanded_tags:
        shown["expanded_tags"] = list(evidence.expanded_tags)
    shown["matched_examples"] = [
        {
            name: value
            for name, value in (("id", item.id), ("score", round(item.score, 4)), ("text", item.text))
            if value is not None
        }
        for item in evidence.matched_examples
    ]
    if evidence.snippets:
        shown["snippets"] = list(evidence.snippets)
    if evidence.flags:
        shown["flags"] = list(evidence.flags)
    return shown
