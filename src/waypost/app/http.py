"""The HTTP application: routes, APIs with a prefix of their own, web pages, WebSockets, and forwarding in a follower."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from waypost import limits
from waypost.app.apis import Apis, HostedAgents, Security
from waypost.app.core import AppContext, Core, make_node_list
from waypost.app.messaging import Messaging
from waypost.app.outbound import Outbound
from waypost.app.service_keys import read_admin_token, service_keys_of
from waypost.model.principal import SCOPE_ADMIN, Principal
from waypost.net.clock import SystemClock
from waypost.registry.ports import Clock, KeyValueWrite
from waypost.server.api.a2a.api import A2A_ROUTES, A2aApi
from waypost.server.api.adp.agp.tunnel import NodeTunnel
from waypost.server.api.adp.agp.websocket import CHAT_PATH, AgpProxy, AgpWebSocketApp
from waypost.server.api.agent_framework.api import AGENT_FRAMEWORK_ROUTES, AfHandler, AfOptions, AgentFrameworkApi
from waypost.server.api.agent_framework.registry_directory import RegistryDirectory
from waypost.server.api.announce.api import ANNOUNCE_ROUTES, AnnounceApi
from waypost.server.api.announce.websocket import AnnounceWebSocket
from waypost.server.api.ard.api import ARD_ROUTES, ArdApi
from waypost.server.api.dns_aid.resolve import ResolveApi
from waypost.server.api.dns_aid.zone import ZoneApi, read_certificate
from waypost.server.api.mcp.api import MCP_ROUTES, McpApi, make_tools
from waypost.server.api.mcp.registry_api import MCP_REGISTRY_ROUTES, McpRegistryApi
from waypost.server.api.rest.agents import AgentsApi
from waypost.server.api.rest.api_keys import ApiKeysApi
from waypost.server.api.rest.audit import AuditApi
from waypost.server.api.rest.changes import HistoryApi, PendingChangesApi
from waypost.server.api.rest.imports import ImportApi
from waypost.server.api.rest.peers import PeersApi
from waypost.server.api.rest.reference import ReferenceApi
from waypost.server.api.rest.service import DoctorApi, MonitoringApi, ServiceApi, ServiceKeysApi
from waypost.server.api.rest.trust_store import TrustStoreApi
from waypost.server.api.rest.verification import DomainsApi, VerificationApi
from waypost.server.api.rtfs.api import RTFS_ROUTES, RtfsApi
from waypost.server.auth.authenticator import ADMIN
from waypost.server.auth.sessions import SIGN_IN_PARAMETER, WebSessions, make_session_cipher, make_sign_in_code
from waypost.server.http.app import AsgiRoot, HttpApp
from waypost.server.http.asgi import App
from waypost.server.http.follower import FollowerApp, LeaderCheck, MetricsReporter, UpstreamPool
from waypost.server.http.freshness import ConfirmReads, ConsistencyTokens, FreshReads
from waypost.server.http.routing import Route
from waypost.server.http.server import worker_socket_path
from waypost.server.renderer import DocumentReader
from waypost.server.web.routes import WebDependencies, WebPages
from waypost.server.well_known import WellKnownApi
from waypost.settings import Settings
from waypost.stores import ClusterStore

# For the API description: these APIs answer for whole path prefixes and do their own routing.

MOUNTED_ROUTES: list[Route] = [
    *A2A_ROUTES,
    *ANNOUNCE_ROUTES,
    *ARD_ROUTES,
    *MCP_ROUTES,
    *MCP_REGISTRY_ROUTES,
    *AGENT_FRAMEWORK_ROUTES,
    *RTFS_ROUTES,
]


_SIGN_IN_KIND = "sign-in code"


# --- HTTP -----------------------------------------------------------------------------------------


def make_monitoring(context: AppContext, core: Core, apis: Apis, messaging: Messaging) -> MonitoringApi:
    return MonitoringApi(
        core.registry,
        core.metrics,
        apis.watch,
        core.key_value_store,
        messaging.gauges,
        is_service_stopping=context.is_service_stopping,
    )


def make_http_app(
    context: AppContext,
    core: Core,
    outbound: Outbound,
    security: Security,
    hosted: HostedAgents,
    apis: Apis,
    messaging: Messaging,
    monitoring: MonitoringApi,
) -> HttpApp:
    registry, settings = core.registry, context.settings
    described: list[Route] = []  # filled below: the reference describes its own routes, too
    reference = ReferenceApi(core.renderer, context.started_at, described)
    pages = _make_pages(context, core, outbound, security, hosted, apis, reference)
    routes = [
        route
        for api in (
            pages,
            apis.well_known,
            apis.profile,
            messaging,
            AgentsApi(registry, core.renderer, security.rates, hosted.keys),
            ServiceApi(
                registry,
                context.mint,
                workers=context.slot.table.stats if context.slot is not None else None,
                nodes=make_node_list(context, core.store),
            ),
            ServiceKeysApi(registry, context.keys, settings.require_authentication),
            PendingChangesApi(registry),
            VerificationApi(registry),
            ImportApi(outbound.importer),
            DomainsApi(outbound.domains),
            ResolveApi(outbound.resolver, outbound.organisations, security.rates),
            AuditApi(core.audit_trail, core.published_log),
            HistoryApi(registry),
            ZoneApi(registry, hosted.documents, hosted.service, read_certificate(settings.tls_cert)),
            TrustStoreApi(registry),
            ApiKeysApi(registry.api_keys, settings.require_authentication),
            _make_doctor(context, core, security, apis),
            apis.watch,
            PeersApi(apis.peers),
            reference,
            monitoring,
        )
        for route in api.routes()
    ]
    described += (*routes, *MOUNTED_ROUTES)
    rtfs = RtfsApi(registry, anonymous_read=settings.anonymous_read, rates=security.rates)
    announce = AnnounceApi(
        registry,
        core.renderer,
        anonymous_read=settings.anonymous_read,
        rates=security.rates,
        answer_rpc=rtfs.answer_calls,
    )
    ard = ArdApi(registry, core.renderer, apis.peers)
    tools = make_tools(registry, DocumentReader(registry, core.renderer), apis.profile.find, ard.search)
    mcp = McpApi(tools, anonymous_read=settings.anonymous_read, rates=security.rates)
    return HttpApp(
        routes,
        [
            _make_agent_framework(context, core, apis),
            rtfs,
            announce,
            ard,
            mcp,
            A2aApi(apis.profile.find),
            McpRegistryApi(registry, core.renderer),
        ],
        security.authenticator,
        core.metrics,
        anonymous_read=settings.anonymous_read,
        open_access=settings.open,
        rates=security.rates,
        origin=security.origin,
        hosts=security.hosts,
        error_page=pages.error_page,
        base_url=context.base_url,
        request_log=security.request_log,
        described=MOUNTED_ROUTES,
    )


def _make_doctor(context: AppContext, core: Core, security: Security, apis: Apis) -> DoctorApi:
    issuers = security.issuers
    return DoctorApi(
        core.registry,
        context.settings,
        lambda: issuers.unavailable() if issuers is not None else (),
        core.models.are_available,
        cast(ClusterStore, core.store).inspect_database if context.settings.is_cluster and context.writes else None,
        apis.peers.inspect,
    )


def _make_agent_framework(context: AppContext, core: Core, apis: Apis) -> AgentFrameworkApi:
    directory = RegistryDirectory(core.registry, core.renderer)
    options = AfOptions(
        base_url=context.base_url,
        legacy=True,
        choose_card=_card_chooser(directory, apis.well_known),
        full_cards=True,
        a2a_card=lambda request, seen: "/.well-known/agent-card.json",
    )
    return AgentFrameworkApi(AfHandler(directory, options, now=context.clock.now))


def _card_chooser(directory: RegistryDirectory, well_known: WellKnownApi) -> Any:
    async def choose(request: Any, principal: Principal) -> Any:
        """The card of an origin: that of the hosted agent, else of the service."""
        return directory.card(await well_known.find_by_host(request) or well_known.service)

    return choose


# --- Web pages ------------------------------------------------------------------------------------


def _make_pages(
    context: AppContext,
    core: Core,
    outbound: Outbound,
    security: Security,
    hosted: HostedAgents,
    apis: Apis,
    reference: ReferenceApi,
) -> WebPages:
    mint = context.mint
    sessions = WebSessions(
        make_session_cipher(lambda: [key.private_bytes_raw() for key in context.token_keys()], context.admin_token),
        security.authenticator,
        lambda: mint(ADMIN.subject or "", (SCOPE_ADMIN,), limits.PAGE_SESSION_SECONDS, secrets.token_hex(8))[0],
        context.clock.wall,
        security.hosts,
        base_url=context.base_url,
        open_access=context.settings.open,
        anonymous_read=context.settings.anonymous_read,
        claim_code=_make_code_claim(core) if context.settings.is_cluster else None,
    )
    return WebPages(
        WebDependencies(
            registry=core.registry,
            renderer=core.renderer,
            service=hosted.service,
            hosting=hosted.documents,
            hosted=apis.well_known.find_by_host,
            sessions=sessions,
            importer=outbound.importer,
            watch=apis.watch,
            reference=reference.values,
            peers=apis.peers,
            workers=context.slot.table.stats if context.slot is not None else None,
            nodes=make_node_list(context, core.store),
            open_access=context.settings.open,
            rates=security.rates,
            origin=security.origin,
        )
    )


def _make_code_claim(core: Core) -> Callable[[str, float], Awaitable[bool]]:
    """In a cluster, a sign-in code is used once on all nodes."""

    async def claim(code: str, until: float) -> bool:
        write = KeyValueWrite(kind=_SIGN_IN_KIND, key=code, value=b"1", expires_at=until, expected=None)
        return await core.key_value_store.commit([write], core.registry.clock.now())

    return claim


def sign_in_link(settings: Settings, base_url: str, *, clock: Clock | None = None) -> str | None:
    """A link that signs its first visitor in as admin; None if the service runs without authentication."""
    if settings.open:
        return None
    clock = clock or SystemClock()
    keys = service_keys_of(settings).token
    cipher = make_session_cipher(
        lambda: [key.private_bytes_raw() for key in keys.accepted(clock.wall())], read_admin_token(settings.data)
    )
    code = make_sign_in_code(cipher, clock.wall(), secrets.token_bytes(16))
    return f"{base_url}/?{SIGN_IN_PARAMETER}={code}"


# --- Follower process -----------------------------------------------------------------------------


class FollowerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a follower, which answers reads itself and forwards writes to the leader."""

    app: FollowerApp
    upstream: UpstreamPool
    reporter: MetricsReporter


