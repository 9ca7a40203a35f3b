"""The pages for people, and the link that signs somebody in."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from waypost import limits
from waypost.app.apis import Apis, HostedAgents, Messaging, Security
from waypost.app.context import AppContext, read_admin_token, read_key
from waypost.app.core import Core
from waypost.app.outbound import Outbound
from waypost.model.principal import SCOPE_ADMIN, Principal
from waypost.net.clock import SystemClock
from waypost.registry.audit_trail import AuditTrail
from waypost.registry.ports import Clock
from waypost.server.api.adp.agp.websocket import CHAT_PATH
from waypost.server.api.agent_framework.api import AfHandler, AfOptions, AgentFrameworkApi
from waypost.server.api.agent_framework.registry_directory import RegistryDirectory
from waypost.server.api.announce.api import AnnounceApi
from waypost.server.api.announce.websocket import AnnounceWebSocket
from waypost.server.api.ard.api import ArdApi
from waypost.server.api.dns_aid.resolve import ResolveApi
from waypost.server.api.dns_aid.zone import ZoneApi, read_certificate
from waypost.server.api.mcp.api import McpApi, make_tools
from waypost.server.api.mounted_routes import MOUNTED_ROUTES
from waypost.server.api.rest.agents import SharingApi
from waypost.server.api.rest.audit import AuditApi
from waypost.server.api.rest.changes import HistoryApi, PendingChangesApi
from waypost.server.api.rest.domains import DomainsApi
from waypost.server.api.rest.imports import ImportApi
from waypost.server.api.rest.monitoring import DoctorApi
from waypost.server.api.rest.trust_store import TrustStoreApi
from waypost.server.api.rest.verification import AgentHealthApi, VerificationApi
from waypost.server.api.rtfs.api import RtfsApi
from waypost.server.auth.authenticator import ADMIN
from waypost.server.auth.sessions import SIGN_IN_PARAMETER, WebSessions, make_session_cipher, make_sign_in_code
from waypost.server.http.app import HttpApp
from waypost.server.http.asgi import App
from waypost.server.http.routing import Route
from waypost.server.http.server import worker_socket_path
from waypost.server.http.websockets import WebSocketRouter
from waypost.server.renderer import DocumentReader
from waypost.server.web.routes import WebDependencies, WebPages
from waypost.server.well_known import WellKnownApi
from waypost.settings import TOKEN_KEY_FILE, Settings
from waypost.trust.keys import ed25519


def make_page(
    ground: AppContext, core: Core, ways_out: Outbound, hosted: HostedAgents, guards: Security, faces: Apis
) -> WebPages:
    page = WebPages(
        WebDependencies(
            registry=core.registry,
            renderer=core.renderer,
            service=hosted.itself,
            hosting=hosted.hosting,
            hosted=faces.documents.hosted,
            sessions=_make_sessions(ground),
            importer=ways_out.importer,
            watch=faces.watch,
            reference=faces.reference.rows,
            open_access=ground.settings.open,
        )
    )
    page.guard(guards.authenticator, guards.rates, guards.origin)
    return page


def _make_sessions(ground: AppContext) -> WebSessions:
    mint = ground.mint
    return WebSessions(
        make_session_cipher(ground.token_key.private_bytes_raw(), ground.admin_token),
        lambda: mint(ADMIN.subject or "", (SCOPE_ADMIN,), limits.PAGE_SESSION_SECONDS, secrets.token_hex(8))[0],
        ground.clock.now,
        base_url=ground.base_url,
        open_access=ground.settings.open,
        anonymous_read=ground.settings.anonymous_read,
    )


def sign_in_link(settings: Settings, base_url: str, *, clock: Clock | None = None) -> str | None:
    """An address that signs its first visitor in as admin; None where everybody may do everything."""
    if settings.open:
        return None
    seal = make_session_cipher(
        read_key(settings.data / TOKEN_KEY_FILE).private_bytes_raw(), read_admin_token(settings.data)
    )
    code = make_sign_in_code(seal, (clock or SystemClock()).now(), secrets.token_bytes(16))
    return f"{base_url}/?{SIGN_IN_PARAMETER}={code}"


# ---- All routes that the faces have, but for those that own whole prefixes (`service.py`).


def make_routes(
    ground: AppContext,
    core: Core,
    ways_out: Outbound,
    hosted: HostedAgents,
    guards: Security,
    faces: Apis,
    talks: Messaging,
) -> list[Route]:
    registry = core.registry
    routes = [
        route
        for face in (
            make_page(ground, core, ways_out, hosted, guards, faces),
            faces.documents,
            faces.profile,
            talks.meeting,
            talks.conversations,
            faces.own,
            PendingChangesApi(registry),
            VerificationApi(registry),
            SharingApi(registry),
            ImportApi(ways_out.importer),
            DomainsApi(ways_out.domains),
            _make_resolving(ways_out, guards),
            AuditApi(_make_trail(ground, core)),
            HistoryApi(registry),
            AgentHealthApi(registry),
            ZoneApi(registry, hosted.hosting, hosted.itself, read_certificate(ground.settings.tls_cert)),
            TrustStoreApi(registry),
            _make_doctor(ground, core, guards),
            faces.watch,
            faces.reference,
            faces.operator,
        )
        for route in face.routes()
    ]
    faces.reference.described = [*routes, *MOUNTED_ROUTES]
    return routes


def _make_resolving(ways_out: Outbound, guards: Security) -> ResolveApi:
    face = ResolveApi(ways_out.resolver, ways_out.organisations)
    face.rates = guards.rates
    return face


def _make_trail(ground: AppContext, core: Core) -> AuditTrail:
    key = ground.identity_key
    return AuditTrail(core.store, key.public_key().public_bytes_raw(), partial(ed25519.sign, key))


def _make_doctor(ground: AppContext, core: Core, guards: Security) -> DoctorApi:
    issuers = guards.issuers
    return DoctorApi(core.registry, ground.settings, lambda: issuers.silent() if issuers else (), core.models.are_there)


# ---- What answers over HTTP: the routes, and the faces that own whole prefixes and have an error style of their own.


def make_service(ground: AppContext, core: Core, guards: Security, faces: Apis, routes: list[Route]) -> HttpApp:
    anonymous_read, rates = ground.settings.anonymous_read, guards.rates
    rtfs = RtfsApi(core.registry, anonymous_read=anonymous_read, rates=rates)
    tools = make_tools(core.registry, DocumentReader(core.registry, core.renderer), faces.profile.find)
    return HttpApp(
        routes,
        [
            _make_af(ground, core, faces),
            rtfs,
            AnnounceApi(
                core.registry, core.renderer, anonymous_read=anonymous_read, rates=rates, answer_rpc=rtfs.answer_calls
            ),
            ArdApi(core.registry, core.renderer),
            McpApi(tools, anonymous_read=anonymous_read, rates=rates),
        ],
        guards.authenticator,
        core.metrics,
        anonymous_read=anonymous_read,
        open_access=ground.settings.open,
        rates=rates,
        origin=guards.origin,
    )


def _make_af(ground: AppContext, core: Core, faces: Apis) -> AgentFrameworkApi:
    directory = RegistryDirectory(core.registry, core.renderer)
    options = AfOptions(
        base_url=ground.base_url,
        legacy=True,
        choose_card=_card_chooser(directory, faces.documents),
        full_cards=True,
        a2a_card=lambda request, seen: "/.well-known/agent-card.json",
    )
    return AgentFrameworkApi(AfHandler(directory, options, now=ground.clock.now))


def _card_chooser(directory: RegistryDirectory, documents: WellKnownApi) -> Any:
    async def choose(request: Any, principal: Principal) -> Any:
        """The card of an origin: the hosted agent's, else the service's own."""
        return directory.card(await documents.hosted(request) or documents.service)

    return choose


# ---- What answers on WebSockets: announcements, and conversations.


def make_sockets(
    ground: AppContext, core: Core, guards: Security, talks: Messaging, service: HttpApp
) -> AnnounceWebSocket:
    """Those of announcements; the service is told of both."""
    sockets = AnnounceWebSocket(
        core.registry,
        core.renderer,
        guards.authenticator,
        guards.hosts,
        core.metrics,
        service.refuse,
        anonymous_read=ground.settings.anonymous_read,
        rates=guards.rates,
        origin=guards.origin,
    )
    talks.conversations.guard(guards.authenticator, guards.hosts, guards.origin, service.refuse)
    chats = talks.conversations if ground.writes else _make_tunnel(ground)
    service.sockets = WebSocketRouter({"/ws": sockets, CHAT_PATH: chats})
    return sockets


def _make_tunnel(ground: AppContext) -> App:
    """One process holds all conversations; the others pass theirs on to it."""
    from waypost.server.api.adp.agp.websocket import (
        AgpProxy,  # late: a client of WebSockets, which only a process that follows is
    )

    return AgpProxy(worker_socket_path(ground.settings.data))
