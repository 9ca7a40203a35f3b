"""Everything that contacts other hosts: the HTTP client, domain lookups, imports, health checks, the LAN."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from waypost import limits
from waypost.app.core import AppContext, Core
from waypost.domains.importer import DomainImporter, DomainRechecks
from waypost.domains.organisation_index import OrganisationReader
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.errors import FetchFailed
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.net.url import origin_of
from waypost.registry.domain_claims import DomainClaimOptions, DomainClaims
from waypost.registry.importer import Importer
from waypost.registry.jobs.health_checks import HealthChecks, HealthOptions
from waypost.registry.jobs.periodic import Job
from waypost.server.api.announce.lan import LanBridge
from waypost.transports.factory import TransportContext, make_transports
from waypost.transports.port import Transport

_RECHECK_SECONDS = 60.0  # the longest pause between two looks for due rechecks


class Outbound(msgspec.Struct, frozen=True, kw_only=True):
    client: OutboundClient
    resolver: DomainResolver  # from domains to agents
    organisations: OrganisationReader
    importer: Importer
    domains: DomainClaims
    lan: LanBridge | None
    jobs: Sequence[Job]  # of the process that writes


def make_client(context: AppContext) -> OutboundClient:
    settings, port = context.settings, context.port
    own = ((settings.host, settings.port if port is None else port),)
    options = OutboundOptions.of(settings)
    return OutboundClient(msgspec.structs.replace(options, own=own, own_origin=origin_of(context.base_url)))


def make_outbound(context: AppContext, core: Core, client: OutboundClient) -> Outbound:
    settings, clock, registry = context.settings, context.clock, core.registry
    resolver = DomainResolver(client, client, clock, ResolveOptions(legacy_names=settings.legacy_names))
    rechecks = DomainRechecks(registry, resolver, seconds=settings.agent_recheck_seconds)
    claim_options = DomainClaimOptions(service=context.host, recheck_seconds=settings.domain_recheck_seconds)
    domains = DomainClaims(registry, client, claim_options)
    lan = _make_lan(context, core, client)
    jobs = [
        Job("recheck agents of domains", _pause(settings.agent_recheck_seconds), rechecks.recheck),
        Job("recheck domains", _pause(settings.domain_recheck_seconds), domains.recheck),
    ]
    if lan is not None:
        jobs.append(Job("publish on the LAN", limits.MDNS_TTL_SECONDS / 2, lan.publish, is_chore=False))
    if context.checks_health:
        jobs.append(_make_health_checks(context, core, client).job)
    return Outbound(
        client=client,
        resolver=resolver,
        organisations=OrganisationReader(client, client, clock, follow_signed=settings.trust_external_index),
        importer=DomainImporter(registry, client, resolver, rechecks, foreign_index=settings.trust_external_index),
        domains=domains,
        lan=lan,
        jobs=jobs if context.writes else (),
    )


def _pause(recheck_seconds: float) -> float:
    return min(_RECHECK_SECONDS, recheck_seconds / 8)


def _make_health_checks(context: AppContext, core: Core, client: OutboundClient) -> HealthChecks:
    settings = context.settings
    is_gentle = settings.health_checks is None
    options = HealthOptions(
        seconds=settings.health_check_seconds or (limits.HEALTH_GENTLE_SECONDS if is_gentle else limits.HEALTH_SECONDS),
        evict_seconds=settings.health_evict_seconds,
        delists=settings.health_delist,
        is_gentle=is_gentle,
    )
    checks = HealthChecks(core.registry, client, options)
    core.metrics.add_gauge("health_watched", "Endpoints of agents that are checked.", lambda: len(checks.watched))
    core.metrics.add_gauge("health_checks", "Checks of endpoints that were made.", lambda: checks.checks)
    return checks


# --- The LAN and the message bus ------------------------------------------------------------------


def _make_lan(context: AppContext, core: Core, client: OutboundClient) -> LanBridge | None:
    transports = _make_transports(context, client) if context.writes else []
    if not transports:
        return None
    settings = context.settings
    lan = LanBridge(
        core.registry,
        core.renderer,
        transports,
        anonymous_read=settings.anonymous_read or settings.open,
        publish=settings.mdns_publish,
    )
    lan.show(core.metrics)
    return lan


def _make_transports(context: AppContext, client: OutboundClient) -> list[Transport]:
    transport_context = TransportContext(
        clock=context.clock,
        pointer=lambda agent_id: f"{context.base_url}/agents/{agent_id}",
        fetch=_make_pointer_fetch(client),
    )
    return make_transports(context.settings, transport_context)


def _make_pointer_fetch(client: OutboundClient) -> Callable[[str], Coroutine[Any, Any, bytes]]:
    """Fetches an announcement that an mDNS record only points at."""

    async def fetch(url: str) -> bytes:
        response = await client.fetch(url, "card")
        if not response.is_success:
            raise FetchFailed(
                f"The announced URL answered with status {response.status}.",
                path="mdns",
                hint="Check the agent that announces it.",
            )
        return response.body

    return fetch
