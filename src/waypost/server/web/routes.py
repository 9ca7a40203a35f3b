"""Routes of the web pages: sessions, forms, and which page answers. Errors are pages too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from waypost import limits
from waypost.errors import InvalidRequest, Misdirected, NotFound, Unauthorized, WaypostError, error_codes
from waypost.federation.service import PeerService
from waypost.model.json import JsonObject
from waypost.model.principal import PUBLIC, SCOPE_ADMIN, SCOPE_READ, SCOPE_WRITE, audience, require_scope
from waypost.model.registration import Registration, trust_of
from waypost.registry.importer import Importer
from waypost.registry.registry import Registry
from waypost.registry.trust_store import RevocationEntry
from waypost.responses.service import NodeList, WorkerStats
from waypost.server.api.rest.changes import WatchApi
from waypost.server.auth.callers import RateLimits, TrustedProxies
from waypost.server.auth.sessions import SIGN_IN_PARAMETER, WebSessions, WebUser
from waypost.server.hosted_agents.documents import HostedDocuments
from waypost.server.hosted_agents.service_agent import ServiceAgent
from waypost.server.http.asgi import AnyResponse, Request, Response, json_response
from waypost.server.http.request_params import read_dialect, refuse_fetch_loops
from waypost.server.http.routing import BodySpec, Handler, ParameterSpec, RequestContext, Route
from waypost.server.renderer import Renderer, parse_rendered
from waypost.server.web.agent_cards import AgentCards, agent_path
from waypost.server.web.agent_page import AgentPage, AgentPageOptions
from waypost.server.web.assets import asset_routes
from waypost.server.web.catalog_page import CatalogPage, CatalogResults, SearchForm, parse_search_form
from waypost.server.web.landing_page import (
    CONNECT_PATH,
    connection_info,
    make_adp_metadata,
    make_connect_page,
    make_landing_page,
    parse_agent_input,
)
from waypost.server.web.layout import (
    LinkPreview,
    WebPage,
    error_response,
    page_response,
    render_page,
    see_other,
    uncached_response,
)
from waypost.server.web.recent_changes import RecentChanges
from waypost.server.web.register_page import OUTCOME_TEXTS, RegisterPage, RegistrationForm, parse_registration_form
from waypost.server.web.sign_in_page import make_sign_in_page, parse_return_path
from waypost.server.web.stats_page import make_stats_page
from waypost.server.web.templating import render

_FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"

_MAX_FIELDS = 16


async def parse_form(request: Request, most: int = limits.REQUEST_BYTES) -> dict[str, str]:
    """Parse form fields. Browsers send line ends as CRLF; they are converted back to LF."""
    kind = (request.header(b"content-type") or "").split(";", 1)[0].strip().lower()
    if kind != _FORM_MEDIA_TYPE:
        raise InvalidRequest(
            f"A form must be sent as {_FORM_MEDIA_TYPE}.", path="Content-Type", hint="Submit the form on the page."
        )
    body = await request.body(most)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidRequest("The form is malformed.", path="$", hint="Submit the form on the page.") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


FindHostedAgent = Callable[[Request], Awaitable[Registration | None]]

_HTML_ANSWER = {200: BodySpec(schema={"type": "string"}, content_type="text/html")}

_FORM_BODY = BodySpec(schema={"type": "object"}, content_type="application/x-www-form-urlencoded")

_CATALOG_LINK = (b"link", b'</.well-known/ai-catalog.json>; rel="ai-catalog"')  # ARD-10
_PART_PARAMETER = "part"
_PITCH = "Find the agent that does the job, in any protocol, and see why it fits and how far it can be trusted."


class WebDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages need."""

    registry: Registry
    renderer: Renderer
    service: ServiceAgent
    hosting: HostedDocuments
    hosted: FindHostedAgent
    sessions: WebSessions
    importer: Importer
    watch: WatchApi
    reference: Callable[[], dict[str, Any]]  # the values of the API reference
    peers: PeerService
    workers: Callable[[], tuple[WorkerStats, ...]] | None  # the state of the service's processes, where it has several
    nodes: NodeList | None  # that of the nodes of its cluster, where it is in one
    open_access: bool
    rates: RateLimits
    origin: TrustedProxies


