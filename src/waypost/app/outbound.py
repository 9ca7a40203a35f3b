"""The one way out of this process, and what goes it: fetching, domains, their proofs and their agents."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from waypost.app.context import AppContext
from waypost.app.core import Core
from waypost.errors import FetchFailed
from waypost.lazy import lazy_module, lazy_object
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.net.url import origin_of
from waypost.registry.domain_claims import DomainClaimOptions, DomainClaims
from waypost.registry.importer import Importer
from waypost.registry.jobs.periodic import Job, Work
from waypost.server.api.announce.lan import LanBridge

if TYPE_CHECKING:  # `late_part`: nobody waits at a start for what asks the DNS
    from waypost.domains.organisation_index import OrganisationReader
    from waypost.domains.recheck import DomainRechecks
    from waypost.domains.resolver import DomainResolver

if TYPE_CHECKING:
    from waypost.transports import factory
    from waypost.transports.bus import connection
    from waypost.transports.port import Transport
else:
    connection, factory = lazy_module("waypost.transports.bus.connection"), lazy_module("waypost.transports.factory")


_RECHECK_SECONDS = 60.0  # how often it is asked whether a proof of a domain is due


class Outbound(msgspec.Struct, frozen=True, kw_only=True):
    outgoing: OutboundClient
    resolver: DomainResolver  # from domains to agents
    organisations: OrganisationReader
    importer: Importer
    domains: DomainClaims  # proofs of them
    jobs: list[Job]  # of the process that writes


def make_outbound(ground: AppContext, core: Core, outgoing: OutboundClient) -> Outbound:
    resolver = lazy_object(lambda: _make_resolver(ground, outgoing))
    importer, recheck = _make_importer(ground, core, outgoing, resolver)
    domains = _make_domains(ground, core, outgoing)
    settings = ground.settings
    return Outbound(
        outgoing=outgoing,
        resolver=resolver,
        organisations=lazy_object(lambda: _make_organisations(ground, outgoing)),
        importer=importer,
        domains=domains,
        jobs=[
            Job("recheck agents of domains", min(_RECHECK_SECONDS, settings.agent_recheck_seconds / 8), recheck),
            Job("recheck domains", min(_RECHECK_SECONDS, settings.domain_recheck_seconds / 8), domains.recheck),
        ],
    )


def make_outgoing(ground: AppContext) -> OutboundClient:
    settings, port = ground.settings, ground.port
    own = ((settings.host, settings.port if port is None else port),)
    options = OutboundOptions.of(settings)
    return OutboundClient(msgspec.structs.replace(options, own=own, own_origin=origin_of(ground.base_url)))


def _make_resolver(ground: AppContext, outgoing: OutboundClient) -> DomainResolver:
    from waypost.domains.resolver import DomainResolver, ResolveOptions

    options = ResolveOptions(legacy_names=ground.settings.legacy_names)
    return DomainResolver(outgoing, outgoing, ground.clock, options)


def _make_organisations(ground: AppContext, outgoing: OutboundClient) -> OrganisationReader:
    from waypost.domains.organisation_index import OrganisationReader

    return OrganisationReader(outgoing, outgoing, ground.clock, follow_signed=ground.settings.trust_external_index)


def _make_importer(
    ground: AppContext, core: Core, outgoing: OutboundClient, resolver: DomainResolver
) -> tuple[Importer, Work]:
    """Documents at addresses, and agents of domains, which the process that writes looks up again from time to time."""
    settings, registry = ground.settings, core.registry

    def make_rechecks() -> DomainRechecks:
        from waypost.domains.importer import make_publications
        from waypost.domains.recheck import DomainRechecks

        return DomainRechecks(registry, resolver, make_publications, seconds=settings.agent_recheck_seconds)

    def make_importer() -> Importer:
        from waypost.domains.importer import DomainImporter

        return DomainImporter(registry, outgoing, resolver, rechecks, foreign_index=settings.trust_external_index)

    async def recheck() -> None:
        await rechecks.recheck()

    rechecks = lazy_object(make_rechecks)
    return lazy_object(make_importer), recheck


def _make_domains(ground: AppContext, core: Core, outgoing: OutboundClient) -> DomainClaims:
    """Proofs of domains, which the process that writes looks at again from time to time."""
    seconds = ground.settings.domain_recheck_seconds
    return DomainClaims(core.registry, outgoing, DomainClaimOptions(service=ground.host, recheck_seconds=seconds))


# ---- Whether agents live: in the process that writes, and only where the settings say so.


def make_health(ground: AppContext, core: Core, ways_out: Outbound) -> list[Job]:
    if not ground.checks_health:
        return []
    from waypost.registry.jobs.health_checks import HealthChecks, HealthOptions  # most services ask nobody

    settings = ground.settings
    options = HealthOptions(seconds=settings.health_check_seconds, evict_seconds=settings.health_evict_seconds)
    checks = HealthChecks(core.registry, ways_out.outgoing, options)
    core.metrics.show("health_watched", "Endpoints of agents that are checked.", lambda: len(checks.watched))
    core.metrics.show("health_checks", "Checks of endpoints that were made.", lambda: checks.checks)
    return [checks.job]


# ---- What listens on the LAN and on the bus, in the process that writes.


def make_lan(ground: AppContext, core: Core, ways_out: Outbound) -> LanBridge | None:
    transports = _make_transports(ground, core, ways_out.outgoing) if ground.writes else []
    if not transports:
        return None
    settings = ground.settings
    heard = LanBridge(
        core.registry,
        core.renderer,
        transports,
        anonymous_read=settings.anonymous_read or settings.open,
        publish=settings.mdns_publish,
    )
    heard.show(core.metrics)
    return heard


def _make_transports(ground: AppContext, core: Core, outgoing: OutboundClient) -> list[Transport]:
    settings, clock, base_url = ground.settings, ground.clock, core.renderer.base_url
    transports: list[Transport] = []
    if settings.mdns:
        transports.append(
            factory.make_mdns(
                settings.mdns_interfaces,
                clock,
                pointer=lambda agent_id: f"{base_url}/agents/{agent_id}",
                fetch=_pointer_fetcher(outgoing),
            )
        )
    if settings.udp:
        transports.append(factory.make_udp(settings.udp_interface, clock, settings.udp_port, ipv6=settings.udp_ipv6))
    if settings.bus is not None:
        group, login = settings.bus_group, connection.bus_credentials_of(settings)
        transports.append(factory.make_bus(settings.bus, clock, topic=settings.bus_topic, group=group, login=login))
    return transports


def _pointer_fetcher(outgoing: OutboundClient) -> Callable[[str], Coroutine[Any, Any, bytes]]:
    """How an announcement is fetched that a record of mDNS only points at: as everything else is."""

    async def fetch(url: str) -> bytes:
        found = await outgoing.fetch(url, "card")
        if not found.is_success:
            raise FetchFailed(f"The pointer leads to status {found.status}.", path="mdns", hint="Ask the agent itself.")
        return found.body

    return fetch
