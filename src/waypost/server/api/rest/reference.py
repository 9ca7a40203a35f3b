"""The API reference: JSON Schemas, the OpenAPI description, the table of operations, and a page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from waypost.errors import NotFound
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.dialects import DIALECTS
from waypost.protocols.profile.discovery_request import DISCOVERY_REQUEST_SCHEMA
from waypost.registry.operations import OPERATIONS
from waypost.responses.agents import Change, Page, Receipt
from waypost.responses.search import DiscoveryResponse, FacetOverview
from waypost.responses.service import OperationRow, OperationTable, Problem, Stats
from waypost.server.http.asgi import AnyResponse, Headers, Response, json_response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.openapi import answer_schema, build_openapi
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.renderer import Renderer
from waypost.server.web.api_reference import ReferenceGroup, make_reference
from waypost.server.web.layout import WebPage, html_response, render_page

_SCHEMA_TYPE = b"application/schema+json"
_PUBLIC_CACHE: Headers = [(b"cache-control", b"public, max-age=3600")]
_PRIVATE_CACHE: Headers = [(b"vary", b"Authorization"), (b"cache-control", b"private, no-cache")]
_ANY_OBJECT = BodySpec(schema={"type": "object"})

# Response types whose schemas are served under /schemas/ beside those of the dialects.
SERVED_TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    "receipt": Receipt,
    "agent-list": Page,
    "facets": FacetOverview,
    "problem": Problem,
    "discovery-response": DiscoveryResponse,
    "watch-event": Change,
    "stats": Stats,
}


class ReferenceApi:
    """`/schemas/`, `/openapi.json`, `/docs` and `/api/v1/operations`."""

    def __init__(self, renderer: Renderer, started_at: float, routes: Sequence[Route]) -> None:
        """`routes` are all routes of the service, its own included: the list is read at the first request. Nothing here
        changes while the service runs, so `started_at` is the time of the last change."""
        self._renderer = renderer
        self._started_at = started_at
        self._routes = routes

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/schemas/{id}.json",
                operation="document",
                handler=self.schema,
                summary="The JSON Schema of a dialect or of a response",
                answers={200: BodySpec(schema={"type": "object"}, content_type=_SCHEMA_TYPE.decode())},
                open=True,
            ),
            Route(
                method="GET",
                path="/openapi.json",
                operation="describe",
                handler=self.openapi,
                summary="The OpenAPI description of this API",
                answers={200: _ANY_OBJECT},
            ),
            Route(
                method="GET",
                path="/docs",
                operation="describe",
                handler=self.docs,
                summary="The API reference as a page",
                answers={200: BodySpec(schema={"type": "string"}, content_type="text/html")},
            ),
            Route(
                method="GET",
                path="/api/v1/operations",
                operation="describe",
                handler=self.operations,
                summary="The table of operations",
                answers={200: OperationTable},
            ),
        ]

    @cached_property
    def _description(self) -> JsonObject:
        return build_openapi(self._routes, self._renderer.base_url)

    async def schema(self, call: RequestContext) -> AnyResponse:
        schema = {**find_schema(call.id), "$id": f"{self._renderer.base_url}/schemas/{call.id}.json"}
        schema.setdefault("$schema", "https://json-schema.org/draft/2020-12/schema")
        return self._dated(call, Response(200, dump_json(schema), content_type=_SCHEMA_TYPE), _PUBLIC_CACHE)

    async def openapi(self, call: RequestContext) -> AnyResponse:
        return self._dated(call, Response(200, dump_json(self._description)), _PRIVATE_CACHE)

    async def docs(self, call: RequestContext) -> AnyResponse:
        page = WebPage(template="reference.html", title="API reference · Waypost", values=self.values(), scripted=True)
        return self._dated(call, html_response(render_page(page), private=True, scripted=True), [])

    async def operations(self, call: RequestContext) -> AnyResponse:
        rows = tuple(
            OperationRow(
                name=operation.name,
                summary=operation.summary,
                scope=operation.scope,
                idempotent=operation.idempotent,
                errors=tuple(sorted({error.code for error in operation.errors})),
                command=operation.command,
                method=operation.method,
            )
            for operation in OPERATIONS.values()
        )
        return json_response(OperationTable(operations=rows))

    def _dated(self, call: RequestContext, response: Response, headers: Headers) -> Response:
        """The response with an entity tag and a date, or 304 if the client has it."""
        content_type = dict(response.headers)[b"content-type"]
        etag = strong_etag(response.body, content_type)
        response.headers += [*headers, (b"etag", etag.encode()), (b"last-modified", format_http_date(self._started_at))]
        if is_not_modified(call.request, etag, self._started_at):
            return not_modified_response(call.request, response.headers, response.body, content_type)
        return response

    def values(self) -> JsonObject:
        """What the template of the reference needs."""
        return {"groups": self._groups, "base_url": self._renderer.base_url}

    @cached_property
    def _groups(self) -> list[ReferenceGroup]:
        return make_reference(self._description)


def find_schema(name: str) -> JsonObject:
    """The schema of a dialect, of a Discovery Request or of a response. NotFound if there is none."""
    if name in DIALECTS:
        return DIALECTS[name].codec.schema()
    if name in SERVED_TYPES:
        return answer_schema(SERVED_TYPES[name])
    if name == "discovery-request":
        return DISCOVERY_REQUEST_SCHEMA
    known = ", ".join([*DIALECTS, *SERVED_TYPES, "discovery-request"])
    raise NotFound(f"There is no schema {name[:64]!r}.", path="name", hint=f"Use one of {known}.")
