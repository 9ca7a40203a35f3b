"""Imports agents by their domain, and rechecks them: DNS records and documents become registrations with trust levels.

One agent may have several documents (a capability card and an ADP document): they are sources of one record, linked by the
alias `agent:{domain}`. An agent that only the DNS describes is stored as a profile. A watched domain is a note in the store;
each recheck has a random time, so that they are spread.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.domains.descriptor import DNS_AID, Descriptor
from waypost.domains.organisation_index import FetchedIndex, OrganisationReader
from waypost.domains.resolver import DomainResolution, DomainResolver
from waypost.domains.target import is_domain, is_same_organisation, parse_target
from waypost.errors import AgentRefused, FetchFailed, PreconditionFailed, WaypostError
from waypost.model.json import dump_json
from waypost.model.names import domain_of
from waypost.model.principal import SCOPE_WRITE, Principal
from waypost.model.registration import Registration, SourceDocument
from waypost.model.resolution import VERIFIED_LEVELS, AgentEndpoint, Resolution
from waypost.model.verdict import Verdict, states_of
from waypost.protocols.codec import Decoded
from waypost.protocols.dns_aid.txt_records import CompanionTxt
from waypost.registry.importer import ImportedAgent, Importer, ImportRequest, ImportResult
from waypost.registry.ports import AuditEntry, Command, Decision, Fetcher, RegistrationChange, Rule, StoreState
from waypost.registry.publication import DOMAIN_VIA, Publication
from waypost.registry.record_linkage import (
    DomainHome,
    RecordLinker,
    find_link,
    home_of,
    link_publication,
    linkage_document,
    pointed_host,
)
from waypost.registry.registry import Registry

log = logging.getLogger("waypost.domains")

NOTE_PREFIX: Final = "resolved:"

_NETWORK_REASONS: Final = frozenset(("no_address", "refused", "timed_out", "tls", "protocol", "denied", "dns_failed"))

_HINT: Final = "`waypost resolve` shows the steps."

_MEMBERS: Final = ("name", "description")


class OrganisationListing:
    """The index of an organisation: its domains, and documents that are linked to the agents found there."""

    def __init__(self, organisation: str, index: FetchedIndex, listed: Sequence[Publication | ImportedAgent]) -> None:
        self._organisation = organisation
        self.named = dict.fromkeys(entry.domain for entry in index.index.entries if entry.domain)
        self.remaining = list(listed)

    def domains(self, own: str) -> list[str]:
        """The domains that it names, and those of the documents that it points to, without its own."""
        hosts = (pointed_host(each.decoded.record) for each in self.remaining if isinstance(each, Publication))
        pointed = [
            host for host in hosts if host and is_domain(host) and is_same_organisation(host, self._organisation)
        ]
        domains = dict.fromkeys((*self.named, *pointed))
        domains.pop(own, None)
        return list(domains)[: limits.ORGANISATION_AGENTS]

    def take_linked(self, home: DomainHome) -> list[Publication]:
        """Remove and return the documents of the agent at that home, one of each dialect."""
        linked: dict[str, Publication] = {}
        remaining: list[Publication | ImportedAgent] = []
        for each in self.remaining:
            link = (
                None if isinstance(each, ImportedAgent) else find_link(home, linkage_document(each), self._organisation)
            )
            if isinstance(each, ImportedAgent) or link is None or each.dialect in linked:
                remaining.append(each)
            else:
                linked[each.dialect] = link_publication(each, home.agent, link)
        self.remaining = remaining
        return list(linked.values())


class DomainImporter(Importer):
    """An `Importer` that also accepts domains."""

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
        """A failure takes `domain_seconds` for a domain and `discreet_seconds` for a URL, so that its time reveals nothing."""
        super().__init__(registry, fetcher, discreet_seconds=discreet_seconds)
        self._domain_seconds = domain_seconds
        self._resolver = resolver
        self._rechecks = rechecks
        self._organisations = OrganisationReader(
            resolver.dns, resolver.fetcher, registry.clock, follow_signed=foreign_index
        )

    async def find(self, principal: Principal, request: ImportRequest) -> ImportResult:
        if not is_domain(request.url):
            return await super().find(principal, request)
        started_at = time.monotonic()
        try:
            if request.organisation:
                return await self._import_organisation(principal, request)
            found = await self._resolver.find(request.url)
            if found.resolution.outcome == "not_found":
                return await self._import_documents(principal, request, found.resolution)
            return await self._import_agent(principal, request, found)
        except FetchFailed as error:
            if principal.is_admin or error.details.get("reason") not in _NETWORK_REASONS:
                raise
        await asyncio.sleep(max(0.0, started_at + self._domain_seconds - time.monotonic()))
        raise FetchFailed(
            "The agent of this domain is not reachable.",
            path="$.url",
            hint="Check that it is running and public. `waypost resolve` shows the steps.",
            details={"reason": "unreachable"},
        )

    async def _import_documents(
        self, principal: Principal, request: ImportRequest, resolution: Resolution
    ) -> ImportResult:
        """A host without DNS records of an agent may have other well-known documents."""
        if request.url.lower().startswith("agent:"):
            raise _resolution_error(resolution)
        try:
            return await super().find(principal, request)
        except FetchFailed as error:
            if error.details.get("reason") in ("no_address", "dns_failed", "unreachable"):
                raise _resolution_error(resolution) from None
            raise

    async def _import_agent(
        self, principal: Principal, request: ImportRequest, found: DomainResolution
    ) -> ImportResult:
        resolution = found.resolution
        if not resolution.is_resolved:
            raise _resolution_error(resolution)
        digest = _resolution_digest(found)
        _check_digest(request, digest)
        agents = await self._publish_documents(principal, request, found)
        if all(agent.error is not None for agent in agents) and agents[0].error is not None:
            raise agents[0].error
        url = resolution.document.url if resolution.document is not None else resolution.agent
        return ImportResult(url=url, digest=digest, agents=tuple(agents))

    async def _publish_documents(
        self, principal: Principal, request: ImportRequest, found: DomainResolution, listed: Sequence[Publication] = ()
    ) -> list[ImportedAgent]:
        """Publish the documents of a domain and those that its organisation lists for the same agent, as one record."""
        publish = self._save if request.save else self._preview
        own = make_publications(self._registry, principal, found, request)
        joined = await self._linker.link_domain_documents(found.resolution.domain, own)
        agents: list[ImportedAgent] = []
        for each in (*joined.publications, *listed):
            if agents and agents[0].receipt is not None and agents[0].receipt.created:
                each = msgspec.structs.replace(
                    each, confirmed_by=principal
                )  # it joins the record that was just created
            agents.append(msgspec.structs.replace(await _publish_or_error(publish, each), url=each.source_url or ""))
        if request.save and any(agent.receipt is not None for agent in agents):
            if joined.others and not any(agent.error or _is_pending(agent) for agent in agents):
                await self._linker.merge(joined)
            ids = [agent.receipt.id for agent in agents if agent.receipt is not None]
            await self._rechecks.remember(found.resolution.domain, principal.subject or "", ids)
        return agents

    async def _import_organisation(self, principal: Principal, request: ImportRequest) -> ImportResult:
        """All agents that it lists, and the agent of its own domain."""
        domain = parse_target(request.url).domain
        index, own = await asyncio.gather(self._organisations.read(domain), self._resolver.find(domain))
        if index.index.outcome == "failed":
            raise _fetch_error(
                index.index.code, f"The index of {domain} is not usable: {index.index.reason.rstrip('.')}."
            )
        if index.index.outcome == "not_found" and not own.resolution.is_resolved:
            return await self._import_documents(
                principal, msgspec.structs.replace(request, organisation=False), own.resolution
            )
        listing = OrganisationListing(domain, index, self._decode_listed(principal, request, index))
        resolved = [own, *await self._resolve_all(listing.domains(domain))]
        digest = _organisation_digest(index, resolved)
        _check_digest(request, digest)
        agents: list[ImportedAgent] = []
        for found in resolved:
            if found.resolution.is_resolved:
                home = domain_home(self._registry, found)
                listed = listing.take_linked(home) if self._linker.can_link(principal, home) else ()
                agents += await self._publish_documents(principal, request, found, listed)
            elif found is not own and found.resolution.domain in listing.named:
                agents.append(ImportedAgent(document=b"", error=_resolution_error(found.resolution)))
        agents += await self._publish_remaining(request, listing)
        return ImportResult(url=index.url or f"agent:{domain}", digest=digest, agents=tuple(agents))

    def _decode_listed(
        self, principal: Principal, request: ImportRequest, index: FetchedIndex
    ) -> list[Publication | ImportedAgent]:
        """The documents in an index, in order; an invalid one with its error."""
        listed: list[Publication | ImportedAgent] = []
        for document in index.documents[: limits.ORGANISATION_AGENTS]:
            try:
                listed.append(self._fetched(principal, request, index.url, document))
            except WaypostError as error:
                listed.append(ImportedAgent(document=document, error=error))
        return listed

    async def _publish_remaining(self, request: ImportRequest, listing: OrganisationListing) -> list[ImportedAgent]:
        """Publish the listed documents that belong to no resolved domain."""
        publish = self._save if request.save else self._preview
        return [
            each if isinstance(each, ImportedAgent) else await _publish_or_error(publish, await self._linker.link(each))
            for each in listing.remaining
        ]

    async def _resolve_all(self, names: Sequence[str]) -> list[DomainResolution]:
        found: list[DomainResolution] = []
        for start in range(0, len(names), limits.INDEX_CONCURRENCY):
            part = names[start : start + limits.INDEX_CONCURRENCY]
            found += await asyncio.gather(*map(self._resolver.find, part))
        return found


def _is_pending(agent: ImportedAgent) -> bool:
    return agent.receipt is not None and agent.receipt.outcome == "held"


async def _publish_or_error(
    publish: Callable[[Publication], Awaitable[ImportedAgent]], publication: Publication
) -> ImportedAgent:
    try:
        return await publish(publication)
    except WaypostError as error:
        return ImportedAgent(document=publication.document, error=error)


def make_publications(
    registry: Registry, principal: Principal, found: DomainResolution, request: ImportRequest | None = None
) -> list[Publication]:
    """One publication for each dialect; a profile from the DNS if there is no document. Of two documents of a dialect, the
    agent's own takes precedence over a capability document; otherwise they would replace each other in turns."""
    resolution = found.resolution
    verdicts = checked_verdicts(resolution)
    described = sorted(
        found.documents, key=lambda each: (each.summary.dialect != "adp", each.summary.role == "capability")
    )
    first = {each.summary.dialect: each for each in reversed(described) if each.decoded is not None}
    documents = [(each.body, each.summary.url) for each in described if each is first.get(each.summary.dialect)]
    publications = []
    for body, url in documents or [(dump_json(make_profile(found)), resolution.agent)]:
        dialect, decoded = registry.decode(body, source_url=url if documents else None)
        publications.append(
            Publication(
                dialect=dialect,
                document=body,
                decoded=_rename_to_domain(decoded, resolution, url),
                principal=principal,
                via=DOMAIN_VIA,
                visibility=request.visibility if request is not None else None,
                ttl_seconds=request.ttl_seconds if request is not None else None,
                source_url=url,
                verdicts=verdicts,
            )
        )
    return publications


