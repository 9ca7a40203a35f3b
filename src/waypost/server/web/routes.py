"""Routes of the web pages: sessions, forms, and which page answers. Errors are pages too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import msgspec

from waypost import limits
from waypost.errors import InvalidRequest, Misdirected, NotFound, Unauthorized, WaypostError, error_codes
from waypost.model.json import JsonObject
from waypost.model.principal import PUBLIC, SCOPE_READ, SCOPE_WRITE, audience, require_scope
from waypost.model.registration import Registration, trust_of
from waypost.registry.importer import Importer
from waypost.registry.registry import Registry
from waypost.registry.trust_store import RevocationEntry
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
from waypost.server.web.catalog_page import CatalogPage, parse_search_form
from waypost.server.web.landing_page import (
    CONNECT_PATH,
    adp_metadata,
    capability_list,
    connect_form,
    connection_info,
    make_connect_page,
    make_landing_page,
    parse_agent_input,
)
from waypost.server.web.layout import (
    WebPage,
    asset_routes,
    error_response,
    open_access_notice,
    page_response,
    render_page,
    see_other,
    uncached_response,
)
from waypost.server.web.markup import Html, el
from waypost.server.web.recent_changes import RecentChanges
from waypost.server.web.register_page import (
    RegisterPage,
    RegistrationForm,
    parse_registration_form,
    saved_note,
    saved_notice,
)
from waypost.server.web.sign_in_page import make_sign_in_page, parse_return_path

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

_PART_PARAMETER = "part"


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
    reference: Callable[[], str]  # the API reference as HTML
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
            self._route("GET", "/a/{id}", self.agent, "The page of an agent", ParameterSpec(name="as")),
            self._route("GET", "/changes", self.changes, "The latest changes"),
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
        alone = await self._parts.hosted(call.request)
        if alone is not None:
            return self._landing(call, alone)
        code = call.request.param(SIGN_IN_PARAMETER)
        if code is not None:
            return see_other("/", await self.sessions.redeem(code))
        form = parse_search_form(call.request)
        found = await self._catalog.found(form, visitor)
        if call.request.param(_PART_PARAMETER) == "found":
            return page_response(call, found.encode(), visitor)
        changed = self._registry.entries.last_modified(audience(visitor.reader)) or 0.0
        sheet = self._catalog_sheet(self._catalog.search_box(form), found, visitor, title=form.text or "Agents")
        return page_response(
            call,
            render_page(sheet),
            visitor,
            max(self._parts.service.registration.changed_at, changed) if form.is_plain else None,
        )

    def _landing(self, call: RequestContext, alone: Registration) -> AnyResponse:
        sheet = make_landing_page(alone, self._document(alone), trust_of(alone))
        if alone.visibility != PUBLIC:
            return uncached_response(render_page(sheet), None)
        changed = self._parts.hosting.get(alone, self._registry.clock.now()).changed_at
        return page_response(call, render_page(sheet), None, max(alone.changed_at, changed))

    def _catalog_sheet(self, box: Html, found: Html, visitor: WebUser, title: str) -> WebPage:
        document = self._document(self._parts.service.registration)
        main = el(
            "div",
            el("div", el("h1", "Agents"), self._catalog.figures(visitor), box, class_="masthead"),
            found,
            el(
                "aside",
                el("h2", el("a", "Latest changes", href="/changes")),
                self._catalog.feed(visitor),
                class_="changes",
                aria_label="Latest changes",
            ),
            self._own_card(document),
            class_="catalog",
        )
        return WebPage(
            title=title,
            main=main,
            visitor=visitor,
            section="/",
            head=adp_metadata(document),
            notice=open_access_notice(self._parts.open_access),
        )

    def _own_card(self, document: JsonObject) -> Html:
        """The service is an agent too (ADP-35)."""
        record = self._parts.service.registration.record
        card = el(
            "agent-card",
            el("p", record.description),
            capability_list(document, record.effective_status),
            connect_form("Connect your agent to this one"),
        )
        return el("details", el("summary", "About this service"), card, class_="about")

    async def agent(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        request = call.request
        registration = await self._registry.get(visitor.reader, call.id)
        own = registration.sources[0].dialect if registration.sources else "profile"
        wanted = AgentPageOptions(
            dialect=read_dialect(request, default=own), before=request.param("from"), after=request.param("to")
        )
        main = await self._sheets.main(registration, visitor, wanted)
        sheet = WebPage(
            title=registration.record.name or registration.id,
            main=main,
            visitor=visitor,
            notice=saved_note(request.param("saved") or "") or open_access_notice(self._parts.open_access),
        )
        return page_response(call, render_page(sheet), visitor)

    async def changes(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        main = el(
            "div",
            el("h1", "Changes"),
            el("p", "What was registered, updated and withdrawn, newest first; one line per agent.", class_="lead"),
            self._catalog.feed(visitor, limits.PAGE_CHANGE_CACHE),
            el("p", "For programs: ", el("code", "GET /api/v1/watch"), class_="soft"),
            class_="narrow changes",
        )
        return page_response(
            call, render_page(WebPage(title="Changes", main=main, visitor=visitor, section="/changes")), visitor
        )

    async def reference(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        if not visitor.reads:
            require_scope(visitor.principal, SCOPE_READ)
        main = el("div", el("h1", "API reference"), Html(self._parts.reference()), class_="plain-page")
        return page_response(
            call, render_page(WebPage(title="API", main=main, visitor=visitor, section="/reference")), visitor
        )

    async def stream(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        """`GET /api/v1/watch` for the signed-in page: the API accepts no cookies."""
        if not visitor.reads:
            require_scope(visitor.principal, SCOPE_READ)
        return await self._parts.watch.watch_as(
            msgspec.structs.replace(call, principal=visitor.reader), self.sessions.find_reader
        )

    # --- Writes ----------------------------------------------------------------------------------

    async def register_form(self, call: RequestContext, visitor: WebUser) -> AnyResponse:
        main = (
            self._registering.form(RegistrationForm(), visitor)
            if visitor.writes
            else self._registering.sign_in_required()
        )
        return page_response(
            call, render_page(WebPage(title="Register", main=main, visitor=visitor, section="/register")), visitor
        )

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
        status = 200
        try:
            found = await pages.look(entered, visitor)
        except WaypostError as error:
            main, status = pages.form(entered, visitor, error=error), error_codes(error).http
        else:
            receipts = [each.receipt for each in found.agents if each.receipt is not None]
            if entered.save and len(found.agents) == 1 and receipts and receipts[0].outcome != "held":
                return see_other(f"{agent_path(receipts[0].id)}?saved={receipts[0].outcome}")
            after = (
                [saved_notice(receipt) for receipt in receipts]
                if entered.save
                else pages.preview(found, entered, visitor)
            )
            main = pages.form(RegistrationForm() if entered.save else entered, visitor, after)
        return uncached_response(
            render_page(WebPage(title="Register", main=main, visitor=visitor, section="/register")), visitor, status
        )

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
