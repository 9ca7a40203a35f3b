"""A rate for each caller of an AF surface that stands alone (AF-54). Off unless it is set up."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import SCOPE_READ, Principal
from waypost.protocols.agent_framework.codec import responses_schema
from waypost.server.api.agent_framework.directory import (
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
    PREFIX,
    VERSION,
    AfRepresentation,
    AfRoute,
    CorsPolicy,
    af_problem_response,
    describedby_link,
    escaped_query,
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
from waypost.server.auth.rate_limits import TokenBuckets
from waypost.server.http.asgi import AnyResponse, Headers, Request, Response, decode_segment


class RateLimiter:
    """Buckets by subject, and by address for those without one."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        anonymous_per_minute: int = limits.AF_ANONYMOUS_PER_MINUTE,
        principal_per_minute: int = limits.AF_PRINCIPAL_PER_MINUTE,
    ) -> None:
        self._anonymous = TokenBuckets(now, anonymous_per_minute)
        self._principals = TokenBuckets(now, principal_per_minute)

    def check(self, request: Request, principal: Principal) -> None:
        """Take one request from the caller's bucket, or refuse and say when to come back."""
        if principal.is_anonymous:
            client = request.scope.get("client")
            self._anonymous.take(client[0] if client else "unknown")
        else:
            self._principals.take(principal.subject or "")


# ---- The Agent Framework surface: which answer belongs to which address (agentframework.md §1, §2, §5…§10).
#
# Written once and served twice: inside the service over the registry, and as `Discovery` inside any ASGI application. It asks
# a `Directory` for agents and knows neither stores nor credentials.

CardChooser: TypeAlias = Callable[[Request, Principal], Awaitable[VisibleAgent | None]]

CardLink: TypeAlias = Callable[[Request, VisibleAgent], str | None]

_ALTERNATE = 'rel="alternate"; type="application/a2a-agent-card+json"'

_SCHEMA_MEDIA_TYPE = b"application/schema+json"

_PREFLIGHT: Headers = [
    (b"access-control-allow-methods", ALLOW),
    (b"access-control-allow-headers", b"Accept, Authorization, If-Modified-Since, If-None-Match, X-Request-Id"),
    (b"access-control-max-age", b"86400"),
]


class AfOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the surface is set up. Absolute addresses come from `base_url` alone, never from a Host header (AF-73)."""

    base_url: str = ""
    alias: bool = True
    legacy: bool = False
    cards: bool = True
    allowed_origins: frozenset[str] = frozenset()
    owner_email_to_anonymous: bool = False
    challenge: str | None = None
    choose_card: CardChooser | None = None  # the card of an origin, when no ?agent= names one
    whole_cards: bool = False  # a card named by ?agent= is whole for whoever may see the agent at all
    a2a_card: CardLink | None = None  # where the A2A card of the same agent is, if there is one
    limiter: RateLimiter | None = None


class AfSurface:
    def __init__(
        self, directory: AfDirectory, options: AfOptions | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._options = options or AfOptions()
        self._now = now
        self._origins = CorsPolicy(self._options.allowed_origins)
        self._origin = self._options.base_url.rstrip("/")

    def find_route(self, request: Request) -> AfRoute | None:
        options = self._options
        return find_route(request.scope, alias=options.alias, legacy=options.legacy, cards=options.cards)

    def depends_on_agents(self, request: Request) -> bool:
        """False for what is the same to everybody: redirects, words about the surface itself, preflight requests."""
        route = self.find_route(request)
        if route is None or request.method == "OPTIONS" or route.slash or (route.legacy and route.page != "card"):
            return False
        return route.page in ("list", "item", "card")

    async def handle(self, request: Request, principal: Principal, request_id: str | None = None) -> Response | None:
        """The answer to a request; None when the path is not of this surface."""
        route = self.find_route(request)
        if route is None:
            return None
        try:
            response = await self._answer(route, request, principal)
        except WaypostError as error:
            return self.refuse(request, error, request_id, anonymous=principal.is_anonymous)
        self._origins.apply(request, response.headers, anonymous=principal.is_anonymous)
        return response

    def refuse(
        self, request: Request, error: WaypostError, request_id: str | None = None, *, anonymous: bool = True
    ) -> Response:
        """An error as this surface tells it."""
        response = af_problem_response(
            request, error, request_id=request_id, origin=self._origin, challenge=self._options.challenge
        )
        self._origins.apply(request, response.headers, anonymous=anonymous)
        return response

    async def _answer(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        method = request.method
        if method == "OPTIONS":
            return _options_response(request)
        if method not in ("GET", "HEAD"):
            raise method_not_allowed(method)
        if route.legacy and route.page != "card":
            return redirect(request.scope, route.canonical, request.query_string)
        if route.slash:
            path = ALIAS + route.canonical.removeprefix(PREFIX) if route.alias else route.canonical
            return redirect(request.scope, path, request.query_string)
        match route.page:
            case "list":
                return await self._list(route, request, principal)
            case "item":
                return await self._item(route, request, principal)
            case "card":
                return await self._card(route, request, principal)
            case "schema" | "problem":
                return await self._page(route, request, principal)
            case "versions" | "version":
                return await self._index(route, request, principal)
            case "unknown_version":
                raise NotFound("This version is not served.", details={"supported_versions": [VERSION]})
            case _:
                raise NotFound("There is no such page.", hint=f"The agents are at {BASE}/agents.")

    # --- Agents ----------------------------------------------------------------------------------

    async def _list(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        self._limit(request, principal)
        wish = parse_list(request.query_string, ranked=self._directory.ranked)
        media_type = negotiate_media_type(request)
        shape = self._shape(wish.wish, principal)
        page = await self._directory.page(principal, _to_query(wish, whole=not shape.is_summary))
        number, per_page = wish.page or 1, wish.per_page or limits.PAGE_DEFAULT
        links = self._links(route, request)
        more: Headers = [(b"af-generation", page.generation.encode("ascii", "replace"))]
        if page.paged:
            links += page_links(request.scope, request.query_string, number, per_page, page.total)
            more.append((b"x-total-count", str(page.total).encode()))
        body = _list_body(page, shape, number, per_page)
        found = AfRepresentation(body, media_type, page.last_modified, links, more=more)
        return await representation_response(request, principal, found, now=self._now())

    async def _item(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        self._limit(request, principal)
        key = _key_of(route.segment)
        wish = parse_item(request.query_string)
        media_type = negotiate_media_type(request)
        seen = await self._directory.one(principal, key)
        if seen is None:
            raise NotFound("There is no agent of this name.", hint=f"{BASE}/agents lists those that you may see.")
        agent = seen.agent
        location = None if agent.id == key else with_root_path(request.scope, item_path(agent.id))
        found = AfRepresentation(
            agent.render(self._shape(wish, principal), seen.level),
            media_type,
            agent.changed_at,
            self._links(route, request, item_path(agent.id)),
            location,
        )
        return await representation_response(request, principal, found, now=self._now())

    async def _card(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        self._limit(request, principal)
        wish, key = parse_card(request.query_string)
        media_type = negotiate_media_type(request)
        seen = await (self._choose_card(request, principal) if key is None else self._named_card(principal, key))
        if seen is None:
            raise NotFound(
                "No agent is the one of this origin." if key is None else "There is no agent of this name.",
                hint="Name one with ?agent=, or read the list.",
                details={"links": {"agents": with_root_path(request.scope, f"{BASE}/agents")}},
            )
        links = [describedby_link(request.scope)]
        alternate = self._options.a2a_card(request, seen) if self._options.a2a_card else None
        if alternate is not None:
            query = "" if key is None else f"?agent={quote(seen.agent.id, safe='~')}"
            links.append((with_root_path(request.scope, alternate + query), _ALTERNATE))
        body = seen.agent.render(self._shape(wish, principal), seen.level)
        location = _card_location(request) if route.legacy else None
        found = AfRepresentation(body, media_type, seen.agent.changed_at, links, location)
        return await representation_response(request, principal, found, now=self._now())

    async def _choose_card(self, request: Request, principal: Principal) -> VisibleAgent | None:
        """The agent of this origin: the chosen one, else the only one. Its card is whole, for that is what it is for."""
        if self._options.choose_card is not None:
            return await self._options.choose_card(request, principal)
        page = await self._directory.page(principal, AfQuery(limit=2))
        if page.total != 1 or not page.seen:
            return None
        only = await self._directory.one(principal, page.seen[0].agent.id)
        return None if only is None else VisibleAgent(only.agent, "full")

    async def _named_card(self, principal: Principal, key: str) -> VisibleAgent | None:
        seen = await self._directory.one(principal, key)
        return VisibleAgent(seen.agent, "full") if seen is not None and self._options.whole_cards else seen

    # --- Pages about the surface itself ----------------------------------------------------------

    async def _index(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        links = {
            name: with_root_path(request.scope, f"{BASE}/{path}")
            for name, path in (("agents", "agents"), ("schema", "schema.json"))
        }
        document: JsonObject = {"links": links} if route.page == "version" else {"versions": [VERSION], "links": links}
        found = AfRepresentation(dump_json(document), negotiate_media_type(request), links=self._links(route, request))
        return await representation_response(request, principal, found, now=self._now())

    async def _page(self, route: AfRoute, request: Request, principal: Principal) -> Response:
        if route.page == "schema":
            schema = responses_schema(self._origin + with_root_path(request.scope, f"{BASE}/schema.json"))
            found = AfRepresentation(dump_json(schema), _SCHEMA_MEDIA_TYPE, links=self._canonical(route, request))
            return await representation_response(request, principal, found, now=self._now())
        text = problem_page(decode_segment(route.segment))
        if text is None:
            raise NotFound("No problem has this name.")
        found = AfRepresentation(text, b"text/plain; charset=utf-8", links=self._canonical(route, request))
        return await representation_response(request, principal, found, now=self._now())

    # --- Parts -----------------------------------------------------------------------------------

    def _limit(self, request: Request, principal: Principal) -> None:
        if self._options.limiter is not None:
            self._options.limiter.check(request, principal)

    def _shape(self, wish: AfSelection, principal: Principal) -> AfFieldSet:
        email = self._options.owner_email_to_anonymous or not principal.is_anonymous
        return field_set(wish.view, wish.groups, owner_email=email)

    def _links(self, route: AfRoute, request: Request, canonical: str | None = None) -> list[tuple[str, str]]:
        return [describedby_link(request.scope), *self._canonical(route, request, canonical)]

    def _canonical(self, route: AfRoute, request: Request, path: str | None = None) -> list[tuple[str, str]]:
        if not route.alias:
            return []
        query = request.query_string
        target = (path or route.canonical) + ("?" + escaped_query(query) if query else "")
        return [(with_root_path(request.scope, target), 'rel="canonical"')]


def _options_response(request: Request) -> Response:
    headers: Headers = [(b"allow", ALLOW)]
    if request.header(b"access-control-request-method") is not None:
        headers.extend(_PREFLIGHT)
    return Response(204, headers=headers)


def _to_query(wish: AfListParams, *, whole: bool) -> AfQuery:
    asked = wish.page is not None or wish.per_page is not None
    per_page = wish.per_page or limits.PAGE_DEFAULT
    return AfQuery(
        terms=wish.terms,
        text=wish.text,
        tags=wish.tags,
        id=wish.id,
        offset=((wish.page or 1) - 1) * per_page,
        limit=per_page if asked else None,
        by_relevance=wish.by_relevance,
        whole=whole,
    )


def _list_body(page: AfPage, shape: AfFieldSet, number: int, per_page: int) -> bytes:
    """The envelope around renderings that are bytes already."""
    if shape.is_summary:
        agents = b",".join([seen.agent.summary for seen in page.seen])
    else:
        agents = b",".join([seen.agent.render(shape, seen.level) for seen in page.seen])
    if not page.paged:
        return b'{"agents":[' + agents + b"]}"
    return b'{"agents":[%b],"page":%d,"per_page":%d,"total":%d}' % (agents, number, per_page, page.total)


def _key_of(segment: bytes) -> str:
    key = decode_segment(segment)
    if len(key.encode()) > limits.AF_SEGMENT_BYTES:
        raise InvalidParameter(f"The id has more than {limits.AF_SEGMENT_BYTES} bytes.", path="id")
    return key


def _card_location(request: Request) -> str:
    query = request.query_string.decode("latin-1")
    return with_root_path(request.scope, CARD) + (f"?{query}" if query else "")


# ---- The AF surface as a face of the service: which of its paths need a credential.

_OPEN_PATHS = frozenset(("/.well-known/agent-card", "/v1/card"))

_PREFIXES = (b"/.well-known/agentframework", b"/.agent-framework", b"/v1/agents")

_CARDS = (b"/.well-known/agent-card", b"/.well-known/agent-card/", b"/v1/card", b"/v1/card/")


class AgentFrameworkApi:
    name = "agentframework"
    first_segments: tuple[bytes, ...] = (b".well-known", b".agent-framework", b"v1")

    def __init__(self, surface: AfSurface) -> None:
        self._surface = surface

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in _CARDS or any(
            raw_path.startswith(prefix) and raw_path[len(prefix) : len(prefix) + 1] in (b"", b"/")
            for prefix in _PREFIXES
        )

    def is_public(self, request: Request) -> bool:
        """Cards are open; so is what tells of no agent. Asked of the route, since an id may hold any text."""
        return request.path.rstrip("/") in _OPEN_PATHS or not self._surface.depends_on_agents(request)

    def scope(self, request: Request) -> str | None:
        return SCOPE_READ

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        response = await self._surface.handle(request, principal, request_id)
        if response is None:
            raise NotFound("Nothing is served at this path.", path="path", hint="See /docs for what is.")
        return response

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        return self._surface.refuse(request, error, request_id)