def _rename_to_domain(decoded: Decoded, resolution: Resolution, url: str) -> Decoded:
    """Use an id that the domain may assign: its own, one at its host, or the URL of the document. A document could claim any
    id, and the proofs of the domain would then apply to another agent."""
    stated, own = decoded.record.id, (None, resolution.domain)
    is_url = url.startswith("https://") and stated == url
    agent_id = stated if is_url or domain_of(stated) == resolution.domain else resolution.agent
    aliases = [name for name in decoded.aliases if "://" in name or domain_of(name) in own]
    names = (*(name for name in (stated,) if is_url or domain_of(name) in own), *aliases, resolution.agent)
    source_id = decoded.source_id if is_url or domain_of(decoded.source_id) in own else resolution.agent
    return msgspec.structs.replace(
        decoded,
        record=msgspec.structs.replace(decoded.record, id=agent_id),
        source_id=source_id,
        aliases=tuple(dict.fromkeys(name for name in names if name != agent_id)),
    )


def domain_home(registry: Registry, found: DomainResolution) -> DomainHome:
    """The hosts and URLs of the domain's own documents."""
    anonymous = Principal(subject=None)
    return home_of(found.resolution.domain, map(linkage_document, make_publications(registry, anonymous, found)))


def checked_verdicts(resolution: Resolution) -> tuple[Verdict, ...]:
    """The verdicts of checks that were made."""
    return tuple(verdict for verdict in resolution.verdicts if verdict.state != "not_checked")


