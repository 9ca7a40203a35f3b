"""The IETF discovery profile over HTTP: publish, read, withdraw, list, discover (profile.md §4–12)."""

from __future__ import annotations

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.names import slug
from waypost.model.principal import Principal, audience
from waypost.model.query import FACETS
from waypost.protocols.profile.discovery_request import DISCOVERY_REQUEST_SCHEMA, parse_discovery_request
from waypost.registry.find.filters import SUPPORTED
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.responses.agents import Page, Receipt
from waypost.responses.search import DiscoveryResponse
from waypost.server.api.profile.responses import discovery_response
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.document_responses import document_response, list_response, write_response
from waypost.server.http.openapi import document_schema
from waypost.server.http.paging import PAGE_PARAMETERS, read_page
from waypost.server.http.request_params import (
    IF_MATCH,
    WRITE_HEADERS,
    read_if_match,
    read_visibility,
)
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.renderer import DocumentReader

_CONFORMANCE = ("D0", "D1", "D2")


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
        dialect, decoded = self._registry.decode(document, dialect="profile")
        if call.id not in (decoded.record.id, slug(decoded.record.id)):
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
        requested = read_page(call.request)
        page = self._registry.page(call.principal, limit=requested.limit, cursor=requested.cursor)
        body = dump_json(await self._documents.page(page, "profile"))
        return list_response(call.request, body, self._registry.entries.last_modified(audience(call.principal)))

    async def discover(self, call: RequestContext) -> AnyResponse:
        document = parse_object(await call.request.body(limits.REQUEST_BYTES), max_bytes=limits.REQUEST_BYTES)
        body = await self.find(document, call.principal, call.request_id)
        headers = [(b"cache-control", b"no-store"), (b"discovery-level", _CONFORMANCE[-1].encode())]
        return Response(200, body, headers=headers)

    async def find(self, request: JsonObject, principal: Principal, request_id: str) -> bytes:
        """The Discovery Response to a Discovery Request."""
        query, notes = parse_discovery_request(request)
        findings = await self._registry.find(query, principal)
        redact = query.detail == "full" and principal.is_anonymous
        return discovery_response(findings, query, notes, request_id, redact=redact)
