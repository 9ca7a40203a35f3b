"""The IETF discovery profile on the wire: publish, read, withdraw, list, discover (profile.md §4–12)."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument, InvalidRequest
from waypost.model.json import JsonObject, dump_json, kind_of, parse_object
from waypost.model.names import fold_tag, slug
from waypost.model.principal import Principal, audience
from waypost.model.query import FACETS, Query
from waypost.model.record import LISTED
from waypost.protocols.profile.discovery_request import DISCOVERY_REQUEST_SCHEMA
from waypost.registry.find.filters import SUPPORTED
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.responses.agents import Page, Receipt
from waypost.responses.search import DiscoveryResponse
from waypost.server.api.profile.responses import discovery_response
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.document_responses import document_response, list_response, write_response
from waypost.server.http.openapi import document_schema
from waypost.server.http.request_params import (
    IF_MATCH,
    PAGE_PARAMETERS,
    WRITE_HEADERS,
    read_if_match,
    read_limit,
    read_texts,
    read_visibility,
)
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.renderer import DocumentReader

_LEVEL = b"D2"
_DETAILS = ("minimal", "summary", "full")


class ProfileApi:
    def __init__(self, registry: Registry, documents: DocumentReader) -> None:
        self._registry = registry
        self._documents = documents

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/profile/v1",
                operation="describe",
                handler=self.describe,
                summary="What of the profile is supported",
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
                parameters=WRITE_HEADERS,
                body=BodySpec(schema=document_schema("profile"), description="Agent Metadata"),
                answers={201: Receipt, 200: Receipt, 202: Receipt},
            ),
            Route(
                method="GET",
                path="/profile/v1/agents/{id}",
                operation="get",
                handler=self.get,
                summary="Read Agent Metadata",
                answers={200: BodySpec(schema=document_schema("profile"))},
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

    async def publish(self, call: RequestContext) -> AnyResponse:
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
        return write_response(receipt, f"/profile/v1/agents/{slug(receipt.id)}")

    async def get(self, call: RequestContext) -> AnyResponse:
        return document_response(call.request, await self._documents.get(call.principal, call.id, "profile"))

    async def withdraw(self, call: RequestContext) -> AnyResponse:
        agent_id = self._registry.resolve_path_id(call.principal, call.id)
        await self._registry.withdraw(call.principal, agent_id, read_if_match(call.request))
        return Response(204)

    async def list_agents(self, call: RequestContext) -> AnyResponse:
        page = self._registry.page(call.principal, limit=read_limit(call.request), cursor=call.request.param("cursor"))
        body = dump_json(await self._documents.page(page, "profile"))
        return list_response(call.request, body, self._registry.entries.last_modified(audience(call.principal)))

    async def discover(self, call: RequestContext) -> AnyResponse:
        document = parse_object(await call.request.body(limits.REQUEST_BYTES), max_bytes=limits.REQUEST_BYTES)
        body = await self.find(document, call.principal, call.request_id)
        headers = [(b"cache-control", b"no-store"), (b"discovery-level", _LEVEL)]
        return Response(200, body, headers=headers)

    async def find(self, request: JsonObject, principal: Principal, request_id: str) -> bytes:
        """The Discovery Response to a Discovery Request."""
        query, notes = parse_discovery_request(request)
        findings = await self._registry.find(query, principal)
        redact = query.detail == "full" and principal.is_anonymous
        return discovery_response(findings, query, notes, request_id, redact=redact)


# --- Request --------------------------------------------------------------------------------------


def parse_discovery_request(document: JsonObject) -> tuple[Query, list[str]]:
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