def make_profile(found: DomainResolution) -> dict[str, Any]:
    """The profile of an agent that only the DNS describes (neighbours.md §5 for AID)."""
    resolution, location = found.resolution, found.location
    aid = (location.aid if location is not None else None) or next(
        (each.aid for each in found.documents if each.aid), None
    )
    if aid is not None:
        return {
            "id": f"dns:_agent.{resolution.domain}",
            "name": aid.desc or resolution.domain,
            "description": aid.desc or f"Agent at {resolution.domain}",
            "tags": [aid.proto],
            "bindings": [{"protocol": aid.proto, "endpoint": aid.uri}],
        }
    stated = _metadata_texts(found.documents)
    companion = (location.companion if location is not None else None) or CompanionTxt()
    protocols = {endpoint.protocol for endpoint in resolution.endpoints if endpoint.protocol}
    profile = {
        "id": resolution.agent,
        "name": stated.get("name") or resolution.domain,
        "description": stated.get("description") or companion.description or f"Agent at {resolution.domain}",
        "tags": list(dict.fromkeys((*companion.capabilities, *sorted(protocols))))[: limits.TAGS],
        "bindings": [_binding(endpoint, number) for number, endpoint in enumerate(resolution.endpoints)],
    }
    return {**profile, "version": companion.version} if companion.version else profile


