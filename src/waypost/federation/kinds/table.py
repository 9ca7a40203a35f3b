"""The one table of kinds.

    waypost   another Waypost registry: signed change feed with long polls, search
    mcp       the registry API of MCP
    ard       an ARD registry or a site with AI Catalogs, found by links, robots.txt, the well-known path or the DNS; search
    catalog   one AI Catalog and those in it
    a2a       a list of A2A cards or of their addresses
    domain    the organisation index of a domain in the DNS

Kinds without a feed are read again after a pause. An entry whose bytes are known is not stored again.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from waypost.federation.kinds.a2a import A2aCards
from waypost.federation.kinds.ard import ArdRegistry, FindCatalogs, find_none
from waypost.federation.kinds.catalog import AiCatalog
from waypost.federation.kinds.domain import DomainIndex, OrganisationDocuments, ReadOrganisation
from waypost.federation.kinds.mcp import McpRegistry
from waypost.federation.kinds.port import PeerSearch, PeerSource
from waypost.federation.kinds.waypost import WaypostRegistry
from waypost.registry.ports import Clock, OutboundSender


async def read_no_organisation(domain: str) -> OrganisationDocuments:
    """Without a resolver."""
    return OrganisationDocuments(problem="this service has no resolver.")


class DomainLookup(msgspec.Struct, frozen=True, kw_only=True):
    """What the DNS tells of a domain."""

    find_catalogs: FindCatalogs = find_none
    read_organisation: ReadOrganisation = read_no_organisation


class PeerKinds(msgspec.Struct, frozen=True, kw_only=True):
    sources: Mapping[str, PeerSource]
    searches: Mapping[str, PeerSearch]  # the kinds that can be asked

    def probed(self, url: str) -> list[str]:
        """The kinds to try for an address, in order: an address of a JSON document is that document."""
        is_document = urlsplit(url).path.endswith(".json")
        order = ("catalog", "a2a") if is_document else ("waypost", "mcp", "ard", "a2a", "domain")
        return [kind for kind in order if kind in self.sources]


def make_kinds(sender: OutboundSender, clock: Clock, lookup: DomainLookup) -> PeerKinds:
    waypost, ard = WaypostRegistry(sender, clock), ArdRegistry(sender, clock, lookup.find_catalogs)
    return PeerKinds(
        sources={
            "waypost": waypost,
            "mcp": McpRegistry(sender, clock),
            "ard": ard,
            "catalog": AiCatalog(sender, clock),
            "a2a": A2aCards(sender, clock),
            "domain": DomainIndex(clock, lookup.read_organisation),
        },
        searches={"waypost": waypost, "ard": ard},
    )
