"""What the API description says of the ARD registry (ard.md §4–9)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from waypost import limits
from waypost.errors import (
    InvalidCursor,
    InvalidParameter,
    MethodNotAllowed,
    NotFound,
    UnsupportedMediaType,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import SCOPE_READ, Principal, audience
from waypost.protocols.ard.query import (
    FEDERATION,
    FacetRequest,
    parse_explore,
    parse_filter,
    parse_order_by,
    parse_page_size,
    parse_search,
    sort_entries,
)
from waypost.registry.registry import Registry
from waypost.server.api.ard.search import ArdMatch, ArdSearch, PagePosition
from waypost.server.http.asgi import AnyResponse, Request, Response, json_response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.problems import problem_headers
from waypost.server.http.request_params import read_object
from waypost.server.http.routing import BodySpec, ParameterSpec, Route
from waypost.server.renderer import Renderer

_FILTER: Final[dict[str, Any]] = {
    "type": "object",
    "description": "paths into an entry with the values that fit: any value of a path, every path",
    "maxProperties": limits.ARD_FILTER_KEYS,
    "additionalProperties": {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "maxItems": limits.ARD_FILTER_VALUES},
        ]
    },
}

_TEXT: Final[dict[str, Any]] = {"type": "string", "maxLength": limits.ARD_TEXT_CHARS}

_QUERY: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"text": _TEXT, "filter": _FILTER},
}

_SEARCH: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "properties": {
        "query": {
            **_QUERY,
            "required": ["text"],
            "properties": {"text": {**_TEXT, "pattern": r"\S"}, "filter": _FILTER},
        },
        "federation": {"enum": list(FEDERATION)},
        "pageSize": {"type": "integer", "minimum": 1},
        "pageToken": {"type": ["string", "null"]},
    },
}

_EXPLORE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resultType"],
    "additionalProperties": False,
    "properties": {
        "query": _QUERY,
        "resultType": {
            "type": "object",
            "required": ["facets"],
            "additionalProperties": False,
            "properties": {
                "facets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": limits.ARD_FACETS,
                    "items": {
                        "type": "object",
                        "required": ["field"],
                        "additionalProperties": False,
                        "properties": {
                            "field": {"type": "string", "maxLength": limits.ARD_PATH_CHARS},
                            "limit": {"type": "integer", "minimum": 1, "maximum": limits.ARD_BUCKETS_MAX},
                            "minCount": {"type": "integer", "minimum": 1},
                        },
                    },
                }
            },
        },
    },
}

_ENTRY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["identifier", "displayName", "type"],
    "oneOf": [{"required": ["url"]}, {"required": ["data"]}],
}

_RESULT: Final[dict[str, Any]] = {
    **_ENTRY,
    "required": [*_ENTRY["required"], "score", "source"],
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 100, "description": "relevance, never trust"},
        "source": {"type": "string", "description": "the registry that indexed it"},
    },
}

_RESULTS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["results"],
    "additionalProperties": False,
    "properties": {
        "results": {"type": "array", "items": _RESULT},
        "referrals": {
            "type": "array",
            "items": {"type": "object", "required": ["identifier", "displayName", "type", "url"]},
        },
        "pageToken": {"type": "string"},
    },
}

_BUCKETS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["buckets"],
    "additionalProperties": False,
    "properties": {
        "buckets": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["value", "count"],
                "properties": {"value": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            },
        },
        "otherCount": {"type": "integer", "minimum": 1},
    },
}

_FACETS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resultType", "facets"],
    "additionalProperties": False,
    "properties": {"resultType": {"const": "facets"}, "facets": {"type": "object", "additionalProperties": _BUCKETS}},
}

_LIST: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["items"],
    "additionalProperties": False,
    "properties": {
        "items": {"type": "array", "items": _ENTRY},
        "total": {"type": "integer", "minimum": 0},
        "pageToken": {"type": "string"},
    },
}

_ERROR: Final = BodySpec(
    schema={
        "type": "object",
        "required": ["errorCode", "message"],
        "additionalProperties": False,
        "properties": {"errorCode": {"type": "string"}, "message": {"type": "string"}},
    }
)

_ERRORS: Final = {400: _ERROR, 401: _ERROR, 403: _ERROR, 429: _ERROR}

ARD_ROUTES: Final[list[Route]] = [
    Route(
        method="POST",
        path="/ard/search",
        operation="find",
        summary="ARD: search entries by a text and a filter",
        body=BodySpec(schema=_SEARCH),
        answers={200: BodySpec(schema=_RESULTS), 413: _ERROR, 415: _ERROR, **_ERRORS},
    ),
    Route(
        method="POST",
        path="/ard/explore",
        operation="facets",
        summary="ARD: count what a question matches, by fields of the entries",
        body=BodySpec(schema=_EXPLORE),
        answers={200: BodySpec(schema=_FACETS), 413: _ERROR, 415: _ERROR, **_ERRORS},
    ),
    Route(
        method="GET",
        path="/ard/agents",
        operation="list",
        summary="ARD: list entries",
        parameters=(
            ParameterSpec(name="filter", description="field = 'value' AND field = 'value'"),
            ParameterSpec(name="orderBy", description="fields with ASC or DESC, with commas"),
            ParameterSpec(name="pageSize", schema={"type": "integer", "minimum": 1}),
            ParameterSpec(name="pageToken"),
        ),
        answers={200: BodySpec(schema=_LIST), **_ERRORS},
    ),
]


# ---- The ARD registry over HTTP: `POST /ard/search`, `POST /ard/explore`, `GET /ard/agents` (ard.md §4–9).

_JSON: Final = b"application/json"

_MEDIA_TYPES: Final = ("", "application/json")

_SEARCH_PURPOSE: Final = "ard search"  # purposes of page tokens

_LIST_PURPOSE: Final = "ard list"

_LIST_PARAMETERS: Final = ("filter", "orderBy", "pageSize", "pageToken")

_VARY: Final = (b"vary", b"Authorization, Accept")

_NOT_STORED: Final = (b"cache-control", b"no-store")

_SHARED: Final = (b"cache-control", b"public, max-age=60")

_PRIVATE: Final = (b"cache-control", b"private, no-cache")

ArdHandler = Callable[[Request, Principal], Awaitable[Response]]


class ArdApi:
    name = "ard"
    first_segments: tuple[bytes, ...] = (b"ard",)

    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._found = ArdSearch(registry, renderer)
        self._answers: dict[str, tuple[str, ArdHandler]] = {
            "/ard/search": ("POST", self._search),
            "/ard/explore": ("POST", self._explore),
            "/ard/agents": ("GET", self._list),
        }

    def claims(self, raw_path: bytes) -> bool:
        return raw_path == b"/ard" or raw_path.startswith(b"/ard/")

    def is_public(self, request: Request) -> bool:
        """What is not there, and what only says how to ask, needs no token."""
        known = self._answers.get(request.path)
        return known is None or request.method not in (known[0], "HEAD")

    def scope(self, request: Request) -> str | None:
        return SCOPE_READ

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        known = self._answers.get(request.path)
        if known is None:
            raise NotFound(
                "Nothing is served at this path.", path="path", hint=f"This registry has {', '.join(self._answers)}."
            )
        method, answer = known
        allow = (method, *(("HEAD",) if method == "GET" else ()), "OPTIONS")
        if request.method == "OPTIONS":
            return Response(204, headers=[(b"allow", ", ".join(allow).encode())])
        if request.method not in allow:
            raise MethodNotAllowed(
                f"{request.method[:16]} is not allowed here.",
                path="method",
                hint=f"Use {', '.join(allow)}.",
                details={"allow": allow},
            )
        return await answer(request, principal)

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """ARD's own form (ARD-34): where and what to do stand in the message, because the body has two members."""
        body = {"errorCode": error_codes(error).ard, "message": _error_message(error)}
        return Response(error_codes(error).http, dump_json(body), content_type=_JSON, headers=problem_headers(error))

    # --- Search ----------------------------------------------------------------------------------

    async def _search(self, request: Request, principal: Principal) -> Response:
        asked = parse_search(await _body_of(request))
        context = _context(principal, asked.text, asked.filter.values, asked.federation)
        after: PagePosition | None = (
            self._opened(_SEARCH_PURPOSE, asked.page_token, context, PagePosition) if asked.page_token else None
        )
        matched = await self._found.matched(asked.text, asked.filter, principal)
        shown, more = await self._found.page(matched, after, asked.page_size)
        told: JsonObject = {"results": await self._results(shown)}
        if asked.federation == "referrals":
            told["referrals"] = await self._referrals(principal)
        if more:
            told["pageToken"] = self._token(_SEARCH_PURPOSE, (shown[-1].score, shown[-1].identifier), context)
        return json_response(told).add(*_NOT_STORED)

    async def _results(self, matches: Sequence[ArdMatch]) -> list[JsonObject]:
        scores = {match.id: match.score for match in matches}
        return [
            {
                **self._found.writer.listed(registration),
                "score": scores[registration.id],
                "source": self._found.writer.source,
            }
            for registration in await self._registry.registrations(list(scores))
        ]

    async def _referrals(self, principal: Principal) -> list[JsonObject]:
        """Registries that somebody registered here, where they say at which address they are (ARD-27)."""
        found = await self._registry.registrations(await self._found.registries(principal))
        entries = map(self._found.writer.listed, found)
        return [{name: entry[name] for name in _REFERRAL} for entry in entries if "url" in entry]

    # --- Explore ---------------------------------------------------------------------------------

    async def _explore(self, request: Request, principal: Principal) -> Response:
        asked = parse_explore(await _body_of(request))
        ids = await self._found.explore_ids(asked.text, asked.filter, principal)
        counts = await self._found.counted(asked.facets, ids)
        told = {facet.field: _facet_json(facet, counts[facet.field]) for facet in asked.facets}
        return json_response({"resultType": "facets", "facets": told}).add(*_NOT_STORED)

    # --- The list --------------------------------------------------------------------------------

    async def _list(self, request: Request, principal: Principal) -> Response:
        _check_parameters(request)
        written, order = request.param("filter"), request.param("orderBy")
        clauses, orders = parse_filter(written), parse_order_by(order)
        size = parse_page_size(_parse_page_size(request.param("pageSize")), "pageSize")
        context = _context(principal, written or "", order or "")
        token = request.param("pageToken")
        start = self._opened(_LIST_PURPOSE, token, context, int) if token else 0
        found = sort_entries([*await self._found.listed(clauses, principal)], orders)
        page = [agent_id for agent_id, _ in found[start : start + size]]
        registrations = await self._registry.registrations(page)
        told: JsonObject = {"items": [*map(self._found.writer.listed, registrations)], "total": len(found)}
        if len(found) > start + size:
            told["pageToken"] = self._token(_LIST_PURPOSE, start + size, context)
        return self._cacheable(request, principal, told, token or "")

    def _cacheable(self, request: Request, principal: Principal, told: JsonObject, token: str) -> Response:
        """Tokens are sealed anew each time, so the tag is of what is listed and of where the page stands."""
        tag = strong_etag(dump_json({name: told[name] for name in ("items", "total")}) + token.encode(), _JSON)
        changed = self._registry.entries.last_modified(audience(principal))
        headers = [(b"etag", tag.encode()), _VARY, _SHARED if principal.is_anonymous else _PRIVATE]
        if changed is not None:
            headers.append((b"last-modified", format_http_date(changed)))
        if is_not_modified(request, tag, changed):
            return Response(304, headers=headers)
        return Response(200, dump_json(told), content_type=_JSON, headers=headers)

    # --- Page tokens -----------------------------------------------------------------------------

    def _token(self, purpose: str, place: Any, context: tuple[str, ...]) -> str:
        return self._registry.cursors.seal_page(purpose, place, *context)

    def _opened(self, purpose: str, token: str, context: tuple[str, ...], kind: Any) -> Any:
        try:
            return self._registry.cursors.open_page(purpose, token, kind, *context)
        except InvalidCursor as error:
            raise InvalidCursor(
                error.message,
                path="pageToken",
                hint="Ask again without it: a token fits the same question of the same caller.",
            ) from None


