"""What an organisation lists, taken apart: domains to be resolved, documents that are of the agents found there, and the rest."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.domains.descriptor import DNS_AID, Descriptor
from waypost.domains.organisation_index import FetchedIndex, OrganisationReader
from waypost.domains.recheck import DomainRechecks
from waypost.domains.resolver import DomainResolution, DomainResolver
from waypost.domains.target import is_domain, is_same_organisation, parse_target
from waypost.errors import AgentRefused, FetchFailed, PreconditionFailed, WaypostError
from waypost.model.json import dump_json
from waypost.model.names import domain_of
from waypost.model.principal import Principal
from waypost.model.resolution import AgentEndpoint, Resolution
from waypost.model.verdict import Verdict
from waypost.protocols.codec import Decoded
from waypost.protocols.dns_aid.txt_records import CompanionTxt
from waypost.registry.importer import ImportedAgent, Importer, ImportRequest, ImportResult
from waypost.registry.ports import Fetcher
from waypost.registry.publication import DOMAIN_VIA, Publication
from waypost.registry.record_linkage import (
    DomainHome,
    find_link,
    home_of,
    link_publication,
    linkage_document,
    pointed_host,
)
from waypost.registry.registry import Registry


class OrganisationListing:
    """Of one organisation, whose word its index is, wherever that was fetched from."""

    def __init__(self, organisation: str, index: FetchedIndex, listed: Sequence[Publication | ImportedAgent]) -> None:
        self._organisation = organisation
        self.named = dict.fromkeys(entry.domain for entry in index.told.entries if entry.domain)
        self.left = list(listed)

    def domains(self, own: str) -> list[str]:
        """Those that it names, and those whose documents it points at, but for its own, which is looked up anyway."""
        hosts = (pointed_host(each.decoded.record) for each in self.left if isinstance(each, Publication))
        pointed = [
            host for host in hosts if host and is_domain(host) and is_same_organisation(host, self._organisation)
        ]
        found = dict.fromkeys((*self.named, *pointed))
        found.pop(own, None)
        return list(found)[: limits.ORGANISATION_AGENTS]

    def take_linked(self, home: DomainHome) -> list[Publication]:
        """The documents that are of the agent of that home, one of each dialect. They are no longer left."""
        taken: dict[str, Publication] = {}
        left: list[Publication | ImportedAgent] = []
        for each in self.left:
            tie = (
                None if isinstance(each, ImportedAgent) else find_link(home, linkage_document(each), self._organisation)
            )
            if isinstance(each, ImportedAgent) or tie is None or each.dialect in taken:
                left.append(each)
            else:
                taken[each.dialect] = link_publication(each, home.agent, tie)
        self.left = left
        return list(taken.values())


# ---- A domain instead of a document: what its DNS and its documents say becomes registrations, with the rungs as verdicts.
#
# One agent may come with several documents (a capability card and an ADP document); they are sources of one record, which the
# alias `agent:{domain}` holds together. An agent that the DNS alone describes is written as a profile.

_NETWORK_REASONS: Final = frozenset(("no_address", "refused", "timed_out", "tls", "protocol", "denied", "dns_failed"))

_HINT: Final = "`waypost resolve` shows it step by step."

_MEMBERS: Final = ("name", "description")


class DomainImporter(Importer):
    """`Importer` that knows domains too. An address of a document is fetched as ever."""

    def __init__(
        self,
        registry: Registry,
        fetcher: Fetcher,
        resolver: DomainResolver,
        rechecks: DomainRechecks,
        *,
        foreign_index: bool = False,
        discreet_seconds: float = limits.FETCH_DISCREET_SECONDS,
        domain_seconds: float = limits.DESCRIPTOR_SECONDS,
    ) -> None:
        """`domain_seconds` is for domains what `discreet_seconds` is for addresses: as long as the longest try takes."""
        super().__init__(registry, fetcher, discreet_seconds=discreet_seconds)
        self._domain_seconds = domain_seconds
        self._resolver = resolver
        self._rechecks = rechecks
        self._organisations = OrganisationReader(
            resolver.dns, resolver.fetcher, registry.clock, follow_signed=foreign_index
        )

    async def find(self, principal: Principal, wanted: ImportRequest) -> ImportResult:
        if not is_domain(wanted.url):
            return await super().find(principal, wanted)
        began = time.monotonic()
        try:
            if wanted.organisation:
                return await self._organisation(principal, wanted)
            found = await self._resolver.find(wanted.url)
            if found.resolution.outcome == "not_found":
                return await self._elsewhere(principal, wanted, found.resolution)
            return await self._take(principal, wanted, found)
        except FetchFailed as error:
            if principal.is_admin or error.details.get("reason") not in _NETWORK_REASONS:
                raise
        await asyncio.sleep(max(0.0, began + self._domain_seconds - time.monotonic()))
        raise FetchFailed(
            "The agent of this domain could not be reached.",
            path="$.url",
            hint="Is it up, and public? `waypost resolve` tells more.",
            details={"reason": "unreachable"},
        )

    async def _elsewhere(self, principal: Principal, wanted: ImportRequest, told: Resolution) -> ImportResult:
        """A host without records of an agent may have other documents that are well known."""
        if wanted.url.lower().startswith("agent:"):
            raise _resolution_error(told)
        try:
            return await super().find(principal, wanted)
        except FetchFailed as error:
            if error.details.get("reason") in ("no_address", "unreachable"):
                raise _resolution_error(told) from None
            raise

    # --- One agent -------------------------------------------------------------------------------

    async def _take(self, principal: Principal, wanted: ImportRequest, found: DomainResolution) -> ImportResult:
        told = found.resolution
        if not told.is_resolved:
            raise _resolution_error(told)
        digest = _resolution_digest(found)
        _check_digest(wanted, digest)
        agents = await self._agents(principal, wanted, found)
        if all(agent.error is not None for agent in agents) and agents[0].error is not None:
            raise agents[0].error
        url = told.document.url if told.document is not None else told.agent
        return ImportResult(url=url, digest=digest, agents=tuple(agents))

    async def _agents(
        self, principal: Principal, wanted: ImportRequest, found: DomainResolution, listed: Sequence[Publication] = ()
    ) -> list[ImportedAgent]:
        """The documents of a domain, then what its organisation lists of the same agent: one record."""
        take = self._save if wanted.save else self._preview
        own = make_publications(self._registry, principal, found, wanted)
        joined = await self._joining.link_domain_documents(found.resolution.domain, own)
        agents: list[ImportedAgent] = []
        for each in (*joined.publications, *listed):
            if agents and agents[0].receipt is not None and agents[0].receipt.created:
                each = msgspec.structs.replace(each, confirmed_by=principal)  # it joins what came to be just now
            agents.append(msgspec.structs.replace(await _take_or_error(take, each), url=each.source_url or ""))
        if wanted.save and any(agent.receipt is not None for agent in agents):
            if joined.others and not any(agent.error or _is_pending(agent) for agent in agents):
                await self._joining.fold(joined)
            ids = [agent.receipt.id for agent in agents if agent.receipt is not None]
            await self._rechecks.remember(found.resolution.domain, principal.subject or "", ids)
        return agents

    # --- An organisation -------------------------------------------------------------------------

    async def _organisation(self, principal: Principal, wanted: ImportRequest) -> ImportResult:
        """Everything that it lists, and the agent of its own name."""
        domain = parse_target(wanted.url).domain
        index, own = await asyncio.gather(self._organisations.read(domain), self._resolver.find(domain))
        if index.told.outcome == "failed":
            raise _fetch_error(
                index.told.code, f"The index of {domain} cannot be used: {index.told.reason.rstrip('.')}."
            )
        if index.told.outcome == "not_found" and not own.resolution.is_resolved:
            return await self._elsewhere(principal, msgspec.structs.replace(wanted, organisation=False), own.resolution)
        listing = OrganisationListing(domain, index, self._listed(principal, wanted, index))
        resolved = [own, *await self._resolved(listing.domains(domain))]
        digest = _organisation_digest(index, resolved)
        _check_digest(wanted, digest)
        agents: list[ImportedAgent] = []
        for found in resolved:
            if found.resolution.is_resolved:
                home = domain_home(self._registry, found)
                listed = listing.take_linked(home) if self._joining.can_link(principal, home) else ()
                agents += await self._agents(principal, wanted, found, listed)
            elif found is not own and found.resolution.domain in listing.named:
                agents.append(ImportedAgent(document=b"", error=_resolution_error(found.resolution)))
        agents += await self._others(wanted, listing)
        return ImportResult(url=index.url or f"agent:{domain}", digest=digest, agents=tuple(agents))

    def _listed(
        self, principal: Principal, wanted: ImportRequest, index: FetchedIndex
    ) -> list[Publication | ImportedAgent]:
        """The documents in an index, in their order; what cannot be read of them with the reason."""
        listed: list[Publication | ImportedAgent] = []
        for document in index.documents[: limits.ORGANISATION_AGENTS]:
            try:
                listed.append(self._fetched(principal, wanted, index.url, document))
            except WaypostError as error:
                listed.append(ImportedAgent(document=document, error=error))
        return listed

    async def _others(self, wanted: ImportRequest, listing: OrganisationListing) -> list[ImportedAgent]:
        """What is listed of agents that no domain was found of."""
        take = self._save if wanted.save else self._preview
        return [
            each if isinstance(each, ImportedAgent) else await _take_or_error(take, await self._joining.beside(each))
            for each in listing.left
        ]

    async def _resolved(self, names: Sequence[str]) -> list[DomainResolution]:
        found: list[DomainResolution] = []
        for start in range(0, len(names), limits.INDEX_CONCURRENCY):
            part = names[start : start + limits.INDEX_CONCURRENCY]
            found += await asyncio.gather(*map(self._resolver.find, part))
        return found


def _is_pending(agent: ImportedAgent) -> bool:
    return agent.receipt is not None and agent.receipt.outcome == "held"


async def _take_or_error(
    take: Callable[[Publication], Awaitable[ImportedAgent]], publication: Publication
) -> ImportedAgent:
    try:
        return await take(publication)
    except WaypostError as error:
        return ImportedAgent(document=publication.document, error=error)


# --- From what was found to documents -------------------------------------------------------------


def make_publications(
    registry: Registry, principal: Principal, found: DomainResolution, wanted: ImportRequest | None = None
) -> list[Publication]:
    """One for each dialect; where there is none, one that is written from the DNS. Of two documents of one dialect the agent's
    own counts, before the one that only tells of its capabilities: they would take turns."""
    told = found.resolution
    verdicts = checked_verdicts(told)
    described = sorted(found.documents, key=lambda each: (each.told.dialect != "adp", each.told.role == "capability"))
    first = {each.told.dialect: each for each in reversed(described) if each.decoded is not None}
    documents = [(each.body, each.told.url) for each in described if each is first.get(each.told.dialect)]
    made = []
    for body, url in documents or [(dump_json(make_profile(found)), told.agent)]:
        dialect, decoded = registry.decode(body, source_url=url if documents else None)
        made.append(
            Publication(
                dialect=dialect,
                document=body,
                decoded=_rename_to_domain(decoded, told, url),
                principal=principal,
                via=DOMAIN_VIA,
                visibility=wanted.visibility if wanted is not None else None,
                ttl_seconds=wanted.ttl_seconds if wanted is not None else None,
                source_url=url,
                verdicts=verdicts,
            )
        )
    return made


def _rename_to_domain(decoded: Decoded, told: Resolution, url: str) -> Decoded:
    """Under a name that the domain may give: its own, one at its host, or the address that the document came from. A document
    may say of itself that it is anybody; what is proven of the domain would then be told of them."""
    stated, own = decoded.record.id, (None, told.domain)
    given = url.startswith("https://") and stated == url
    agent_id = stated if given or domain_of(stated) == told.domain else told.agent
    reached = [
        name for name in decoded.aliases if "://" in name or domain_of(name) in own
    ]  # that may well be elsewhere
    names = (*(name for name in (stated,) if given or domain_of(name) in own), *reached, told.agent)
    source_id = decoded.source_id if given or domain_of(decoded.source_id) in own else told.agent
    return msgspec.structs.replace(
        decoded,
        record=msgspec.structs.replace(decoded.record, id=agent_id),
        source_id=source_id,
        aliases=tuple(dict.fromkeys(name for name in names if name != agent_id)),
    )


def domain_home(registry: Registry, found: DomainResolution) -> DomainHome:
    """What the domain's own documents say of where it is."""
    nobody = Principal(subject=None)
    return home_of(found.resolution.domain, map(linkage_document, make_publications(registry, nobody, found)))