def _binding(endpoint: AgentEndpoint, number: int) -> dict[str, Any]:
    authority = endpoint.host if endpoint.port == 443 else f"{endpoint.host}:{endpoint.port}"
    return {
        "protocol": endpoint.protocol or "https",
        "endpoint": endpoint.url or f"https://{authority}/",
        "priority": endpoint.priority or number,
    }


def _metadata_texts(documents: Sequence[Descriptor]) -> dict[str, str]:
    """Name and description in DNS-AID metadata."""
    for each in documents:
        identity = (each.parsed or {}).get("identity")
        if each.summary.dialect == DNS_AID and isinstance(identity, dict):
            members = {name: identity.get(name) or (each.parsed or {}).get(name) for name in _MEMBERS}
            return {name: value[:1024] for name, value in members.items() if isinstance(value, str) and value.strip()}
    return {}


def _check_digest(request: ImportRequest, digest: str) -> None:
    """Save only if the content is still the one that was shown."""
    if request.digest is not None and request.digest != digest:
        raise PreconditionFailed(
            "The agent of the domain has changed since it was shown.", path="$.digest", hint="Request it again."
        )


def _organisation_digest(index: FetchedIndex, resolved: Sequence[DomainResolution]) -> str:
    """Of everything that an organisation lists, independent of the order."""
    digests = [_resolution_digest(each).encode() for each in resolved if each.resolution.is_resolved]
    parts = sorted(hashlib.sha256(each).digest() for each in (*index.documents, *digests))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _resolution_digest(found: DomainResolution) -> str:
    bodies = [each.body for each in found.documents] or [dump_json(make_profile(found))]
    if len(bodies) == 1:
        return hashlib.sha256(bodies[0]).hexdigest()
    return hashlib.sha256(b"".join(hashlib.sha256(body).digest() for body in bodies)).hexdigest()


def _resolution_error(resolution: Resolution) -> FetchFailed | AgentRefused:
    if resolution.outcome == "not_found":
        return _fetch_error(
            resolution.code or "no_agent", f"{resolution.domain} has no agent: {resolution.reason.rstrip('.')}."
        )
    if any(verdict.state == "failed" for verdict in resolution.verdicts):
        return AgentRefused(
            f"The agent of {resolution.domain} is refused: {resolution.reason.rstrip('.')}.",
            path="$.url",
            hint=_HINT,
            details={"reason": resolution.code},
        )
    return _fetch_error(
        resolution.code or "unresolved",
        f"The agent of {resolution.domain} cannot be resolved: {resolution.reason.rstrip('.')}.",
    )


def _fetch_error(code: str, message: str) -> FetchFailed:
    return FetchFailed(message, path="$.url", hint=_HINT, details={"reason": code})


class WatchedDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A domain whose agents are registered here."""

    domain: str
    subject: str
    agents: tuple[str, ...]
    checked_at: float
    next_at: float
    failures: int = 0


class DomainRechecks:
    """Resolves registered domains again: a change is published, a failure is recorded, an unreachable domain is retried soon."""

    def __init__(
        self,
        registry: Registry,
        resolver: DomainResolver,
        *,
        seconds: float = limits.RECHECK_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._resolver = resolver
        self._linker = RecordLinker(registry)
        self._seconds = seconds
        self._chance = chance

    async def remember(self, domain: str, subject: str, agents: Sequence[str]) -> None:
        now = self._registry.clock.now()
        ids = tuple(dict.fromkeys(agents))
        await self._save(
            WatchedDomain(domain=domain, subject=subject, agents=ids, checked_at=now, next_at=self._later(now))
        )

    async def watched(self) -> list[WatchedDomain]:
        return [_load_watched(value) for _, value in await self._registry.notes(NOTE_PREFIX)]

    async def recheck(self) -> None:
        """Check the domains that are due."""
        now = self._registry.clock.now()
        due = [each for each in await self.watched() if each.next_at <= now]
        for start in range(0, len(due), limits.CONCURRENT_RECHECKS):
            part = due[start : start + limits.CONCURRENT_RECHECKS]
            await asyncio.gather(*(self._check(each, now) for each in part))

    async def _check(self, watched: WatchedDomain, now: float) -> None:
        registrations = await self._registry.registrations(list(watched.agents))
        if not any(_domain_source(each) is not None for each in registrations):
            await self._remove(watched)
            return
        found = await self._resolver.find(watched.domain)
        resolution = found.resolution
        if resolution.is_resolved:
            await self._publish(watched, found)
            after = msgspec.structs.replace(watched, checked_at=now, next_at=self._later(now), failures=0)
        else:
            failed = [each for each in resolution.verdicts if each.state == "failed"]
            if resolution.outcome == "not_found":
                failed = [_gone_verdict(resolution.reason, resolution.at)]
            for each in registrations if failed else ():
                await self._record_failure(each.id, tuple(failed), now)
            after = msgspec.structs.replace(watched, next_at=self._soon(now), failures=watched.failures + 1)
        await self._save(after)

    async def _publish(self, watched: WatchedDomain, found: DomainResolution) -> None:
        """Publish as the owner: a change of a verified agent needs its confirmation, as always."""
        principal = Principal(subject=watched.subject, scopes=frozenset((SCOPE_WRITE,)), via=DOMAIN_VIA)
        publications = make_publications(self._registry, principal, found)
        linked = await self._linker.link_domain_documents(found.resolution.domain, publications)
        for publication in linked.publications:
            try:
                await self._registry.publish(publication)
            except WaypostError as error:
                log.warning("cannot update the agent of %s: %s", watched.domain, error.message)

    async def _record_failure(self, agent_id: str, failed: tuple[Verdict, ...], now: float) -> None:
        await self._registry.execute(Command(keys=(agent_id,), notes=(), decide=_replace_levels(agent_id, failed, now)))

    async def _save(self, watched: WatchedDomain) -> None:
        await self._write(watched.domain, msgspec.json.encode(watched))

    async def _remove(self, watched: WatchedDomain) -> None:
        await self._write(watched.domain, None)

    async def _write(self, domain: str, note: bytes | None) -> None:
        name = f"{NOTE_PREFIX}{domain}"
        decision = Decision(outcome="noted", notes={name: note})
        await self._registry.execute(Command(keys=(), notes=(name,), decide=lambda state: decision))

    def _later(self, now: float) -> float:
        """With jitter: domains that were registered together are not checked together."""
        return now + self._seconds * (0.9 + 0.2 * self._chance())

    def _soon(self, now: float) -> float:
        return now + self._seconds / limits.PROOF_RETRY_DIVISOR * (0.9 + 0.2 * self._chance())


def _load_watched(value: bytes) -> WatchedDomain:
    return msgspec.json.decode(value, type=WatchedDomain)


def _domain_source(registration: Registration) -> SourceDocument | None:
    return next((source for source in registration.sources if source.via == DOMAIN_VIA), None)


def _gone_verdict(reason: str, at: str) -> Verdict:
    return Verdict(
        check=VERIFIED_LEVELS[0], state="failed", reason=f"the domain no longer names the agent: {reason}", at=at
    )


def _replace_levels(agent_id: str, failed: tuple[Verdict, ...], now: float) -> Rule:
    """Replace the trust levels of documents that were imported by domain."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        sources = tuple(
            _with_levels(source, failed) if source.via == DOMAIN_VIA else source for source in current.sources
        )
        if [states_of(each.verdicts) for each in sources] == [states_of(each.verdicts) for each in current.sources]:
            return Decision(outcome="unchanged", registration=current)
        updated = msgspec.structs.replace(current, sources=sources, changed_at=now)
        change = RegistrationChange(type="updated", at=now, registration=updated, before=current.scopes)
        entry = AuditEntry(
            at=now, action="judge", subject="", object=agent_id, outcome="failed", via=DOMAIN_VIA, etag=updated.etag
        )
        return Decision(outcome="judged", change=change, audit=(entry,))

    return decide


def _with_levels(source: SourceDocument, failed: tuple[Verdict, ...]) -> SourceDocument:
    others = tuple(verdict for verdict in source.verdicts if verdict.check not in VERIFIED_LEVELS)
    return msgspec.structs.replace(source, verdicts=(*failed, *others))
