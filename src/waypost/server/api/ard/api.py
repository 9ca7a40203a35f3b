"""The ARD registry over HTTP: `POST /ard/search`, `POST /ard/explore`, `GET /ard/agents` (ard.md §4–9).

Catalogs name the base `/ard/`, and people open what a catalog names: there the registry describes itself.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from waypost import limits
from waypost.errors import InvalidCursor, InvalidParameter, MethodNotAllowed, NotFound, WaypostError, error_codes
from waypost.federation.ask import PeerAnswers
from waypost.federation.kinds.port import Question
from waypost.federation.peers import Peer
from waypost.federation.service import PeerService
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import SCOPE_READ, Principal, audience
from waypost.model.registration import Registration
from waypost.protocols.ard.codec import REGISTRY_TYPE, publisher_of, registry_entry
from waypost.protocols.ard.query import (
    FEDERATION,
    FacetRequest,
    SearchRequest,
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
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.problems import problem_headers
from waypost.server.http.request_params import (
    AnswerBudget,
    check_media_type,
    read_federation_path,
    read_object,
    read_wait_preference,
)
from waypost.server.http.routing import BodySpec, ParameterSpec, Route
from waypost.server.renderer import Renderer

_JSON: Final = b"application/json"
_REGISTRY_TYPE: Final = REGISTRY_TYPE.encode()
_SEARCH_PURPOSE: Final = "ard search"  # purposes of page tokens
_LIST_PURPOSE: Final = "ard list"
_LIST_PARAMETERS: Final = ("filter", "orderBy", "pageSize", "pageToken")
_REFERRAL_MEMBERS: Final = ("identifier", "displayName", "type", "url")
_SCORE_BYTES: Final = 32  # the members `score` and `source` without the latter's value
_VARY: Final = (b"vary", b"Authorization, Accept")
_WARNINGS_HEADER: Final = b"ard-federation-warnings"
_NO_STORE: Final = (b"cache-control", b"no-store")
_SHARED: Final = (b"cache-control", b"public, max-age=60")
_PRIVATE: Final = (b"cache-control", b"private, no-cache")

ArdHandler = Callable[[Request, Principal], Awaitable[Response]]


def _describe_registry(base_url: str, host: str) -> bytes:
    entry = registry_entry(base_url, host)
    names = ("search", "explore", "agents")
    return dump_json({**entry, "metadata": {name: f"{entry['url']}{name}" for name in names}})


class ArdApi:
    name = "ard"
    first_segments: tuple[bytes, ...] = (b"ard",)

    def __init__(self, registry: Registry, renderer: Renderer, peers: PeerService) -> None:
        self._registry = registry
        self._peers = peers
        self._ard = ArdSearch(registry, renderer)
        self._source = f"{renderer.base_url}/ard"
        self._description = _describe_registry(renderer.base_url, renderer.host)
        self._handlers: dict[str, tuple[str, ArdHandler]] = {
            "/ard/": ("GET", self._describe),
            "/ard/search": ("POST", self._search),
            "/ard/explore": ("POST", self._explore),
            "/ard/agents": ("GET", self._list),
        }

    def claims(self, raw_path: bytes) -> bool:
        return raw_path == b"/ard" or raw_path.startswith(b"/ard/")

    def is_public(self, request: Request) -> bool:
        """True for the base, unknown paths, and methods that reveal no agent, such as OPTIONS."""
        known = self._handlers.get(request.path)
        return known is None or request.path == "/ard/" or request.method not in (known[0], "HEAD")

    def required_scope(self, request: Request) -> str | None:
        return SCOPE_READ

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        known = self._handlers.get(request.path)
        if known is None:
            raise NotFound(
                "Nothing is served at this path.", path="path", hint=f"This registry has {', '.join(self._handlers)}."
            )
        method, handler = known
        allowed = (method, *(("HEAD",) if method == "GET" else ()), "OPTIONS")
        if request.method == "OPTIONS":
            return Response(204, headers=[(b"allow", ", ".join(allowed).encode())])
        if request.method not in allowed:
            raise MethodNotAllowed(
                f"{request.method[:16]} is not allowed here.",
                path="method",
                hint=f"Use {', '.join(allowed)}.",
                details={"allow": allowed},
            )
        return await handler(request, principal)

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """ARD-34: the body has two members only, so path and hint are part of the message."""
        parts = (error.message, f"At {error.path}." if error.path else "", error.hint or "")
        body = {"errorCode": error_codes(error).ard, "message": " ".join(part for part in parts if part)}
        return Response(error_codes(error).http, dump_json(body), content_type=_JSON, headers=problem_headers(error))

    async def _describe(self, request: Request, principal: Principal) -> Response:
        etag = strong_etag(self._description, _REGISTRY_TYPE)
        headers = [(b"etag", etag.encode()), _SHARED]
        if is_not_modified(request, etag, None):
            return not_modified_response(request, headers, self._description)
        return Response(200, self._description, content_type=_REGISTRY_TYPE, headers=headers)

    async def _search(self, request: Request, principal: Principal) -> Response:
        body = await _read_body(request)
        path, seconds = read_federation_path(request), read_wait_preference(request)
        results, warnings = await self._find(parse_search(body), principal, path, seconds)
        response = json_response(results).add(*_NO_STORE)
        return response.add(_WARNINGS_HEADER, str(warnings).encode()) if warnings else response

    async def search(self, body: JsonObject, principal: Principal) -> JsonObject:
        """The results of a search; `body` is that of `/ard/search`."""
        return (await self._find(parse_search(body), principal))[0]

    async def _find(
        self,
        query: SearchRequest,
        principal: Principal,
        path: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> tuple[JsonObject, int]:
        """The results, and the number of warnings of asked registries (P-22)."""
        context = _token_context(principal, query.text, query.filter.values, query.federation)
        after: PagePosition | None = (
            self._open_token(_SEARCH_PURPOSE, query.page_token, context, PagePosition) if query.page_token else None
        )
        answers = PeerAnswers()
        if query.federation == "auto":
            answers = await self._ask(query, principal, path, seconds)
        foreign = self._ard.filter_foreign(answers.registrations, query.filter)
        matches, has_more = await self._ard.search(query.text, query.filter, principal, after, query.page_size, foreign)
        entries, covered = await self._entries([match.id for match in matches], foreign)
        if covered < len(matches):
            matches, has_more = matches[:covered], True
        response: JsonObject = {"results": self._results(matches, entries, foreign)}
        if query.federation == "referrals":
            response["referrals"] = await self._referrals(principal)
        if has_more:
            position = matches[-1].score, matches[-1].identifier
            response["pageToken"] = self._registry.cursors.seal_page(_SEARCH_PURPOSE, position, *context)
        return response, len(answers.warnings)

    async def _ask(
        self, query: SearchRequest, principal: Principal, path: tuple[str, ...], seconds: float | None
    ) -> PeerAnswers:
        """Ask the peers that the operator allowed. Each page needs the same results: they influence the weights of words."""
        values = {name: sorted(accepted) for name, accepted in query.filter.values.items()}
        question = Question(text=query.text, limit=limits.ASK_CANDIDATES, filter=values)
        return await self._peers.asker.ask(question, principal, path=path, seconds=seconds)

    def _results(
        self, matches: Sequence[ArdMatch], entries: Mapping[str, JsonObject], foreign: Mapping[str, Registration]
    ) -> list[JsonObject]:
        scores = {match.id: match.score for match in matches}
        return [
            {**entry, "score": scores[agent_id], "source": self._source_of(foreign.get(agent_id))}
            for agent_id, entry in entries.items()
        ]

    def _source_of(self, registration: Registration | None) -> str:
        """The registry that indexed an entry (ARD-24)."""
        federation = None if registration is None else registration.federation
        peer = None if federation is None else self._peers.store.find(federation.peer)
        return self._source if peer is None else search_base(peer)

    async def _entries(
        self, ids: Sequence[str], foreign: Mapping[str, Registration] | None = None
    ) -> tuple[dict[str, JsonObject], int]:
        """The entries of the first of these agents, as many as one answer may have, and how many agents they cover."""
        budget, foreign = AnswerBudget(), foreign or {}
        entries: dict[str, JsonObject] = {}
        local = await self._registry.registrations([agent_id for agent_id in ids if agent_id not in foreign])
        known = {**{each.id: each for each in local}, **foreign}
        for registration in (known[agent_id] for agent_id in ids if agent_id in known):
            entry = self._ard.entry(registration)
            if not budget.take(len(dump_json(entry)) + len(self._source) + _SCORE_BYTES):
                return entries, ids.index(registration.id)
            entries[registration.id] = entry
        return entries, len(ids)

    async def _referrals(self, principal: Principal) -> list[JsonObject]:
        """Registered registries that have a URL, and the peers that may be asked (ARD-27)."""
        registries = await self._registry.registrations(await self._ard.registries(principal))
        entries = map(self._ard.entry, registries)
        known = [{name: entry[name] for name in _REFERRAL_MEMBERS} for entry in entries if "url" in entry]
        asked = [peer_referral(peer) for peer in self._peers.store.peers() if peer.ask and not peer.paused]
        return [*known, *asked][: limits.ARD_REFERRALS]

    async def _explore(self, request: Request, principal: Principal) -> Response:
        query = parse_explore(await _read_body(request))
        counts = await self._ard.count(query.facets, query.text, query.filter, principal)
        facets = {facet.field: _facet_json(facet, counts[facet.field]) for facet in query.facets}
        return json_response({"resultType": "facets", "facets": facets}).add(*_NO_STORE)

    async def _list(self, request: Request, principal: Principal) -> Response:
        for name, _ in request.query:
            if name not in _LIST_PARAMETERS:
                raise InvalidParameter(
                    f"{name[:40]!r} is not a parameter of this list.",
                    path=name[:40],
                    hint=f"Use {', '.join(_LIST_PARAMETERS)}.",
                )
        filter_text, order_text, token = (request.param(name) for name in ("filter", "orderBy", "pageToken"))
        clauses, orders = parse_filter(filter_text), parse_order_by(order_text)
        size = parse_page_size(_read_page_size(request), "pageSize")
        context = _token_context(principal, filter_text or "", order_text or "")
        start = self._open_token(_LIST_PURPOSE, token, context, int) if token else 0
        matches = sort_entries([*await self._ard.list_agents(clauses, principal)], orders)
        ids = [agent_id for agent_id, _ in matches[start : start + size]]
        entries, covered = await self._entries(ids)
        end = start + covered
        response: JsonObject = {"items": [*entries.values()], "total": len(matches)}
        # The tag covers items and position, not the next token, which is encrypted differently each time.
        body = dump_json(response)
        etag = strong_etag(body + (token or "").encode(), _JSON)
        last_modified = self._registry.entries.last_modified(audience(principal))
        cache_control = _SHARED if principal.is_anonymous else _PRIVATE
        headers = [(b"etag", etag.encode()), (b"last-modified", format_http_date(last_modified)), _VARY, cache_control]
        if is_not_modified(request, etag, last_modified):
            return not_modified_response(request, headers, body)
        if len(matches) > end:
            response["pageToken"] = self._registry.cursors.seal_page(_LIST_PURPOSE, end, *context)
        return Response(200, dump_json(response), content_type=_JSON, headers=headers)

    def _open_token(self, purpose: str, token: str, context: tuple[str, ...], payload_type: Any) -> Any:
        try:
            return self._registry.cursors.open_page(purpose, token, payload_type, *context)
        except InvalidCursor as error:
            raise InvalidCursor(
                error.message,
                path="pageToken",
                hint="Start without a token: it is valid for the same query of the same caller only.",
            ) from None


def search_base(peer: Peer) -> str:
    """Where a peer answers ARD searches."""
    return peer.search_url or f"{peer.url}/ard"


def peer_referral(peer: Peer) -> JsonObject:
    host = urlsplit(peer.url).hostname or ""
    return {
        "identifier": f"urn:air:{publisher_of(host)}:registry:{peer.name}",
        "displayName": peer.name,
        "type": REGISTRY_TYPE,
        "url": search_base(peer),
    }


def _token_context(principal: Principal, *query: object) -> tuple[str, ...]:
    """A page token is valid for the same caller and the same query only."""
    parts = [
        sorted((path, sorted(values)) for path, values in part.items()) if isinstance(part, dict) else part
        for part in query
    ]
    digest = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return ("admin" if principal.is_admin else principal.subject or "", digest)


def _facet_json(facet: FacetRequest, counts: Counter[str]) -> JsonObject:
    buckets = sorted(
        (pair for pair in counts.items() if pair[1] >= facet.min_count), key=lambda pair: (-pair[1], pair[0])
    )
    shown, others = buckets[: facet.limit], buckets[facet.limit :]
    result: JsonObject = {"buckets": [{"value": value, "count": count} for value, count in shown]}
    if others:
        result["otherCount"] = sum(count for _, count in others)
    return result


async def _read_body(request: Request) -> JsonObject:
    if request.header(b"content-type"):
        check_media_type(request, "application/json")
    return await read_object(request)


def _read_page_size(request: Request) -> int:
    """The page size; -1, which is refused, if it is not a number."""
    text = request.param("pageSize")
    if text is None:
        return limits.ARD_LIST_PAGE
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


# --- Schemas of requests and responses, for the API description -----------------------------------

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
        method="GET",
        path="/ard/",
        operation="document",
        summary="ARD: the registry's entry in the catalog, with the addresses of its API",
        answers={200: BodySpec(schema={"type": "object"}, content_type=REGISTRY_TYPE)},
        open=True,
    ),
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
        summary="ARD: count the results of a query by fields of the entries",
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
            ParameterSpec(name="pageSize", schema={"type": "integer", "minimum": 1}, description="agents in a page"),
            ParameterSpec(name="pageToken", description="`pageToken` of the page before"),
        ),
        answers={200: BodySpec(schema=_LIST), **_ERRORS},
    ),
]
