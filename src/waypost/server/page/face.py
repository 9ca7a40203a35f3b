"""The routes of the pages: who looks, what is asked, which page answers. What goes wrong is a page too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from waypost import limits
from waypost.errors import NotFound, Unauthorized, WaypostError
from waypost.model.json import JsonObject
from waypost.model.principal import PUBLIC, SCOPE_READ, SCOPE_WRITE, audience
from waypost.model.registration import Registration
from waypost.registry.engine import Registry
from waypost.registry.importing import Importer
from waypost.registry.trustbook import Revocation
from waypost.server.asgi import AnyResponse, Request, json_response
from waypost.server.hosting import Hosting
from waypost.server.importing import refuse_loops
from waypost.server.origin import Origin
from waypost.server.page.asked import read_asked
from waypost.server.page.assets import asset_routes
from waypost.server.page.cards import Cards, agent_path
from waypost.server.page.catalogue import CataloguePage
from waypost.server.page.changes import RecentChanges
from waypost.server.page.connecting import connect_sheet, connection, parse_agent
from waypost.server.page.forms import read_form
from waypost.server.page.landing import CONNECT_PATH, adp_head, capability_list, connect_form, landing
from waypost.server.page.layout import (
    Sheet,
    answer,
    open_notice,
    refusal,
    see_other,
    uncached,
    write,
)
from waypost.server.page.markup import Html, el
from waypost.server.page.registering import Entered, RegisterPage, read_entered, saved_note, saved_notice
from waypost.server.page.sessions import SIGN_IN_PARAMETER, Authenticates, Sessions, Visitor, check_same_site
from waypost.server.page.sheet import SheetPage, Wanted
from waypost.server.page.signing import own_path, sign_in_page
from waypost.server.rates import Rates
from waypost.server.reading import read_dialect
from waypost.server.rendering import Renderer, read_rendered
from waypost.server.routes import Body, Call, Handler, Parameter, Route
from waypost.server.watch import WatchFace
from waypost.trust.policy import require_scope

Hosted = Callable[[Request], Awaitable[Registration | None]]
_HTML = {200: Body(schema={"type": "string"}, content_type="text/html")}
_FORM = Body(schema={"type": "object"}, content_type="application/x-www-form-urlencoded")
_PART = "part"


class PageParts(msgspec.Struct, kw_only=True):
    """What the pages stand on."""

    registry: Registry
    renderer: Renderer
    service: Registration
    hosting: Hosting
    hosted: Hosted
    sessions: Sessions
    importer: Importer
    watch: WatchFace
    reference: Callable[[], str]  # the API described, as HTML
    open_access: bool
    rates: Rates | None = None
    origin: Origin = msgspec.field(default_factory=Origin)


class PageFace:
    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._registry = parts.registry
        self.sessions = parts.sessions
        self._catalogue = CataloguePage(parts.registry, Cards(parts.registry.trust_of), RecentChanges(parts.registry))
        self._sheets = SheetPage(parts.registry, parts.renderer)
        self._registering = RegisterPage(parts.importer)

    def guard(self, authenticator: Authenticates, rates: Rates, origin: Origin) -> None:
        """Whom the pages ask who somebody is, and who counts what they write."""
        self.sessions.authenticator = authenticator
        self._parts.rates, self._parts.origin = rates, origin

    def routes(self) -> list[Route]:
        return [
            self._route("GET", "/", self.home, "The catalogue; under a hosted domain the page of that agent"),
            self._route("GET", "/a/{id}", self.agent, "The data sheet of an agent", Parameter(name="as")),
            self._route("GET", "/changes", self.changes, "The latest changes"),
            self._route("GET", "/reference", self.reference, "The API, for whoever is signed in"),
            self._route("GET", "/changes/stream", self.stream, "Changes as they happen, for the page"),
            self._route("GET", "/register", self.register_form, "Register an agent from a page"),
            self._route("POST", "/register", self.register, "Look at a document or an address, or save it"),
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
        handler: Callable[[Call, Visitor], Awaitable[AnyResponse]],
        summary: str,
        *parameters: Parameter,
    ) -> Route:
        return Route(
            method=method,
            path=path,
            operation="page",
            handler=self._shown(handler),
            summary=summary,
            parameters=parameters,
            body=_FORM if method == "POST" else None,
            answers=_HTML,
            open=True,
            described=path == "/",  # the others are for people: described in the how-to, not in the API
        )

    def _shown(self, handler: Callable[[Call, Visitor], Awaitable[AnyResponse]]) -> Handler:
        async def handle(call: Call) -> AnyResponse:
            visitor = await self.sessions.visitor(call.request)
            try:
                self._check_host(call.request)
                return await handler(call, visitor)
            except WaypostError as error:
                return refusal(error, None if self._is_hosted(call.request) else visitor)

        return handle

    def _check_host(self, request: Request) -> None:
        """Under the domain of an agent there is the page of that agent, and nothing of the service around it."""
        if request.path not in ("/", CONNECT_PATH) and self._is_hosted(request):
            raise NotFound("Nothing is served at this path.", path="path", hint="See / for what is.")

    def _is_hosted(self, request: Request) -> bool:
        host = (request.header(b"host") or "").rsplit("]", 1)[-1].split(":", 1)[0]
        return bool(host) and self._registry.hosted(host) is not None

    def _document(self, registration: Registration) -> JsonObject:
        """As the well-known path serves it."""
        return read_rendered(self._parts.hosting.of(registration, self._registry.clock.now()).body)

    # --- Reading ---------------------------------------------------------------------------------

    async def home(self, call: Call, visitor: Visitor) -> AnyResponse:
        alone = await self._parts.hosted(call.request)
        if alone is not None:
            return self._landing(call, alone)
        code = call.request.param(SIGN_IN_PARAMETER)
        if code is not None:
            return see_other("/", self.sessions.redeem(code))
        asked = read_asked(call.request)
        found = await self._catalogue.found(asked, visitor)
        if call.request.param(_PART) == "found":
            return answer(call, found.encode(), visitor)
        changed = self._registry.catalogue.last_modified(audience(visitor.reader)) or 0.0
        sheet = self._catalogue_sheet(self._catalogue.search_box(asked), found, visitor, title=asked.text or "Agents")
        return answer(
            call, write(sheet), visitor, max(self._parts.service.changed_at, changed) if asked.is_plain else None
        )

    def _landing(self, call: Call, alone: Registration) -> AnyResponse:
        sheet = landing(alone, self._document(alone), self._registry.trust_of(alone))
        if alone.visibility != PUBLIC:
            return uncached(write(sheet), None)
        changed = self._parts.hosting.of(alone, self._registry.clock.now()).changed_at
        return answer(call, write(sheet), None, max(alone.changed_at, changed))

    def _catalogue_sheet(self, box: Html, found: Html, visitor: Visitor, title: str) -> Sheet:
        document = self._document(self._parts.service)
        main = el(
            "div",
            el("div", el("h1", "Agents"), self._catalogue.figures(visitor), box, class_="masthead"),
            found,
            el(
                "aside",
                el("h2", el("a", "Latest changes", href="/changes")),
                self._catalogue.feed(visitor),
                class_="changes",
                aria_label="Latest changes",
            ),
            self._own_card(document),
            class_="catalogue",
        )
        return Sheet(
            title=title,
            main=main,
            visitor=visitor,
            section="/",
            head=adp_head(document),
            notice=open_notice(self._parts.open_access),
        )

    def _own_card(self, document: JsonObject) -> Html:
        """The service is an agent too (ADP-35)."""
        record = self._parts.service.record
        card = el(
            "agent-card",
            el("p", record.description),
            capability_list(document, record.effective_status),
            connect_form("Connect your agent to this one"),
        )
        return el("details", el("summary", "About this service"), card, class_="about")

    async def agent(self, call: Call, visitor: Visitor) -> AnyResponse:
        request = call.request
        registration = await self._registry.get(visitor.reader, call.id)
        own = registration.sources[0].dialect if registration.sources else "profile"
        wanted = Wanted(
            dialect=read_dialect(request, default=own), before=request.param("from"), after=request.param("to")
        )
        main = await self._sheets.main(registration, visitor, wanted)
        sheet = Sheet(
            title=registration.record.name or registration.id,
            main=main,
            visitor=visitor,
            notice=saved_note(request.param("saved") or "") or open_notice(self._parts.open_access),
        )
        return answer(call, write(sheet), visitor)

    async def changes(self, call: Call, visitor: Visitor) -> AnyResponse:
        main = el(
            "div",
            el("h1", "Changes"),
            el(
                "p", "What was registered, updated and withdrawn, newest first; one line for each agent.", class_="lead"
            ),
            self._catalogue.feed(visitor, limits.PAGE_CHANGES_KEPT),
            el("p", "For programs: ", el("code", "GET /api/v1/watch"), class_="soft"),
            class_="narrow changes",
        )
        return answer(call, write(Sheet(title="Changes", main=main, visitor=visitor, section="/changes")), visitor)

    async def reference(self, call: Call, visitor: Visitor) -> AnyResponse:
        if not visitor.reads:
            require_scope(visitor.principal, SCOPE_READ)
        main = el("div", el("h1", "API reference"), Html(self._parts.reference()), class_="plain-page")
        return answer(call, write(Sheet(title="API", main=main, visitor=visitor, section="/reference")), visitor)

    async def stream(self, call: Call, visitor: Visitor) -> AnyResponse:
        """`GET /api/v1/watch` for whoever is signed in to the page: the API itself takes no cookies."""
        if not visitor.reads:
            require_scope(visitor.principal, SCOPE_READ)
        return await self._parts.watch.watch(msgspec.structs.replace(call, principal=visitor.reader))

    # --- Writing ---------------------------------------------------------------------------------

    async def register_form(self, call: Call, visitor: Visitor) -> AnyResponse:
        main = self._registering.form(Entered(), visitor) if visitor.writes else self._registering.stranger()
        return answer(call, write(Sheet(title="Register", main=main, visitor=visitor, section="/register")), visitor)

    async def register(self, call: Call, visitor: Visitor) -> AnyResponse:
        refuse_loops(call.request)
        form = await read_form(call.request, limits.PAGE_FORM_BYTES)
        self.sessions.check_form(call.request, form)
        require_scope(visitor.principal, SCOPE_WRITE)
        address = self._parts.origin.address(call.request.scope)
        if self._parts.rates is not None:
            self._parts.rates.write(visitor.principal, address)
        writer = msgspec.structs.replace(visitor, principal=msgspec.structs.replace(visitor.principal, address=address))
        return await self._registered(read_entered(form), writer)

    async def _registered(self, entered: Entered, visitor: Visitor) -> AnyResponse:
        pages = self._registering
        status = 200
        try:
            found = await pages.look(entered, visitor)
        except WaypostError as error:
            main, status = pages.form(entered, visitor, error=error), refusal(error, visitor).status
        else:
            receipts = [each.receipt for each in found.agents if each.receipt is not None]
            if entered.save and len(found.agents) == 1 and receipts and receipts[0].outcome != "held":
                return see_other(f"{agent_path(receipts[0].id)}?saved={receipts[0].outcome}")
            after = (
                [saved_notice(receipt) for receipt in receipts]
                if entered.save
                else pages.preview(found, entered, visitor)
            )
            main = pages.form(Entered() if entered.save else entered, visitor, after)
        return uncached(
            write(Sheet(title="Register", main=main, visitor=visitor, section="/register")), visitor, status
        )

    # --- In and out ------------------------------------------------------------------------------

    async def sign_in_form(self, call: Call, visitor: Visitor) -> AnyResponse:
        return answer(call, write(sign_in_page(visitor, own_path(call.request.param("next")))), visitor)

    async def sign_in(self, call: Call, visitor: Visitor) -> AnyResponse:
        check_same_site(call.request)
        form = await read_form(call.request)
        try:
            cookie = await self.sessions.enter(call.request, form.get("token", "").strip())
        except Unauthorized as error:
            return uncached(write(sign_in_page(visitor, own_path(form.get("next")), error)), visitor, 401)
        return see_other(own_path(form.get("next")), cookie)

    async def sign_out(self, call: Call, visitor: Visitor) -> AnyResponse:
        self.sessions.check_form(call.request, await read_form(call.request))
        if visitor.token_id:
            await self._end(visitor)
        return see_other("/", self.sessions.leave())

    async def _end(self, visitor: Visitor) -> None:
        """The token that was made for the session goes with it, in every process."""
        now = self._registry.clock.now()
        revocation = Revocation(kind="token", name=visitor.token_id, revoked_at=now, reason="signed out")
        await self._registry.trust.revoke(visitor.principal, revocation)

    # --- Connecting ------------------------------------------------------------------------------

    async def connect(self, call: Call, visitor: Visitor) -> AnyResponse:
        """Nothing is written and nobody is called, so it may be sent from anywhere."""
        registration = await self._parts.hosted(call.request) or self._parts.service
        form = await read_form(call.request)
        told = connection(parse_agent(form.get("from", "")), self._document(registration))
        if "application/json" in (call.request.header(b"accept") or ""):
            return json_response(told, headers=[(b"cache-control", b"no-store"), (b"vary", b"Host, Accept")])
        return uncached(write(connect_sheet(told)), None)
