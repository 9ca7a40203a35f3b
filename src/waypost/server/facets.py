"""Facets on the wire: a list in numbers, and what tag may have been meant."""

from __future__ import annotations

from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject, dump_json
from waypost.model.query import FACETS, Facets, Suggestions
from waypost.registry.find.empty_results import suggestion_warnings
from waypost.registry.registry import Registry
from waypost.server.http.asgi import AnyResponse, Request, json_response
from waypost.server.http.request_params import LIST_FILTER_PARAMETERS, read_filters
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.response_schemas import OVERVIEW


def facets_route(registry: Registry) -> Route:
    async def handle(call: RequestContext) -> AnyResponse:
        filters = read_filters(call.request)
        overview = registry.facets(
            call.principal,
            read_facets(call.request),
            tags=filters.tags,
            protocols=filters.protocols,
            statuses=filters.statuses,
            owner=filters.owner,
        )
        told = {"total": overview.total, "facets": facets_json(overview.facets)}
        answer = json_response(told | suggestions_json(overview.suggestions))
        return answer.add(b"cache-control", b"no-store")

    return Route(
        method="GET",
        path="/api/v1/facets",
        operation="facets",
        handler=handle,
        summary="Count agents by tag, protocol, status and owner",
        parameters=(
            *LIST_FILTER_PARAMETERS,
            ParameterSpec(name="facet", schema={"type": "array", "items": {"enum": list(FACETS)}}),
        ),
        answers={200: BodySpec(schema=OVERVIEW)},
    )


def facets_json(facets: Facets) -> JsonObject:
    return {name: [{"value": found.value, "count": found.count} for found in values] for name, values in facets.items()}


def read_facets(request: Request) -> tuple[str, ...]:
    """The facets that are asked for, all when none is named."""
    names = tuple(dict.fromkeys(value for name, value in request.query if name == "facet"))
    for name in names:
        if name not in FACETS:
            raise InvalidParameter(f"{name[:40]!r} is not a facet.", path="facet", hint=f"Use {', '.join(FACETS)}.")
    return names or FACETS


def suggestions_json(suggestions: Suggestions) -> JsonObject:
    """Members of an answer, where there is something to suggest."""
    if not suggestions:
        return {}
    return {"suggestions": {"tags": suggestions}, "warnings": list(suggestion_warnings(suggestions))}


def suggestions_tail(suggestions: Suggestions) -> bytes:
    """The same, to be put behind other members."""
    members = suggestions_json(suggestions)
    return b"," + dump_json(members)[1:-1] if members else b""