def checked_verdicts(told: Resolution) -> tuple[Verdict, ...]:
    """What was not checked is as good as not told."""
    return tuple(verdict for verdict in told.verdicts if verdict.state != "not_checked")


def make_profile(found: DomainResolution) -> dict[str, Any]:
    """An agent that the DNS alone describes (neighbours.md §5 for AID)."""
    told, located = found.resolution, found.located
    aid = (located.aid if located is not None else None) or next(
        (each.aid for each in found.documents if each.aid), None
    )
    if aid is not None:
        return {
            "id": f"dns:_agent.{told.domain}",
            "name": aid.desc or told.domain,
            "description": aid.desc or f"Agent at {told.domain}",
            "tags": [aid.proto],
            "bindings": [{"protocol": aid.proto, "endpoint": aid.uri}],
        }
    stated = _metadata_texts(found.documents)
    companion = (located.companion if located is not None else None) or CompanionTxt()
    protocols = {endpoint.protocol for endpoint in told.endpoints if endpoint.protocol}
    profile = {
        "id": told.agent,
        "name": stated.get("name") or told.domain,
        "description": stated.get("description") or companion.description or f"Agent at {told.domain}",
        "tags": list(dict.fromkeys((*companion.capabilities, *sorted(protocols))))[: limits.TAGS],
        "bindings": [_binding(endpoint, number) for number, endpoint in enumerate(told.endpoints)],
    }
    return {**profile, "version": companion.version} if companion.version else profile