class WebPages:
    def __init__(self, parts: WebDependencies) -> None:
        self._parts = parts
        self._registry = parts.registry
        self.sessions = parts.sessions
        self._catalog = CatalogPage(parts.registry, AgentCards(trust_of), RecentChanges(parts.registry))
        self._sheets = AgentPage(parts.registry, parts.renderer)
        self._registering = RegisterPage(parts.importer)

    def routes(self) -> list[Route]:
        return [
            self._route("GET", "/", self.home, "The list of agents; under a hosted domain the page of that agent"),
            self._route(
                "GET",
                "/a/{id}",
                self.agent,
                "The page of an agent",
                ParameterSpec(name="as", description="the dialect that the page shows"),
            ),
            self._route("GET", "/changes", self.changes, "The latest changes"),
            self._route("GET", "/stats", self.stats, "Statistics"),
            self._route("GET", "/peers", self.peers, "The registries that this one follows, for admins"),
            self._route("GET", "/reference", self.reference, "The API reference, for signed-in visitors"),
            self._route("GET", "/changes/stream", self.stream, "Live changes, for the page"),
            self._route("GET", "/register", self.register_form, "Register an agent from a page"),
            self._route("POST", "/register", self.register, "Review a document or an address, or save it"),
            self._route("GET", "/sign-in", self.sign_in_form, "Sign in with a token"),
            self._route("POST", "/sign-in", self.sign_in, "Sign in with a token"),
            self._route("POST", "/sign-out", self.sign_out, "Sign out"),
            self._route("POST", CONNECT_PATH, self.connect, "How to connect to the agent of this domain"),
            *asset_routes(),
        ]

    def _route(
        self,
        method: str,
        path: str,
        handler: Callable[[RequestContext, WebUser], Awaitable[AnyResponse]],
        summary: str,
        *parameters: ParameterSpec,
    ) -> Route:
        return Route(
            method=method,
            path=path,
            operation="page",
            handler=self._shown(handler),
            summary=summary,
            parameters=parameters,
            body=_FORM_BODY if method == "POST" else None,
            answers=_HTML_ANSWER,
            open=True,
            described=path
            == "/",  # the other routes are for people: documented in the how-to, not in the API description
        )

    def _shown(self, handler: Callable[[RequestContext, WebUser], Awaitable[AnyResponse]]) -> Handler:
        async def handle(call: RequestContext) -> AnyResponse:
            visitor = await self.sessions.authenticate(call.request)
            try:
                self._check_host(call.request)
                return await handler(call, visitor)
            except WaypostError as error:
                return self._error_response(call.request, error, visitor, call.request_id)

        return handle

    async def error_page(self, request: Request, error: WaypostError, request_id: str) -> Response:
        """The page of an error at any path of the service."""
        try:
            visitor = await self.sessions.authenticate(request)
        except WaypostError:  # the credential may be what is wrong
            visitor = WebUser()
        return self._error_response(request, error, visitor, request_id)

    def _error_response(self, request: Request, error: WaypostError, visitor: WebUser, request_id: str) -> Response:
        """Under a name that is not the catalog's, the page stands alone."""
        stands_alone = isinstance(error, Misdirected) or self._is_hosted(request)
        return error_response(error, None if stands_alone else visitor, request_id)

    def _check_host(self, request: Request) -> None:
        """Under the domain of a hosted agent only its own page is served."""
        if request.path not in ("/", CONNECT_PATH) and self._is_hosted(request):
            raise NotFound("Nothing is served at this path.", path="path", hint="See / for an overview.")

    def _is_hosted(self, request: Request) -> bool:
        return self._registry.hosted(request.host_name) is not None

    def _document(self, registration: Registration) -> JsonObject:
        """The document as its well-known path serves it."""
        return parse_rendered(self._parts.hosting.get(registration, self._registry.clock.now()).body)

    # --- Reads -----------------------------------------------------------------------------------

    async def home(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        response = await self._home(call, visitor)
        response.headers.append(_CATALOG_LINK)
        return response

    async def _home(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        alone = await self._parts.hosted(call.request)
        if alone is not None:
            return self._landing(call, alone)
        code = call.request.param(SIGN_IN_PARAMETER)
        if code is not None:
            return await self._redeem(code, visitor)
        form = parse_search_form(call.request)
        found = await self._catalog.find(form, visitor)
        if call.request.param(_PART_PARAMETER) == "found":
            return page_response(call, render("_found.html", found=found, visitor=visitor).encode(), visitor)
        changed = self._registry.entries.last_modified(audience(visitor.reader))
        return page_response(
            call,
            render_page(self._home_page(form, found, visitor)),
            visitor,
            max(self._parts.service.registration.changed_at, changed) if form.is_plain else None,
        )

    async def _redeem(self, code: str, visitor: WebUser) -> AnyResponse:
        """Sign in by a link. Who is signed in already and opens the link again stays signed in and is told so."""
        try:
            return see_other("/", await self.sessions.redeem(code))
        except Unauthorized:
            if not visitor.is_signed_in:
                raise
            return uncached_response(render_page(make_sign_in_page(visitor, "/", has_used_link=True)), visitor)

    def _landing(self, call: RequestContext, alone: Registration) -> AnyResponse:
        is_public = alone.visibility == PUBLIC
        record = alone.record
        address = f"https://{alone.hosted}"
        preview = LinkPreview(title=record.name, description=record.description, url=f"{address}/", base_url=address)
        page = make_landing_page(alone, self._document(alone), trust_of(alone), preview if is_public else None)
        if not is_public:
            return uncached_response(render_page(page), None)
        changed = self._parts.hosting.get(alone, self._registry.clock.now()).changed_at
        return page_response(call, render_page(page), None, max(alone.changed_at, changed))

    def _home_page(self, form: SearchForm, found: CatalogResults, visitor: WebUser) -> WebPage:
        """The catalog. The service is an agent too (ADP-35)."""
        service = self._parts.service.registration
        base_url = self._parts.renderer.base_url
        values = {
            "form": form,
            "found": found,
            "figures": self._catalog.figures(visitor),
            "changes": self._catalog.latest_changes(visitor),
            "most_changes": limits.PAGE_CHANGES,
            "query_chars": limits.QUERY_CHARS,
            "adp": make_adp_metadata(self._document(service)),
            "service": service.record,
        }
        return WebPage(
            template="home.html",
            title=form.text or "Find an agent",
            values=values,
            visitor=visitor,
            section="/",
            open_access=self._parts.open_access,
            preview=LinkPreview(title="Waypost", description=_PITCH, url=f"{base_url}/", base_url=base_url),
        )

    async def agent(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        request = call.request
        try:
            registration = await self._registry.get(visitor.reader, call.id)
        except NotFound:
            if not visitor.reads:
                raise
            return see_other(agent_path(self._registry.resolve_short(visitor.reader, call.id)))
        own = registration.sources[0].dialect if registration.sources else "profile"
        options = AgentPageOptions(
            dialect=read_dialect(request, default=own),
            before=request.param("from"),
            after=request.param("to"),
            saved=OUTCOME_TEXTS.get(request.param("saved") or ""),
        )
        page = await self._sheets.page(registration, visitor, options)
        return page_response(call, render_page(page), visitor)

    async def changes(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        shown = self._catalog.latest_changes(visitor, limits.PAGE_CHANGE_CACHE)
        values = {"changes": shown, "most_changes": limits.PAGE_CHANGE_CACHE}
        page = WebPage(template="changes.html", title="Changes", values=values, visitor=visitor, section="/changes")
        return page_response(call, render_page(page), visitor)

    async def stats(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        return page_response(call, render_page(make_stats_page(self._registry, visitor)), visitor)

    async def peers(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        require_scope(visitor.principal, SCOPE_ADMIN)
        workers = self._parts.workers() if self._parts.workers is not None else ()
        nodes = self._parts.nodes() if self._parts.nodes is not None else ()
        values = {"peers": self._parts.peers.list(), "workers": workers, "nodes": nodes}
        page = WebPage(template="peers.html", title="Peers", values=values, visitor=visitor, section="/peers")
        return uncached_response(render_page(page), visitor)

    async def reference(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        if not visitor.reads:
            require_scope(visitor.principal, SCOPE_READ)
        page = WebPage(
            template="reference.html",
            title="API reference",
            values=self._parts.reference(),
            visitor=visitor,
            section="/reference",
        )
        return page_response(call, render_page(page), visitor)

    async def stream(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        """`GET /api/v1/watch` for the signed-in page: the API accepts no cookies."""
        if not visitor.reads:
            require_scope(visitor.principal, SCOPE_READ)
        return await self._parts.watch.watch_as(
            msgspec.structs.replace(call, principal=visitor.reader), self.sessions.find_reader
        )

    # --- Writes ----------------------------------------------------------------------------------

    async def register_form(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        return page_response(call, render_page(self._registering.page(visitor)), visitor)

    async def register(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        refuse_fetch_loops(call.request)
        form = await parse_form(call.request, limits.PAGE_FORM_BYTES)
        self.sessions.check_csrf_token(call.request, form)
        require_scope(visitor.principal, SCOPE_WRITE)
        address = self._parts.origin.client_address(call.request.scope)
        self._parts.rates.write(visitor.principal, address)
        writer = msgspec.structs.replace(visitor, principal=msgspec.structs.replace(visitor.principal, address=address))
        return await self._registered(parse_registration_form(form), writer)

    async def _registered(self, entered: RegistrationForm, visitor: WebUser) -> AnyResponse:
        pages = self._registering
        try:
            found = await pages.look(entered, visitor)
        except WaypostError as error:
            page = pages.page(visitor, entered, error=error)
            return uncached_response(render_page(page), visitor, error_codes(error).http)
        if not entered.save:
            return uncached_response(render_page(pages.page(visitor, entered, found=found)), visitor)
        receipts = [each.receipt for each in found.agents if each.receipt is not None]
        if len(found.agents) == 1 and receipts and receipts[0].outcome != "held":
            return see_other(f"{agent_path(receipts[0].id)}?saved={receipts[0].outcome}")
        return uncached_response(render_page(pages.page(visitor, receipts=receipts)), visitor)

    # --- Sign-in and sign-out --------------------------------------------------------------------

    async def sign_in_form(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        return page_response(
            call, render_page(make_sign_in_page(visitor, parse_return_path(call.request.param("next")))), visitor
        )

    async def sign_in(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        self.sessions.check_same_site(call.request)
        form = await parse_form(call.request)
        try:
            cookie = await self.sessions.sign_in(call.request, form.get("token", "").strip())
        except Unauthorized as error:
            return uncached_response(
                render_page(make_sign_in_page(visitor, parse_return_path(form.get("next")), error)), visitor, 401
            )
        return see_other(parse_return_path(form.get("next")), cookie)

    async def sign_out(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        self.sessions.check_csrf_token(call.request, await parse_form(call.request))
        if visitor.token_id:
            await self._end(visitor)
        return see_other("/", self.sessions.sign_out())

    async def _end(self, visitor: WebUser) -> None:
        """Revoke the token of the session, in every process."""
        now = self._registry.clock.now()
        revocation = RevocationEntry(kind="token", name=visitor.token_id, revoked_at=now, reason="signed out")
        await self._registry.trust.revoke(visitor.principal, revocation)

    # --- Connect ---------------------------------------------------------------------------------

    async def connect(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        """Writes nothing and calls nobody, so any origin may send it."""
        registration = await self._parts.hosted(call.request) or self._parts.service.registration
        form = await parse_form(call.request)
        info = connection_info(parse_agent_input(form.get("from", "")), self._document(registration))
        if "application/json" in (call.request.header(b"accept") or ""):
            return json_response(info, headers=[(b"cache-control", b"no-store"), (b"vary", b"Host, Accept")])
        return uncached_response(render_page(make_connect_page(info)), None)
