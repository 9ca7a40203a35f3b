"""The Agent Framework endpoints (agentframework.md §1, §2, §5…§10).

`AfHandler` is used twice: by `AgentFrameworkApi` in the service, over the registry, and by `Discovery` in any ASGI
application. It asks an `AfDirectory` for agents and knows neither stores nor credentials.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import SCOPE_READ, Principal
from waypost.protocols.agent_framework.codec import responses_schema
from waypost.server.api.agent_framework.directory import (
    FIELD_GROUPS,
    VIEWS,
    AfDirectory,
    AfFieldSet,
    AfPage,
    AfQuery,
    VisibleAgent,
    field_set,
)
from waypost.server.api.agent_framework.query_params import (
    AfListParams,
    AfSelection,
    parse_card,
    parse_item,
    parse_list,
)
from waypost.server.api.agent_framework.responses import (
    ALIAS,
    ALLOW,
    BASE,
    CARD,
    LEGACY,
    LEGACY_CARD,
    OFFERS,
    PREFIX,
    VERSION,
    AfRepresentation,
    AfRoute,
    CorsPolicy,
    af_problem_response,
    describedby_link,
    escape_query,
    find_route,
    item_path,
    method_not_allowed,
    negotiate_media_type,
    page_links,
    problem_page,
    redirect,
    representation_response,
    with_root_path,
)
from waypost.server.auth.callers import CallerRateLimiter
from waypost.server.http.asgi import AnyResponse, Headers, Request, Response, decode_segment
from waypost.server.http.content_negotiation import prefers_html
from waypost.server.http.openapi import document_schema
from waypost.server.http.request_params import AnswerBudget
from waypost.server.http.routing import BodySpec, ParameterSpec, Route

CardChooser: TypeAlias = Callable[[Request, Principal], Awaitable[VisibleAgent | None]]

CardLink: TypeAlias = Callable[[Request, VisibleAgent], str | None]

_ALTERNATE = 'rel="alternate"; type="application/a2a-agent-card+json"'

_SCHEMA_MEDIA_TYPE = b"application/schema+json"

_PREFLIGHT: Headers = [
    (b"access-control-allow-methods", ALLOW),
    (b"access-control-allow-headers", b"Accept, Authorization, If-Modified-Since, If-None-Match, X-Request-Id"),
    (b"access-control-max-age", b"86400"),
]


class AfRateLimiter:
    """Rate limits of a `Discovery` application (AF-54): by subject, or by address for anonymous callers."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        anonymous_per_minute: int = limits.AF_ANONYMOUS_PER_MINUTE,
        principal_per_minute: int = limits.AF_PRINCIPAL_PER_MINUTE,
    ) -> None:
        self._anonymous = CallerRateLimiter(now, anonymous_per_minute)
        self._principals = CallerRateLimiter(now, principal_per_minute)

    def check(self, request: Request, principal: Principal) -> None:
        """Count the request, or raise RateLimited."""
        if principal.is_anonymous:
            client = request.scope.get("client")
            self._anonymous.take(client[0] if client else "unknown")
        else:
            self._principals.take(principal.subject or "")


class AfOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute URLs are built from `base_url` only, never from a Host header (AF-73)."""

    base_url: str = ""
    alias: bool = True
    legacy: bool = False
    cards: bool = True
    allowed_origins: frozenset[str] = frozenset()
    owner_email_to_anonymous: bool = False
    challenge: str | None = None
    choose_card: CardChooser | None = None  # the card of the origin, for requests without ?agent=
    full_cards: bool = False  # with ?agent=, callers who see only the summary of an agent get its full card
    a2a_card: CardLink | None = None  # the path of the agent's A2A card, if it has one
    limiter: AfRateLimiter | None = None


class AfHandler:
    def __init__(
        self, directory: AfDirectory, options: AfOptions | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._options = options or AfOptions()
        self._now = now
        self._started_at = now()  # when documents that depend on the release and the settings alone changed last
        self._cors = CorsPolicy(self._options.allowed_origins)
        self._origin = self._options.base_url.rstrip("/")

    def find_route(self, request: Request) -> AfRoute | None:
        options = self._options
        return find_route(request.scope, alias=options.alias, legacy=options.legacy, cards=options.cards)

    def depends_on_agents(self, request: Request) -> bool:
        """False for responses that are the same for every caller: redirects, schema, problem pages, preflights."""
        route = self.find_route(request)
        if route is None or request.method == "OPTIONS" or route.has_slash:
            return False
        return route.page in ("list", "item", "card") and not (route.is_legacy and route.page != "card")

    async def handle(self, request: Request, principal: Principal, request_id: str | None = None) -> Response | None:
        """The response to a request; None if the path is not one of these endpoints."""
        try:
            return await self.answer(request, principal)
        except WaypostError as error:
            return self.refuse(request, error, request_id, anonymous=principal.is_anonymous)

    async def answer(self, request: Request, principal: Principal) -> Response | None:
        """The same, but raises."""
        route = self.find_route(request)
        if route is None:
            return None
        response = await self._answer(route, request, principal)
        self._cors.apply(request, response.headers, anonymous=principal.is_anonymous)
        return response

    def refuse(
        self, request: Request, error: WaypostError, request_id: str | None = None, *, anonymous: bool = True
    ) -> Response:
        response = af_problem_response(
            request, error, request_id=request_id, origin=self._origin, challenge=self._options.challenge
        )
        self._cors.apply(request, response.headers, anonymous=anonymous)
        return response

    async def _answer(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        if request.method == "OPTIONS":
            return _options_response(request)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed(request.method)
        if route.is_legacy and route.page != "card":
            return redirect(request.scope, route.canonical, request.query_string)
        if route.has_slash:
            path = ALIAS + route.canonical.removeprefix(PREFIX) if route.is_alias else route.canonical
            return redirect(request.scope, path, request.query_string)
        match route.page:
            case "list":
                representation = await self._list(route, request, principal)
            case "item":
                representation = await self._item(route, request, principal)
            case "card":
                representation = await self._card(route, request, principal)
            case "schema":
                representation = self._schema(route, request)
            case "problem":
                representation = self._problem(route, request)
            case "versions" | "version":
                representation = self._index(route, request)
            case "unknown_version":
                raise NotFound("This version is not supported.", details={"supported_versions": [VERSION]})
            case _:
                raise NotFound("There is no such page.", hint=f"The agents are at {BASE}/agents.")
        return await representation_response(request, principal, representation, now=self._now())

    # --- Agents ----------------------------------------------------------------------------------

    async def _list(self, route: AfRoute, request: Request, principal: Principal) -> AfRepresentation:
        self._limit_rate(request, principal)
        params = parse_list(request.query_string, ranked=self._directory.ranked)
        media_type = negotiate_media_type(request)
        fields = self._field_set(params.selection, principal)
        query = _to_query(params, needs_full=not fields.is_summary)
        number, per_page = params.page or 1, params.per_page or limits.PAGE_DEFAULT
        page = await self._directory.page(principal, query)
        agents = _render_agents(page, fields)
        if not page.is_paged and _count_fitting(agents) < len(agents):  # pages, as above AF_UNPAGED_MAX agents
            page = await self._directory.page(principal, query._replace(limit=per_page))
            agents = _render_agents(page, fields)
        if _count_fitting(agents) < len(agents):
            number, per_page = _smaller_page(number, per_page, _count_fitting(agents))
            agents = agents[:per_page]
        links = self._links(route, request)
        headers: Headers = [(b"af-generation", page.generation.encode("ascii", "replace"))]
        if page.is_paged:
            links += page_links(request.scope, request.query_string, number, per_page, page.total)
            headers.append((b"x-total-count", str(page.total).encode()))
        body = _list_body(page, agents, number, per_page)
        return AfRepresentation(body, media_type, page.last_modified, links, headers=headers)

    async def _item(self, route: AfRoute, request: Request, principal: Principal) -> AfRepresentation:
        self._limit_rate(request, principal)
        key = _decode_key(route.segment)
        selection = parse_item(request.query_string)
        media_type = negotiate_media_type(request)
        visible = await self._directory.find(principal, key)
        if visible is None:
            raise NotFound("There is no agent with this id.", hint=f"{BASE}/agents lists those that you may see.")
        agent = visible.agent
        path = item_path(agent.id)
        return AfRepresentation(
            agent.render(self._field_set(selection, principal), visible.level),
            media_type,
            agent.changed_at,
            self._links(route, request, path),
            content_location=None if agent.id == key else with_root_path(request.scope, path),
        )

    async def _card(self, route: AfRoute, request: Request, principal: Principal) -> AfRepresentation:
        self._limit_rate(request, principal)
        selection, key = parse_card(request.query_string)
        media_type = negotiate_media_type(request)
        visible = await (self._choose_card(request, principal) if key is None else self._find_card(principal, key))
        if visible is None:
            raise NotFound(
                "This origin has no default agent." if key is None else "There is no agent with this id.",
                hint="Name an agent with ?agent=, or read the list.",
                details={"links": {"agents": with_root_path(request.scope, f"{BASE}/agents")}},
            )
        links = [describedby_link(request.scope)]
        alternate = self._options.a2a_card(request, visible) if self._options.a2a_card else None
        if alternate is not None:
            query = "" if key is None else f"?agent={quote(visible.agent.id, safe='~')}"
            links.append((with_root_path(request.scope, alternate + query), _ALTERNATE))
        body = visible.agent.render(self._field_set(selection, principal), visible.level)
        location = _card_location(request) if route.is_legacy else None
        return AfRepresentation(body, media_type, visible.agent.changed_at, links, location)

    async def _choose_card(self, request: Request, principal: Principal) -> VisibleAgent | None:
        """The default agent of this origin: the chosen one, else the only one. Its card is always full."""
        if self._options.choose_card is not None:
            return await self._options.choose_card(request, principal)
        page = await self._directory.page(principal, AfQuery(limit=2))
        if page.total != 1 or not page.agents:
            return None
        only = await self._directory.find(principal, page.agents[0].agent.id)
        return None if only is None else VisibleAgent(only.agent, "full")

    async def _find_card(self, principal: Principal, key: str) -> VisibleAgent | None:
        visible = await self._directory.find(principal, key)
        return VisibleAgent(visible.agent, "full") if visible is not None and self._options.full_cards else visible

    # --- Index, schema and problem pages ---------------------------------------------------------

    def _index(self, route: AfRoute, request: Request) -> AfRepresentation:
        links = {
            name: with_root_path(request.scope, f"{BASE}/{path}")
            for name, path in (("agents", "agents"), ("schema", "schema.json"))
        }
        document: JsonObject = {"links": links} if route.page == "version" else {"versions": [VERSION], "links": links}
        media_type = negotiate_media_type(request)
        return AfRepresentation(dump_json(document), media_type, self._started_at, self._links(route, request))

    def _schema(self, route: AfRoute, request: Request) -> AfRepresentation:
        schema = responses_schema(self._origin + with_root_path(request.scope, f"{BASE}/schema.json"))
        links = self._canonical_links(route, request)
        return AfRepresentation(dump_json(schema), _SCHEMA_MEDIA_TYPE, self._started_at, links)

    def _problem(self, route: AfRoute, request: Request) -> AfRepresentation:
        text = problem_page(decode_segment(route.segment))
        if text is None:
            raise NotFound("There is no problem type with this name.")
        links = self._canonical_links(route, request)
        return AfRepresentation(text, b"text/plain; charset=utf-8", self._started_at, links)

    def _limit_rate(self, request: Request, principal: Principal) -> None:
        if self._options.limiter is not None:
            self._options.limiter.check(request, principal)

    def _field_set(self, selection: AfSelection, principal: Principal) -> AfFieldSet:
        email = self._options.owner_email_to_anonymous or not principal.is_anonymous
        return field_set(selection.view, selection.groups, owner_email=email)

    def _links(self, route: AfRoute, request: Request, canonical: str | None = None) -> list[tuple[str, str]]:
        return [describedby_link(request.scope), *self._canonical_links(route, request, canonical)]

    def _canonical_links(self, route: AfRoute, request: Request, path: str | None = None) -> list[tuple[str, str]]:
        if not route.is_alias:
            return []
        query = request.query_string
        target = (path or route.canonical) + ("?" + escape_query(query) if query else "")
        return [(with_root_path(request.scope, target), 'rel="canonical"')]


def _options_response(request: Request) -> Response:
    headers: Headers = [(b"allow", ALLOW)]
    if request.header(b"access-control-request-method") is not None:
        headers.extend(_PREFLIGHT)
    return Response(204, headers=headers)


def _to_query(params: AfListParams, *, needs_full: bool) -> AfQuery:
    is_paged = params.page is not None or params.per_page is not None
    per_page = params.per_page or limits.PAGE_DEFAULT
    return AfQuery(
        terms=params.terms,
        text=params.text,
        tags=params.tags,
        id=params.id,
        offset=((params.page or 1) - 1) * per_page,
        limit=per_page if is_paged else None,
        by_relevance=params.by_relevance,
        needs_full=needs_full,
    )


def _render_agents(page: AfPage, fields: AfFieldSet) -> list[bytes]:
    if fields.is_summary:
        return [visible.agent.summary for visible in page.agents]
    return [visible.agent.render(fields, visible.level) for visible in page.agents]


def _count_fitting(agents: Sequence[bytes]) -> int:
    """How many of them one answer may have."""
    return AnswerBudget().take_all([len(agent) for agent in agents])


def _smaller_page(number: int, per_page: int, fitting: int) -> tuple[int, int]:
    """A page of at most `fitting` agents that begins where the larger page does: its size divides the larger one."""
    size = next(size for size in range(fitting, 0, -1) if per_page % size == 0)
    return (number - 1) * (per_page // size) + 1, size


def _list_body(page: AfPage, agents: Sequence[bytes], number: int, per_page: int) -> bytes:
    """The body of a list. Renderings are concatenated, not encoded again."""
    joined = b",".join(agents)
    if not page.is_paged:
        return b'{"agents":[' + joined + b"]}"
    return b'{"agents":[%b],"page":%d,"per_page":%d,"total":%d}' % (joined, number, per_page, page.total)


def _decode_key(segment: bytes) -> str:
    key = decode_segment(segment)
    if len(key.encode()) > limits.AF_SEGMENT_BYTES:
        raise InvalidParameter(f"The id has more than {limits.AF_SEGMENT_BYTES} bytes.", path="id")
    return key


def _card_location(request: Request) -> str:
    query = request.query_string.decode("latin-1")
    return with_root_path(request.scope, CARD) + (f"?{query}" if query else "")


_PREFIXES = tuple(prefix.encode() for prefix in (PREFIX, ALIAS, LEGACY))

_CARD_PATHS = (CARD, LEGACY_CARD)


class AgentFrameworkApi:
    """The endpoints as an API of the service. Cards, and pages that name no agent, need no credential."""

    name = "agentframework"
    first_segments: tuple[bytes, ...] = (b".well-known", b".agent-framework", b"v1")

    def __init__(self, handler: AfHandler) -> None:
        self._handler = handler

    def claims(self, raw_path: bytes) -> bool:
        return raw_path.removesuffix(b"/").decode("latin-1") in _CARD_PATHS or any(
            raw_path.startswith(prefix) and raw_path[len(prefix) : len(prefix) + 1] in (b"", b"/")
            for prefix in _PREFIXES
        )

    def is_public(self, request: Request) -> bool:
        return request.path.rstrip("/") in _CARD_PATHS or not self._handler.depends_on_agents(request)

    def required_scope(self, request: Request) -> str | None:
        return SCOPE_READ

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if prefers_html(request.header(b"accept")):  # its errors are pages, which the application makes
            response = await self._handler.answer(request, principal)
        else:
            response = await self._handler.handle(request, principal, request_id)
        if response is None:
            raise NotFound(
                "Nothing is served at this path.", path="path", hint="The API reference at /docs lists the paths."
            )
        return response

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        return self._handler.refuse(request, error, request_id)


# For the API description: `Discovery` does its own routing.

_VERSIONED_TYPE = str(OFFERS[1])

_VIEW = ParameterSpec(name="view", schema={"enum": list(VIEWS)}, description="which members the answer has")

_INCLUDE = ParameterSpec(name="include", description=f"comma-separated list of {', '.join(FIELD_GROUPS)}")

_LIST_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["agents"],
    "properties": {
        "agents": {"type": "array", "items": {"type": "object", "required": ["id", "name", "tags"]}},
        "page": {"type": "integer"},
        "per_page": {"type": "integer"},
        "total": {"type": "integer"},
    },
}

AGENT_FRAMEWORK_ROUTES = [
    Route(
        method="GET",
        path=f"{BASE}/agents",
        operation="list",
        summary="Agent Framework: list agents",
        parameters=(
            ParameterSpec(
                name="q", schema={"type": "string", "maxLength": limits.AF_QUERY_CHARS}, description="all words"
            ),
            ParameterSpec(
                name="tag",
                schema={"type": "array", "items": {"type": "string", "minLength": 1}},
                description="only agents with this tag; repeatable",
            ),
            _INCLUDE,
            _VIEW,
            ParameterSpec(
                name="page",
                schema={"type": "integer", "minimum": 1, "maximum": limits.AF_PAGE_NUMBER_MAX},
                description="the number of the page, from 1",
            ),
            ParameterSpec(name="per_page", schema={"type": "integer", "minimum": 1}, description="agents in a page"),
            ParameterSpec(name="id", description="exactly this agent"),
        ),
        answers={
            200: BodySpec(schema=_LIST_SCHEMA, also=(_VERSIONED_TYPE,)),
            406: BodySpec(description="no representation fits"),
        },
    ),
    Route(
        method="GET",
        path=f"{BASE}/agents/{{id}}",
        operation="get",
        summary="Agent Framework: one agent",
        parameters=(_VIEW, _INCLUDE),
        answers={200: BodySpec(schema=document_schema("af"), also=(_VERSIONED_TYPE,))},
    ),
    Route(
        method="GET",
        path=CARD,
        operation="document",
        summary="Agent Framework: the card of this origin",
        parameters=(ParameterSpec(name="agent", description="the card of one agent"),),
        answers={200: BodySpec(schema=document_schema("af"), also=(_VERSIONED_TYPE,))},
        open=True,
    ),
]
