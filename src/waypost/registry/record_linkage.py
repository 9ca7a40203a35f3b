"""Record linkage: which documents describe the same agent, so that it gets one record.

A link rests on what this service fetched itself: the documents of the agent from its domain, and a document or a catalog of the
same organisation that is at, or points to, one of their URLs. Statements of a caller, or a catalog of another organisation,
link nothing. Only records of the same owner are merged.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.model.names import domain_of
from waypost.model.principal import Principal
from waypost.model.record import AgentRecord
from waypost.model.registration import CatalogEntry, Registration, SourceDocument, is_link, verdicts_of
from waypost.model.resolution import SIGNATURE, VERIFIED_LEVELS
from waypost.model.verdict import Verdict, level_of
from waypost.registry.publication import DOMAIN_VIA, IMPORT_VIA, Publication
from waypost.registry.registry import Registry
from waypost.registry.write_rules import decode_again
from waypost.trust.domain_claims import registrable_domain

FETCHED_VIA: Final = frozenset((IMPORT_VIA, DOMAIN_VIA))  # of documents that this service fetched

WELL_KNOWN_PATHS: Final = ("/.well-known/agent.json", "/.well-known/agent-card.json")
_ANNOUNCE: Final = "announce"
_ARD: Final = "ard"


class LinkageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fetched document: its URL, record and names."""

    url: str
    record: AgentRecord
    names: tuple[str, ...] = ()  # its id and aliases


