"""The service as an agent, and the agents whose documents it writes for their domains."""

from __future__ import annotations

import msgspec

from waypost.app.context import AppContext
from waypost.app.core import Core
from waypost.app.messaging_services import MessagingServices
from waypost.app.outbound import Outbound
from waypost.errors import FetchFailed
from waypost.messaging.peers import PeerKeyChain, PinnedKeys, RegisteredKeys
from waypost.model.registration import Registration
from waypost.net.outbound import OutboundClient
from waypost.server.api.adp.agp.agents import AgpAgents
from waypost.server.api.adp.agp.websocket import AgpWebSocketApp
from waypost.server.api.adp.domain_lookup import DomainKeys, DomainTaskEndpoints, HostedPeerKeys
from waypost.server.api.profile.api import ProfileApi
from waypost.server.api.rest.agents import AgentsApi
from waypost.server.api.rest.changes import WatchApi
from waypost.server.api.rest.monitoring import MonitoringApi
from waypost.server.api.rest.reference import ReferenceApi
from waypost.server.auth.authenticator import ADMIN, Authenticator, make_authenticator, make_issuers, make_rates
from waypost.server.auth.issuers import FetchKeys, Issuers
from waypost.server.auth.rate_limits import RateLimits
from waypost.server.auth.trusted_hosts import TrustedHosts, TrustedProxies
from waypost.server.hosted_agents.documents import CapabilityVersions, HostedDocuments
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.hosted_agents.service_agent import service_record, service_registration
from waypost.server.renderer import DocumentReader
from waypost.server.well_known import WellKnownApi
from waypost.trust import jwt


class HostedAgents(msgspec.Struct, frozen=True, kw_only=True):
    itself: Registration  # the service's own
    keys: HostedKeys
    hosting: HostedDocuments


def make_hosted_agents(ground: AppContext, core: Core) -> HostedAgents:
    data, started_at = ground.settings.data, ground.started_at
    record = service_record(ground.base_url, ground.host, ground.identity_key.public_key(), started_at)
    itself = service_registration(record, started_at)
    keys = HostedKeys(data, ground.identity_key, ground.host)
    return HostedAgents(
        itself=itself, keys=keys, hosting=HostedDocuments(core.renderer, keys, itself, CapabilityVersions(data))
    )


# ---- Who stands at the door: who calls, from where, by which name, and how often.


class Security(msgspec.Struct, frozen=True, kw_only=True):
    authenticator: Authenticator
    issuers: Issuers | None  # outside ones
    rates: RateLimits
    origin: TrustedProxies  # the caller's address, behind proxies
    hosts: TrustedHosts  # names by which a WebSocket may call


def make_security(ground: AppContext, core: Core, ways_out: Outbound) -> Security:
    settings, clock = ground.settings, ground.clock
    issuers = make_issuers(settings, _key_fetcher(ways_out.outgoing), clock)
    authenticator = make_authenticator(
        settings,
        jwt.TokenVerifier(ground.token_key.public_key(), issuer=settings.issuer, audience=settings.audience),
        ground.admin_token,
        clock,
        issuers=issuers,
        is_revoked=core.registry.trust.is_revoked,
    )
    return Security(
        authenticator=authenticator,
        issuers=issuers,
        rates=make_rates(settings, clock),
        origin=TrustedProxies(settings.trusted_proxies),
        hosts=TrustedHosts(ground.base_url, settings.host, settings.allowed_hosts, settings.allowed_origins),
    )


def _key_fetcher(outgoing: OutboundClient) -> FetchKeys:
    """How the keys of an outside issuer are fetched: as everything else is."""

    async def fetch(url: str) -> bytes:
        found = await outgoing.fetch(url, "jwks")
        if not found.is_success:
            raise FetchFailed(f"The issuer answered {found.status}.", path="jwks", hint="See the log of the issuer.")
        return found.body

    return fetch


# ---- The faces that other parts ask, too. Those that only answer requests are made in `routes.py`.


class Apis(msgspec.Struct, frozen=True, kw_only=True):
    documents: WellKnownApi
    own: AgentsApi
    profile: ProfileApi
    watch: WatchApi
    operator: MonitoringApi
    reference: ReferenceApi


def make_apis(ground: AppContext, core: Core, hosted: HostedAgents, guards: Security) -> Apis:
    registry, renderer = core.registry, core.renderer
    own = AgentsApi(registry, renderer, ground.mint)
    own.keys, own.rates = hosted.keys, guards.rates
    own.workers = ground.place.board.told if ground.place is not None else None
    watch = WatchApi(registry)
    return Apis(
        documents=WellKnownApi(registry, renderer, hosted.itself, hosted.hosting),
        own=own,
        profile=ProfileApi(registry, DocumentReader(registry, renderer)),
        watch=watch,
        operator=MonitoringApi(registry, core.metrics, watch, core.key_value_store),
        reference=ReferenceApi(renderer, ground.started_at),
    )


# ---- What comes after discovery: whose key is whose, conversations, tasks, swarms, invitations.


class Messaging(msgspec.Struct, frozen=True, kw_only=True):
    conversations: AgpWebSocketApp
    meeting: MessagingServices


def make_messaging(
    ground: AppContext, core: Core, ways_out: Outbound, hosted: HostedAgents, guards: Security, faces: Apis
) -> Messaging:
    registry, keeper, keys = core.registry, core.key_value_store, hosted.keys
    peers = _make_peers(ground, core, ways_out)
    agents = AgpAgents(registry, keeper, keys, peers, hosted.itself.record.id, faces.profile.find)
    conversations = AgpWebSocketApp(agents, core.metrics, registry.clock.now)
    meeting = MessagingServices(
        registry,
        keeper,
        ways_out.outgoing,
        keys,
        core.renderer,
        hosted.itself,
        peers,
        faces.profile.find,
        hosted.hosting,
        DomainTaskEndpoints(ways_out.resolver),
    )
    peers.add(HostedPeerKeys(registry, keys))
    peers.add(meeting.invitations)
    meeting.connect_agp(conversations)
    meeting.guard(guards.authenticator, faces.documents)
    faces.operator.meeting = meeting.figures
    return Messaging(conversations=conversations, meeting=meeting)


def _make_peers(ground: AppContext, core: Core, ways_out: Outbound) -> PeerKeyChain:
    """Who is asked for the key of an agent; the first who knows it is believed."""
    own_dns = ground.settings.resolver != "system"
    return PeerKeyChain(
        (
            DomainKeys(ways_out.resolver, everywhere=own_dns),
            PinnedKeys(core.registry),
            RegisteredKeys(core.registry, ADMIN),
        )
    )