def _binding(endpoint: AgentEndpoint, number: int) -> dict[str, Any]:
    where = endpoint.host if endpoint.port == 443 else f"{endpoint.host}:{endpoint.port}"
    return {
        "protocol": endpoint.protocol or "https",
        "endpoint": endpoint.url or f"https://{where}/",
        "priority": endpoint.priority or number,
    }


def _metadata_texts(documents: Sequence[Descriptor]) -> dict[str, str]:
    """Name and description of DNS-AID's own metadata."""
    for each in documents:
        identity = (each.parsed or {}).get("identity")
        if each.told.dialect == DNS_AID and isinstance(identity, dict):
            members = {name: identity.get(name) or (each.parsed or {}).get(name) for name in _MEMBERS}
            return {name: value[:1024] for name, value in members.items() if isinstance(value, str) and value.strip()}
    return {}


def _check_digest(wanted: ImportRequest, digest: str) -> None:
    """What was shown is what is saved."""
    if wanted.digest is not None and wanted.digest != digest:
        raise PreconditionFailed(
            "What the domain says has changed since it was shown.", path="$.digest", hint="Look again."
        )


def _organisation_digest(index: FetchedIndex, resolved: Sequence[DomainResolution]) -> str:
    """Of everything that an organisation lists, in any order."""
    found = [_resolution_digest(each).encode() for each in resolved if each.resolution.is_resolved]
    parts = sorted(hashlib.sha256(each).digest() for each in (*index.documents, *found))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _resolution_digest(found: DomainResolution) -> str:
    bodies = [each.body for each in found.documents] or [dump_json(make_profile(found))]
    if len(bodies) == 1:
        return hashlib.sha256(bodies[0]).hexdigest()
    return hashlib.sha256(b"".join(hashlib.sha256(body).digest() for body in bodies)).hexdigest()


def _resolution_error(told: Resolution) -> FetchFailed | AgentRefused:
    if told.outcome == "not_found":
        return _fetch_error(told.code or "no_agent", f"{told.domain} names no agent: {told.reason.rstrip('.')}.")
    if any(verdict.state == "failed" for verdict in told.verdicts):
        return AgentRefused(
            f"The agent of {told.domain} is refused: {told.reason.rstrip('.')}.",
            path="$.url",
            hint=_HINT,
            details={"reason": told.code},
        )
    return _fetch_error(
        told.code or "unresolved", f"The agent of {told.domain} cannot be resolved: {told.reason.rstrip('.')}."
    )


def _fetch_error(code: str, message: str) -> FetchFailed:
    return FetchFailed(message, path="$.url", hint=_HINT, details={"reason": code})
