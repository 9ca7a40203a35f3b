"""The one way out of this process, and what goes it: fetching, domains, their proofs and their agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.late import late_part
from waypost.net.outgoing import Outgoing, OutgoingOptions
from waypost.net.urls import origin_of
from waypost.registry.domains import DomainOptions, Domains
from waypost.registry.importing import Importer

if TYPE_CHECKING:  # `late_part`: nobody waits at a start for what asks the DNS
    from waypost.domains.organisation import OrganisationReader
    from waypost.domains.rechecking import Rechecks
    from waypost.domains.resolving import DomainResolver

_RECHECK_SECONDS = 60.0  # how often it is asked whether a proof of a domain is due


class WaysOut(msgspec.Struct, frozen=True, kw_only=True):
    outgoing: Outgoing
    resolver: DomainResolver  # from domains to agents
    organisations: OrganisationReader
    importer: Importer
    domains: Domains  # proofs of them


def make_ways_out(ground: Ground, core: Core) -> WaysOut:
    outgoing = _make_outgoing(ground)
    resolver = late_part(lambda: _make_resolver(ground, outgoing))
    return WaysOut(
        outgoing=outgoing,
        resolver=resolver,
        organisations=late_part(lambda: _make_organisations(ground, outgoing)),
        importer=_make_importer(ground, core, outgoing, resolver),
        domains=_make_domains(ground, core, outgoing),
    )


def _make_outgoing(ground: Ground) -> Outgoing:
    settings, port = ground.settings, ground.port
    own = ((settings.host, settings.port if port is None else port),)
    options = OutgoingOptions.of(settings)
    return Outgoing(msgspec.structs.replace(options, own=own, own_origin=origin_of(ground.base_url)))


def _make_resolver(ground: Ground, outgoing: Outgoing) -> DomainResolver:
    from waypost.domains.resolving import DomainResolver, ResolveOptions

    options = ResolveOptions(legacy_names=ground.settings.legacy_names)
    return DomainResolver(outgoing, outgoing, ground.clock, options)


def _make_organisations(ground: Ground, outgoing: Outgoing) -> OrganisationReader:
    from waypost.domains.organisation import OrganisationReader

    return OrganisationReader(outgoing, outgoing, ground.clock, follow_signed=ground.settings.foreign_index)


def _make_importer(ground: Ground, core: Core, outgoing: Outgoing, resolver: DomainResolver) -> Importer:
    """Documents at addresses, and agents of domains, which the process that writes looks up again from time to time."""
    settings, registry = ground.settings, core.registry

    def make_rechecks() -> Rechecks:
        from waypost.domains.rechecking import Rechecks
        from waypost.domains.registering import publications

        return Rechecks(registry, resolver, publications, seconds=settings.agent_recheck_seconds)

    def make_importer() -> Importer:
        from waypost.domains.registering import DomainImporter

        return DomainImporter(registry, outgoing, resolver, rechecks, foreign_index=settings.foreign_index)

    async def recheck() -> None:
        await rechecks.recheck()

    rechecks = late_part(make_rechecks)
    registry.chore(min(_RECHECK_SECONDS, settings.agent_recheck_seconds / 8), recheck)
    return late_part(make_importer)


def _make_domains(ground: Ground, core: Core, outgoing: Outgoing) -> Domains:
    """Proofs of domains, which the process that writes looks at again from time to time."""
    seconds = ground.settings.domain_recheck_seconds
    domains = Domains(core.registry, outgoing, DomainOptions(service=ground.host, recheck_seconds=seconds))
    core.registry.chore(min(_RECHECK_SECONDS, seconds / 8), domains.recheck)
    return domains
