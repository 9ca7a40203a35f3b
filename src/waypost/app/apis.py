"""Authentication, hosted agents, and the APIs that other parts of the service use as well."""

from __future__ import annotations

import socket

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.app.core import AppContext, Core
from waypost.app.outbound import Outbound
from waypost.app.peers import make_peers
from waypost.app.service_keys import KeyRing
from waypost.errors import FetchFailed
from waypost.federation.service import PeerService
from waypost.messaging.invitations import InvitationStore
from waypost.model.principal import PUBLIC
from waypost.net.outbound import OutboundClient
from waypost.registry.ports import Clock, OutboundSender
from waypost.server.api.adp.invitations import InvitationApi
from waypost.server.api.profile.api import ProfileApi
from waypost.server.api.rest.changes import WatchApi
from waypost.server.auth.authenticator import Authenticator, make_authenticator, make_issuers, make_rates
from waypost.server.auth.callers import RateLimits, TrustedHosts, TrustedProxies
from waypost.server.auth.issuers import FetchKeys, Issuers
from waypost.server.hosted_agents.documents import CapabilityVersions, HostedDocuments
from waypost.server.hosted_agents.keys import HostedKeys, ReplacedKey
from waypost.server.hosted_agents.service_agent import ServiceAgent
from waypost.server.http.request_log import RequestLog
from waypost.server.renderer import DocumentReader
from waypost.server.well_known import WellKnownApi
from waypost.trust import jwt
from waypost.trust.keys.private_key import PrivateKey, from_native_private


class Security(msgspec.Struct, frozen=True, kw_only=True):
    authenticator: Authenticator
    issuers: Issuers | None  # external ones
    rates: RateLimits
    origin: TrustedProxies  # finds the address of the caller behind proxies
    request_log: RequestLog
    hosts: TrustedHosts  # host names and origins that are the service's own


def make_security(context: AppContext, core: Core, client: OutboundClient) -> Security:
    settings, clock = context.settings, context.clock
    issuers = make_issuers(settings, _make_key_fetch(client), clock)
    authenticator = make_authenticator(
        settings,
        jwt.TokenVerifier(
            lambda: [key.public_key() for key in context.token_keys()],
            issuer=settings.issuer,
            audience=settings.audience,
        ),
        context.admin_token,
        clock,
        issuers=issuers,
        credentials=core.registry.credentials,
        nodes=context.count_nodes,
        keys_version=context.token_keys_version,
    )
    return Security(
        authenticator=authenticator,
        issuers=issuers,
        rates=make_rates(settings, clock, context.count_nodes),
        request_log=RequestLog(logs_all=settings.access_log),
        origin=TrustedProxies(settings.trusted_proxies),
        hosts=_make_trusted_hosts(context, core),
    )


def _make_trusted_hosts(context: AppContext, core: Core) -> TrustedHosts:
    settings, machine = context.settings, socket.gethostname()

    def is_hosted(domain: str) -> bool:
        """A domain of an agent that is not public is unknown to callers who must authenticate."""
        entry = core.registry.hosted(domain)
        return entry is not None and (settings.open or entry.visibility == PUBLIC)

    names = (settings.host, machine, machine.partition(".")[0], *settings.allowed_hosts)
    return TrustedHosts(context.base_url, names, settings.allowed_origins, is_hosted)


def _make_key_fetch(client: OutboundClient) -> FetchKeys:
    async def fetch(url: str) -> bytes:
        response = await client.fetch(url, "jwks")
        if not response.is_success:
            raise FetchFailed(
                f"The issuer answered with status {response.status}.", path="jwks", hint="See the log of the issuer."
            )
        return response.body

    return fetch


class HostedAgents(msgspec.Struct, frozen=True, kw_only=True):
    """The service as an agent, and the agents whose documents it serves under their domains."""

    service: ServiceAgent
    keys: HostedKeys
    documents: HostedDocuments


class OwnIdentity:
    """The identity key of the service, for the documents and messages that it signs."""

    def __init__(self, ring: KeyRing[Ed25519PrivateKey], clock: Clock) -> None:
        self._ring = ring
        self._clock = clock

    def current(self) -> PrivateKey:
        return from_native_private(self._ring.current())

    def replaced(self) -> list[ReplacedKey]:
        retired = self._ring.retired(self._clock.wall())
        return [ReplacedKey(from_native_private(each.key), each.until) for each in retired]

    @property
    def changed_at(self) -> float:
        return self._ring.changed_at


def make_hosted_agents(context: AppContext, core: Core) -> HostedAgents:
    data, started_at = context.settings.data, context.started_at
    identity = OwnIdentity(context.keys.identity, context.clock)
    service = ServiceAgent(context.base_url, context.host, identity, started_at)
    keys = HostedKeys(data, identity, context.host)
    documents = HostedDocuments(core.renderer, keys, service, CapabilityVersions(data))
    return HostedAgents(service=service, keys=keys, documents=documents)


class Apis(msgspec.Struct, frozen=True, kw_only=True):
    """APIs that more than the route table needs."""

    profile: ProfileApi
    watch: WatchApi
    well_known: WellKnownApi
    invitations: InvitationApi
    invitation_store: InvitationStore
    peers: PeerService


def make_apis(
    context: AppContext,
    core: Core,
    outbound: Outbound,
    security: Security,
    hosted: HostedAgents,
    peer_sender: OutboundSender,
) -> Apis:
    registry, renderer = core.registry, core.renderer
    invitation_store = InvitationStore(core.key_value_store, context.clock.now)
    invitations = InvitationApi(
        invitation_store,
        registry,
        hosted.documents,
        hosted.keys,
        outbound.client,
        renderer.base_url.rstrip("/"),
        security.authenticator,
    )
    identity = OwnIdentity(context.keys.identity, context.clock)
    peers = make_peers(
        context,
        core,
        outbound,
        peer_sender,
        identity.current,
        lambda: [replaced.key for replaced in identity.replaced()],
    )
    return Apis(
        profile=ProfileApi(registry, DocumentReader(registry, renderer), peers.asker),
        watch=WatchApi(registry, security.authenticator.authenticate, security.origin),
        well_known=WellKnownApi(
            registry,
            renderer,
            hosted.service,
            hosted.documents,
            invitations.invited,
            [issuer.issuer for issuer in context.settings.external_issuers],
        ),
        invitations=invitations,
        invitation_store=invitation_store,
        peers=peers,
    )