def make_read_check(settings: Settings, core: Core) -> ConfirmReads | None:
    """How reads of a node are kept current; None for a single service, and in a worker process, which asks its leader."""
    if not settings.is_cluster or core.registry.follower is not None:
        return None
    store = cast(ClusterStore, core.store)
    return store.confirm_reads if settings.reads == "strong" else store.estimate_staleness


def make_follower(context: AppContext, core: Core, apis: Apis, http_app: HttpApp) -> FollowerParts | None:
    follower, slot = core.registry.follower, context.slot
    if follower is None or slot is None:
        return None
    upstream = UpstreamPool(worker_socket_path(context.settings.data))
    return FollowerParts(
        app=FollowerApp(
            http_app,
            follower,
            upstream,
            ConsistencyTokens(core.registry.cursors),
            LeaderCheck(upstream).confirm if context.settings.is_cluster else None,
        ),
        upstream=upstream,
        reporter=MetricsReporter(core.metrics, upstream, slot.number),
    )


# --- WebSockets -----------------------------------------------------------------------------------


def make_asgi_root(
    context: AppContext,
    core: Core,
    security: Security,
    apis: Apis,
    messaging: Messaging,
    http_app: HttpApp,
    follower: FollowerParts | None,
    confirm_reads: ConfirmReads | None,
) -> AsgiRoot:
    http: App = http_app if follower is None else follower.app
    if confirm_reads is not None:
        position = None
        if context.settings.reads == "bounded":
            store = cast(ClusterStore, core.store)
            position = lambda: store.position  # noqa: E731
        http = FreshReads(http, confirm_reads, ConsistencyTokens(core.registry.cursors), position)
    announce = AnnounceWebSocket(
        http,
        http_app.refuse,
        core.registry,
        core.renderer,
        security.authenticator,
        security.hosts,
        core.metrics,
        anonymous_read=context.settings.anonymous_read,
        rates=security.rates,
        origin=security.origin,
    )
    chat: App
    if follower is None:
        chat = AgpWebSocketApp(
            messaging.agents,
            apis.invitation_store,
            core.metrics,
            context.clock.now,
            security.authenticator,
            security.hosts,
            security.origin,
            http_app.refuse,
            tunnel=NodeTunnel(core.registry.cursors, context.clock.now) if context.settings.is_cluster else None,
        )
    else:  # one process has all conversations
        chat = AgpProxy(worker_socket_path(context.settings.data))
    forwarded = frozenset() if follower is None else frozenset((CHAT_PATH,))
    return AsgiRoot(http, {"/ws": announce, CHAT_PATH: chat}, security.request_log, forwarded)