_REFERRAL: Final = ("identifier", "displayName", "type", "url")


def _context(principal: Principal, *asked: object) -> tuple[str, ...]:
    """A page token fits the same caller and the same question only."""
    digest = hashlib.sha256(repr([_stable(part) for part in asked]).encode("utf-8", "surrogatepass")).hexdigest()
    return ("admin" if principal.is_admin else principal.subject or "", digest)


def _stable(part: object) -> object:
    return sorted((path, sorted(values)) for path, values in part.items()) if isinstance(part, dict) else part


def _facet_json(facet: FacetRequest, counted: Counter[str]) -> JsonObject:
    buckets = sorted(
        (pair for pair in counted.items() if pair[1] >= facet.min_count), key=lambda pair: (-pair[1], pair[0])
    )
    shown, beyond = buckets[: facet.limit], buckets[facet.limit :]
    told: JsonObject = {"buckets": [{"value": value, "count": count} for value, count in shown]}
    if beyond:
        told["otherCount"] = sum(count for _, count in beyond)
    return told


async def _body_of(request: Request) -> JsonObject:
    given = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if given not in _MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"{given[:64]!r} is not read here.", path="Content-Type", hint="Send application/json."
        )
    return await read_object(request)


def _check_parameters(request: Request) -> None:
    for name, _ in request.query:
        if name not in _LIST_PARAMETERS:
            raise InvalidParameter(
                f"{name[:40]!r} is not a parameter of this list.",
                path=name[:40],
                hint=f"Use {', '.join(_LIST_PARAMETERS)}.",
            )


def _parse_page_size(text: str | None) -> int:
    """The page size; -1, which no page has, for what is no number."""
    if text is None:
        return limits.ARD_LIST_PAGE
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


def _error_message(error: WaypostError) -> str:
    parts = [error.message, f"At {error.path}." if error.path else "", error.hint or ""]
    return " ".join(part for part in parts if part)
