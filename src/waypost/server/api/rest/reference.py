"""Schemas, the API description, and a page that shows it."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from waypost.errors import NotFound
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.dialects import DIALECTS
from waypost.server.http import openapi
from waypost.server.http.asgi import AnyResponse, Headers, Response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.renderer import Renderer
from waypost.server.response_schemas import ANSWERS
from waypost.server.web.layout import html_response, plain_page

_SCHEMA_TYPE = b"application/schema+json"
_PUBLIC_CACHE: Headers = [(b"cache-control", b"public, max-age=3600")]
_PRIVATE_CACHE: Headers = [(b"vary", b"Authorization"), (b"cache-control", b"private, no-cache")]


class ReferenceApi:
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
                summary="JSON Schema of a dialect or of an answer",
                answers={200: BodySpec(schema={"type": "object"}, content_type=_SCHEMA_TYPE.decode())},
                open=True,
            ),
            Route(
                method="GET",
                path="/openapi.json",
                operation="describe",
                handler=self.openapi,
                summary="This API, described",
                answers={200: BodySpec(schema={"type": "object"})},
            ),
            Route(
                method="GET",
                path="/docs",
                operation="describe",
                handler=self.docs,
                summary="This API, as a page",
                answers={200: BodySpec(schema={"type": "string"}, content_type="text/html")},
            ),
        ]

    @cached_property
    def _description(self) -> JsonObject:
        return openapi.build_openapi(self._routes, self._renderer.base_url)

    async def schema(self, call: RequestContext) -> AnyResponse:
        schema = find_schema(call.id)
        schema = {**schema, "$id": f"{self._renderer.base_url}/schemas/{call.id}.json"}
        schema.setdefault("$schema", "https://json-schema.org/draft/2020-12/schema")
        return self._unchanging(call, Response(200, dump_json(schema), content_type=_SCHEMA_TYPE), _PUBLIC_CACHE)

    async def openapi(self, call: RequestContext) -> AnyResponse:
        return self._unchanging(call, Response(200, dump_json(self._description)), _PRIVATE_CACHE)

    def _unchanging(self, call: RequestContext, found: Response, headers: Headers) -> Response:
        """`found`, or the word that it is still the same."""
        etag = strong_etag(found.body, dict(found.headers)[b"content-type"])
        found.headers += [*headers, (b"etag", etag.encode()), (b"last-modified", format_http_date(self._started_at))]
        if is_not_modified(call.request, etag, self._started_at):
            return Response(304, headers=found.headers)
        return found

    def rows(self) -> str:
        """Every operation, as HTML."""
        return "".join(
            _operation_html(path, method, operation)
            for path, methods in self._description["paths"].items()
            for method, operation in methods.items()
        )

    async def docs(self, call: RequestContext) -> AnyResponse:
        shown = html_response(plain_page("API reference", f"<h1>API reference</h1>{self.rows()}"), private=True)
        return self._unchanging(call, shown, [])


def find_schema(name: str) -> dict[str, Any]:
    """The schema of a dialect, or of one of our own answers."""
    if name in DIALECTS:
        return DIALECTS[name].codec.schema()
    if name in ANSWERS:
        return ANSWERS[name]
    raise NotFound(
        f"There is no schema {name[:64]!r}.", path="name", hint=f"Known: {', '.join([*DIALECTS, *ANSWERS])}."
    )


def _operation_html(path: str, method: str, operation: JsonObject) -> str:
    parameters = "".join(
        f"<li><code>{html.escape(item['name'])}</code> ({item['in']}) {html.escape(item['description'])}</li>"
        for item in operation["parameters"]
    )
    body = operation.get("requestBody", {}).get("content", {})
    request = "".join(f"<li>body: <code>{html.escape(kind)}</code></li>" for kind in body)
    answers = ", ".join(html.escape(status) for status in operation["responses"])
    scope = operation.get("x-scope")
    needs = f"needs <code>{html.escape(scope)}</code>" if scope else "open"
    shown = json.dumps(operation["responses"], indent=1)[:4000]
    return (
        f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2>"
        f"<p>{html.escape(operation['summary'])} · {needs}</p><ul>{parameters}{request}</ul>"
        f"<details><summary>answers: {answers}</summary><pre>{html.escape(shown)}</pre></details></section>"
    )
