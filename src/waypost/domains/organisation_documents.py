"""The documents of all agents that an organisation lists in the DNS, for a registry that follows the domain."""

from __future__ import annotations

import asyncio

import msgspec

from waypost import limits
from waypost.domains.importer import make_profile
from waypost.domains.organisation_index import OrganisationReader
from waypost.domains.resolver import DomainResolution, DomainResolver
from waypost.domains.target import is_domain
from waypost.model.json import dump_json
from waypost.model.names import domain_of

ListedDocument = tuple[bytes, str | None]  # with its address


class OrganisationDocumentList(msgspec.Struct, frozen=True, kw_only=True):
    documents: tuple[ListedDocument, ...] = ()
    unresolved: int = 0  # agents that the index names and that could not be resolved
    reason: str = ""  # why there is no index
    catalog_url: str = ""  # of an index that is a catalog


class OrganisationDocumentReader:
    def __init__(self, organisations: OrganisationReader, resolver: DomainResolver) -> None:
        self._organisations = organisations
        self._resolver = resolver

    async def read(self, domain: str) -> OrganisationDocumentList:
        """The documents in the index, and those of the domains that it names."""
        if not is_domain(domain):
            return OrganisationDocumentList(reason="an address has no DNS records of its own.")
        index = await self._organisations.read(domain)
        if index.index.outcome != "resolved":
            return OrganisationDocumentList(reason=index.index.reason or index.index.code)
        names = dict.fromkeys(entry.domain for entry in index.index.entries if entry.domain)
        resolved = await self._resolve_all(list(names)[: limits.INDEX_AGENTS])
        own = [_document_of(each) for each in resolved if each.resolution.is_resolved]
        listed = [(document, index.url) for document in index.documents]
        return OrganisationDocumentList(
            documents=(*listed, *own),
            unresolved=len(resolved) - len(own),
            catalog_url=index.url if index.documents else "",
        )

    async def _resolve_all(self, names: list[str]) -> list[DomainResolution]:
        found: list[DomainResolution] = []
        for start in range(0, len(names), limits.INDEX_CONCURRENCY):
            part = names[start : start + limits.INDEX_CONCURRENCY]
            found += await asyncio.gather(*map(self._resolver.find, part))
        return found


def _document_of(found: DomainResolution) -> ListedDocument:
    """The agent's own document if its id belongs to the domain, else a profile from the DNS: a document could claim any id."""
    for each in found.documents:
        if each.decoded is not None and domain_of(each.decoded.record.id) == found.resolution.domain:
            return each.body, each.summary.url
    return dump_json(make_profile(found)), None
