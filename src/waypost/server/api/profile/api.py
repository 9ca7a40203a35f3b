"""The IETF discovery profile over HTTP: publish, read, withdraw, list, discover (profile.md §4–12)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, NotFound
from waypost.federation.ask import Asker
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.names import is_same_id, slug
from waypost.model.principal import Principal, audience
from waypost.model.query import FACETS, SCORE_COMPONENTS, DiscoverResult, Evidence, MatchedAgent, Query
from waypost.model.record import AgentRecord, Binding, record_to_json
from waypost.model.times import find_instant, rfc3339_or_none, to_rfc3339, to_rfc3339_millis
from waypost.model.verdict import TRUST_MEMBER, TrustSummary
from waypost.protocols.profile.discovery_request import DISCOVERY_REQUEST_SCHEMA, parse_discovery_request
from waypost.registry.find.filters import MAX_AGE, SUPPORTED
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.responses.agents import Page, Receipt
from waypost.responses.base import embedded
from waypost.responses.federation import federation_view
from waypost.responses.search import (
    CandidateHealth,
    DiscoveryResponse,
    ExampleEvidence,
    ExplainedCandidate,
    Freshness,
    RankedCandidate,
)
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.openapi import document_schema, served_schema
from waypost.server.http.request_params import (
    IF_MATCH,
    PAGE_PARAMETERS,
    TTL_PARAMETER,
    WRITE_HEADERS,
    AnswerBudget,
    read_federation_path,
    read_if_match,
    read_page,
    read_ttl,
    read_visibility,
    read_wait_preference,
)
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.renderer import DocumentReader, document_response, list_response, write_response

# The Discovery Response (Table 6) and its candidates (Table 7).

_PLACES: Final = 4

_SHORT_DESCRIPTION: Final = 280

# Members of a candidate that detail=full shows as the publisher's document has them. The codec has checked their types; a
# member of `AgentRecord.extra` has any type and does not belong here.
_PUBLISHED_MEMBERS: Final = ("id", "name", "description", "tags", "bindings", "status")

# The others: only the service may set them.
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
    shown = [_shown(each, query, oldest, redact=redact) for each in findings.candidates]
    candidates = _fit(shown)
    if len(candidates) < len(shown):
        warnings.append(
            f"{len(candidates)} of {len(shown)} candidates fit into one answer: send a smaller limit or less detail"
        )
    response = DiscoveryResponse(
        request_id=request_id,
        generated_at=to_rfc3339_millis(findings.generated_at),
        applied_filters=findings.applied_filters,
        unsupported_filters=findings.unsupported_filters,
        warnings=tuple(warnings),
        facets=findings.facets or {},
        rejected_constraints=findings.rejected,
        suggestions={
            kind: near for kind, near in (("tags", findings.suggestions), ("words", findings.spelling)) if near
        },
        empty=findings.empty,
        candidates=tuple(candidates),
    )
    return dump_json(response)


def _fit(candidates: Sequence[RankedCandidate]) -> list[RankedCandidate]:
    """The first candidates, as many as one answer may have, encoded."""
    budget = AnswerBudget()
    encoded = (dump_json(candidate) for candidate in candidates)
    return [embedded(each) for each in takewhile(lambda each: budget.take(len(each)), encoded)]


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
        "match": agent.match,
        "reason": agent.reason,
        "provisional": agent.is_provisional,
    }
    if agent.federation is not None:
        members["federation"] = federation_view(agent.federation)
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


_CONFORMANCE = ("D0", "D1", "D2")


class ProfileApi:
    def __init__(self, registry: Registry, documents: DocumentReader, asker: Asker) -> None:
        """`asker` asks other registries."""
        self._registry = registry
        self._documents = documents
        self._asker = asker

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/profile/v1",
                operation="describe",
                handler=self.describe,
                summary="Conformance and supported features",
                answers={200: BodySpec(schema={"type": "object"})},
            ),
            Route(
                method="POST",
                path="/profile/v1/discover",
                operation="find",
                handler=self.discover,
                summary="Find agents for a task",
                body=BodySpec(schema=DISCOVERY_REQUEST_SCHEMA),
                answers={200: DiscoveryResponse},
            ),
            Route(
                method="GET",
                path="/profile/v1/agents",
                operation="list",
                handler=self.list_agents,
                summary="List agents",
                parameters=PAGE_PARAMETERS,
                answers={200: Page},
            ),
            Route(
                method="PUT",
                path="/profile/v1/agents/{id}",
                operation="register",
                handler=self.publish,
                summary="Publish Agent Metadata",
                parameters=(TTL_PARAMETER, *WRITE_HEADERS),
                body=BodySpec(schema=document_schema("profile"), description="Agent Metadata"),
                answers={201: Receipt, 200: Receipt, 202: Receipt},
            ),
            Route(
                method="GET",
                path="/profile/v1/agents/{id}",
                operation="get",
                handler=self.get,
                summary="Read Agent Metadata",
                answers={200: BodySpec(schema=served_schema("profile"))},
            ),
            Route(
                method="DELETE",
                path="/profile/v1/agents/{id}",
                operation="withdraw",
                handler=self.withdraw,
                summary="Withdraw an agent",
                parameters=(IF_MATCH,),
                answers={204: BodySpec(description="withdrawn")},
            ),
        ]

    async def describe(self, call: RequestContext) -> AnyResponse:
        """PRO-4 and the checklist of §18, machine-readable."""
        return json_response(
            {
                "conformance": _CONFORMANCE,
                "highest": _CONFORMANCE[-1],
                "serialization": "application/json",
                "unknown_fields": "kept and returned",
                "supported_constraints": list(SUPPORTED),
                "supported_facets": list(FACETS),
                "hard_filter_failure": "listed in unsupported_filters",
                "score_components": list(SCORE_COMPONENTS),
                "links": {
                    "discover": "/profile/v1/discover",
                    "agents": "/profile/v1/agents",
                    "schema": "/schemas/profile.json",
                },
            }
        )

    async def publish(self, call: RequestContext) -> AnyResponse:
        request = call.request
        document = await request.body(limits.DOCUMENT_BYTES)
        dialect, decoded = self._registry.decode(document, dialect="profile")
        if not self._is_same_agent(call.principal, call.id, decoded.record.id):
            raise InvalidDocument(
                f"The document has the id {decoded.record.id[:64]!r}, but the path names another agent.",
                path="$.id",
                hint="Use the document's id, percent-encoded, in the path.",
            )
        receipt = await self._registry.publish(
            Publication(
                dialect=dialect,
                document=document,
                decoded=decoded,
                principal=call.principal,
                via="profile",
                visibility=read_visibility(request),
                ttl_seconds=read_ttl(request),
                if_match=read_if_match(request),
                if_none_match_any=request.header(b"if-none-match") == "*",
                idempotency_key=request.header(b"idempotency-key"),
            )
        )
        return write_response(receipt, f"/profile/v1/agents/{slug(receipt.id)}")

    def _is_same_agent(self, principal: Principal, path_id: str, document_id: str) -> bool:
        """Whether the path names the agent of the document: by its id, its slug or an alias."""
        if path_id == slug(document_id) or is_same_id(path_id, document_id):
            return True
        try:
            return self._registry.resolve(principal, path_id).id == self._registry.resolve(principal, document_id).id
        except NotFound:
            return False

    async def get(self, call: RequestContext) -> AnyResponse:
        return document_response(call.request, await self._documents.get(call.principal, call.id, "profile"))

    async def withdraw(self, call: RequestContext) -> AnyResponse:
        agent_id = self._registry.resolve_path_id(call.principal, call.id)
        await self._registry.withdraw(call.principal, agent_id, read_if_match(call.request))
        return Response(204)

    async def list_agents(self, call: RequestContext) -> AnyResponse:
        requested = read_page(call.request)
        entries = self._registry.page(call.principal, limit=requested.limit, cursor=requested.cursor)
        page, _ = await self._documents.page(entries, "profile")
        return list_response(
            call.request, dump_json(page), self._registry.entries.last_modified(audience(call.principal))
        )

    async def discover(self, call: RequestContext) -> AnyResponse:
        document = parse_object(await call.request.body(limits.REQUEST_BYTES), max_bytes=limits.REQUEST_BYTES)
        path, seconds = read_federation_path(call.request), read_wait_preference(call.request)
        body = await self.find(document, call.principal, call.request_id, path=path, seconds=seconds)
        headers = [(b"cache-control", b"no-store"), (b"discovery-level", _CONFORMANCE[-1].encode())]
        return Response(200, body, headers=headers)

    async def find(
        self,
        request: JsonObject,
        principal: Principal,
        request_id: str,
        *,
        path: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> bytes:
        """The Discovery Response to a Discovery Request. `path` and `seconds` are for asking peers."""
        query, notes = parse_discovery_request(request)
        answers = await self._asker.ask_query(query, principal, path=path, seconds=seconds)
        findings = await self._registry.find(query, principal, answers.registrations)
        notes = [*notes, *answers.warnings]
        redact = query.detail == "full" and principal.is_anonymous
        return discovery_response(findings, query, notes, request_id, redact=redact)