class DomainHome(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a domain, by its own documents."""

    domain: str
    urls: frozenset[str] = frozenset()  # of its documents: the fetched ones and the well-known ones
    names: frozenset[str] = frozenset()  # ids, endpoints and URLs at its own host
    endpoints: frozenset[str] = frozenset()

    @property
    def agent(self) -> str:
        return f"agent:{self.domain}"


def home_of(domain: str, documents: Iterable[LinkageDocument]) -> DomainHome:
    """The home of an agent by the documents that its domain led to."""
    document = list(documents)
    fetched = {normalize_url(each.url) for each in document if "://" in each.url}
    origins = {f"https://{domain}", *(_origin(url) for url in fetched if host_of(url) == domain)}
    endpoints = {
        normalize_url(binding.endpoint)
        for each in document
        for binding in each.record.bindings
        if not binding.is_link and host_of(binding.endpoint) == domain
    }
    ids = {name for each in document for name in each.names if domain_of(name) == domain}
    own = {url for url in fetched if host_of(url) == domain}
    return DomainHome(
        domain=domain,
        urls=frozenset((*fetched, *(origin + path for origin in origins for path in WELL_KNOWN_PATHS))),
        names=frozenset((*ids, *endpoints, *own)),
        endpoints=frozenset(endpoints),
    )


def find_link(home: DomainHome, document: LinkageDocument, organisation: str | None = None) -> str | None:
    """Why a document describes the agent of a home; None if nothing links it. `organisation` published the document, if it is
    not the host of its URL: the DNS of the organisation led there."""
    publisher = organisation or host_of(document.url)
    if publisher is None or not is_of_organisation(publisher, home.domain):
        return None
    if not is_link(document.record):
        return _find_own_link(home, document)
    if any(normalize_url(binding.endpoint) in home.urls for binding in document.record.bindings):
        return f"{document.url or publisher} points to the document of {home.domain}"
    return None


def _find_own_link(home: DomainHome, document: LinkageDocument) -> str | None:
    """A document at a URL of the agent, or one that states its endpoints and no others."""
    if normalize_url(document.url) in home.urls:
        return f"it was fetched from {document.url}"
    endpoints = {normalize_url(binding.endpoint) for binding in document.record.bindings}
    if endpoints & home.endpoints and all(host_of(each) == home.domain for each in endpoints):
        return f"it has the endpoints of the document of {home.domain}"
    return None


def is_of_organisation(host: str, domain: str) -> bool:
    """Whether two names have the same registrable domain."""
    return registrable_domain(host) == registrable_domain(domain)


def hosts_of_record(record: AgentRecord) -> list[str]:
    """The hosts of the endpoints, each once."""
    hosts = (host_of(binding.endpoint) for binding in record.bindings)
    return list(dict.fromkeys(host for host in hosts if host is not None))


def pointed_host(record: AgentRecord) -> str | None:
    """The host of a link, if it leads to a well-known path there."""
    if not is_link(record):
        return None
    endpoint = record.bindings[0].endpoint
    return host_of(endpoint) if urlsplit(normalize_url(endpoint)).path in WELL_KNOWN_PATHS else None


def host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def normalize_url(url: str) -> str:
    """A URL with lower-case scheme and host, without default port and fragment."""
    try:
        parts = urlsplit(url.partition("#")[0])
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url
    usual = {"https": 443, "wss": 443, "http": 80, "ws": 80}.get(parts.scheme)
    where = host if port in (None, usual) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{where}{parts.path or '/'}{query}" if where else url


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class LinkedDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a domain as they are registered, the registration that they update, and others of the same agent."""

    publications: tuple[Publication, ...]
    into: Registration | None = None
    others: tuple[Registration, ...] = ()


class RecordLinker:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # --- A fetched document and the agent of a domain --------------------------------------------

    async def link(self, publication: Publication) -> Publication:
        """Add the name of the agent that the document is linked to, if the caller owns that agent."""
        publication = await self._with_proof(publication)
        document = linkage_document(publication)
        for host in dict.fromkeys((host_of(document.url), *hosts_of_record(document.record))):
            known = await self._find_own(publication.principal, f"agent:{host}") if host else None
            if host is None or known is None or known.id in document.names or not self._is_free(publication, known):
                continue
            home = home_of(host, _own_documents(known, host))
            reason = find_link(home, document) if home.names else None
            if reason is not None:
                return link_publication(publication, known.id, reason)
        return publication

    async def _with_proof(self, publication: Publication) -> Publication:
        """A document that its domain led to keeps its verdicts if it is fetched from its URL."""
        decoded, digest = publication.decoded, hashlib.sha256(publication.document).hexdigest()
        for name in (decoded.record.id, decoded.source_id, *decoded.aliases):
            known = await self._find_own(publication.principal, name)
            source = known.source(publication.dialect) if known is not None else None
            if source is not None and source.via == DOMAIN_VIA and source.digest == digest:
                return msgspec.structs.replace(publication, verdicts=_trust_evidence(source))
        return publication

    def can_link(self, principal: Principal, home: DomainHome) -> bool:
        """Whether the agent of a home does not exist or belongs to the caller."""
        return self._find_entry(home.agent) is None or self._own_entry(principal, home.agent) is not None

    async def _find_own(self, principal: Principal, name: str) -> Registration | None:
        entry = self._own_entry(principal, name)
        return next(iter(await self._registry.registrations([entry.id])), None) if entry is not None else None

    def _own_entry(self, principal: Principal, name: str) -> CatalogEntry | None:
        entry = self._find_entry(name)
        return entry if entry is not None and entry.owner == (principal.subject or "anonymous") else None

    def _own_hosted(self, principal: Principal, domain: str) -> CatalogEntry | None:
        """The agent of the caller that is hosted under the domain."""
        entry = self._registry.hosted(domain)
        return entry if entry is not None and entry.owner == (principal.subject or "anonymous") else None

    def _is_free(self, publication: Publication, known: Registration) -> bool:
        """Whether the id of a document is unused or that of the agent, and the agent has no other document of its dialect."""
        decoded = publication.decoded
        entry = self._find_entry(decoded.record.id)
        return (entry is None or entry.id == known.id) and _has_room(known, publication.dialect, decoded.source_id)

    # --- The documents of a domain and known agents ----------------------------------------------

    async def link_domain_documents(self, domain: str, publications: Sequence[Publication]) -> LinkedDocuments:
        """The documents of a domain, for the one record that the caller owns of its agent. Names of another agent stay with it.
        A document made from the DNS alone replaces no other."""
        home = home_of(domain, map(linkage_document, publications))
        same_agent = await self._find_same_agent(publications[0].principal, home)
        into = same_agent[0] if same_agent else None
        described = _find_described(into) if into is not None else None
        if described is not None and not any(map(_is_fetched, publications)):
            publications = [_republish(described, publications[0].principal, linkage_document(publications[0]).names)]
        mine = [self._for_record(each, into) for each in publications]
        return LinkedDocuments(publications=tuple(mine), into=into, others=tuple(same_agent[1:]))

    async def merge(self, linked: LinkedDocuments) -> None:
        """Merge further records of the same agent into one, after the documents of the domain are registered. A record stays if
        merging it would change the endpoint of a verified agent."""
        into, principal = linked.into, linked.publications[0].principal
        for other in linked.others:
            now = await self._registry.registrations([into.id]) if into is not None else []
            if not now or not _can_merge(other, now[0]):
                continue
            await self._registry.withdraw(principal, other.id, via=DOMAIN_VIA)
            names = (other.id, *other.aliases)
            for each in _carry_over(other, now[0], principal) or linked.publications[:1]:
                await self._registry.publish(_also_named(_with_id(each, now[0].id), *names))

    def _for_record(self, publication: Publication, into: Registration | None) -> Publication:
        """Set the id under which a document is registered; its `source_id` stays."""
        decoded, owner = publication.decoded, publication.principal.subject or "anonymous"
        agent_id = into.id if into is not None else decoded.record.id
        free = [
            name
            for name in (decoded.record.id, *decoded.aliases)
            if (entry := self._find_entry(name)) is None or (entry.owner == owner and entry.id == agent_id)
        ]
        return _with_aliases(_with_id(publication, agent_id), tuple(name for name in free if name != agent_id))

    def _find_entry(self, name: str) -> CatalogEntry | None:
        return self._registry.entries.find_named(name)

    async def _find_same_agent(self, principal: Principal, home: DomainHome) -> list[Registration]:
        """Registrations of the caller that describe the agent: first the hosted one or the one with its name, then the oldest."""
        ids = [entry.id for name in sorted(home.names) if (entry := self._own_entry(principal, name)) is not None]
        own = self._own_hosted(principal, home.domain) or self._own_entry(principal, home.agent)
        maybe = [agent_id async for agent_id in self._of_organisation(principal, home.domain)]
        by_name = self._own_entry(principal, home.agent)
        named = {*ids, *(entry.id for entry in (own, by_name) if entry is not None)}
        candidates = list(dict.fromkeys((*named, *maybe)))[: limits.LINKAGE_CANDIDATES]
        registrations = await self._registry.registrations(candidates)
        found = [each for each in registrations if each.id in named or _is_same_agent(each, home)]
        return sorted(found, key=lambda each: (own is None or each.id != own.id, each.created_at, each.id))

    async def _of_organisation(self, principal: Principal, domain: str) -> AsyncIterator[str]:
        """Ids of the caller with a domain of the organisation, searched in slices."""
        organisation, ids = registrable_domain(domain), self._registry.entries.ids()
        for start in range(0, len(ids), limits.LINKAGE_SLICE):
            for agent_id in ids[start : start + limits.LINKAGE_SLICE]:
                if organisation in agent_id and self._own_entry(principal, agent_id) is not None:
                    named = domain_of(agent_id)
                    if named is not None and registrable_domain(named) == organisation:
                        yield agent_id
            await asyncio.sleep(0)


def linkage_document(publication: Publication) -> LinkageDocument:
    decoded = publication.decoded
    names = (decoded.record.id, decoded.source_id, *decoded.aliases)
    return LinkageDocument(url=publication.source_url or "", record=decoded.record, names=names)


def link_publication(publication: Publication, agent_id: str, reason: str) -> Publication:
    """Register a publication as a further document of an agent, with the reason as a warning."""
    named = _also_named(publication, agent_id)
    warning = f"It is linked to {agent_id}: {reason}."
    decoded = msgspec.structs.replace(named.decoded, warnings=(*named.decoded.warnings, warning))
    return msgspec.structs.replace(named, decoded=decoded)


def _has_room(known: Registration, dialect: str, source_id: str) -> bool:
    """A record has one document of each dialect: another catalog entry does not replace the first."""
    source = known.source(dialect)
    return source is None or source.id == source_id


def _also_named(publication: Publication, *names: str) -> Publication:
    decoded = publication.decoded
    aliases = dict.fromkeys(name for name in (*decoded.aliases, *names) if name != decoded.record.id)
    return _with_aliases(publication, tuple(aliases))


def _with_id(publication: Publication, agent_id: str) -> Publication:
    decoded = publication.decoded
    if decoded.record.id == agent_id:
        return publication
    record = msgspec.structs.replace(decoded.record, id=agent_id)
    return msgspec.structs.replace(publication, decoded=msgspec.structs.replace(decoded, record=record))


def _with_aliases(publication: Publication, aliases: tuple[str, ...]) -> Publication:
    decoded = msgspec.structs.replace(publication.decoded, aliases=aliases)
    return msgspec.structs.replace(publication, decoded=decoded)


def _own_documents(known: Registration, domain: str) -> list[LinkageDocument]:
    """Documents that this service fetched from the domain, or found through it."""
    return [
        each
        for source in known.sources
        if source.via == DOMAIN_VIA or (source.via in FETCHED_VIA and source.dialect == "adp")
        for each in (_source_document(source),)
        if source.via == DOMAIN_VIA or (host_of(each.url) == domain == domain_of(source.id))
    ]


def _source_document(source: SourceDocument) -> LinkageDocument:
    decoded = decode_again(source.document, source.dialect, source.url, source.received_at)
    return LinkageDocument(url=source.url or "", record=decoded.record, names=(decoded.record.id, *decoded.aliases))


def _is_same_agent(known: Registration, home: DomainHome) -> bool:
    return any(source.via in FETCHED_VIA and find_link(home, _source_document(source)) for source in known.sources)


def _can_merge(other: Registration, into: Registration) -> bool:
    """Whether merging shows nothing to other callers, moves no announced or hosted agent, and does not lend the verdicts of an
    agent to endpoints that its domain does not name."""
    is_same_audience = (other.visibility, other.invitees, other.owner) == (into.visibility, into.invitees, into.owner)
    if not is_same_audience or other.hosted is not None or any(source.dialect == _ANNOUNCE for source in other.sources):
        return False
    verified = level_of(verdicts_of(into)) == "verified"
    return all(
        _has_room(into, source.dialect, source.id) if is_link(_source_document(source).record) else not verified
        for source in other.sources
        if into.source(source.dialect) is None or source.dialect == _ARD
    )


def _carry_over(other: Registration, into: Registration, principal: Principal) -> list[Publication]:
    return [_republish(source, principal) for source in other.sources if into.source(source.dialect) is None]


def _trust_evidence(source: SourceDocument) -> tuple[Verdict, ...]:
    """Verdicts from outside the document."""
    return tuple(verdict for verdict in source.verdicts if verdict.check in (*VERIFIED_LEVELS, SIGNATURE))


def _is_fetched(publication: Publication) -> bool:
    return "://" in (publication.source_url or "")


def _find_described(known: Registration) -> SourceDocument | None:
    """The newest document that its publisher wrote: not made from the DNS, and no announcement, which is repeated."""
    written = (each for each in known.sources if each.via != DOMAIN_VIA or "://" in (each.url or ""))
    return next((each for each in written if each.dialect != _ANNOUNCE), None)


def _republish(source: SourceDocument, principal: Principal, names: tuple[str, ...] = ()) -> Publication:
    """Publish a stored document again, with its domain verdicts and further names."""
    decoded = decode_again(source.document, source.dialect, source.url, source.received_at)
    aliases = tuple(dict.fromkeys((*decoded.aliases, *names)))
    return Publication(
        dialect=source.dialect,
        document=source.document,
        decoded=msgspec.structs.replace(decoded, aliases=aliases),
        verdicts=_trust_evidence(source),
        principal=principal,
        via=source.via,
        source_url=source.url,
    )
