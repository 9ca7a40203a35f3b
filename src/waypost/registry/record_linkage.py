"""What ties documents to the agent of a domain, and what does not.

A tie rests on what this service fetched itself: the agent's own documents from its domain, and a document or a catalogue of the
same organisation that is at, or points at, one of their places. What a caller says of a document ties nothing, and neither
does a catalogue of somebody else. Pure: who holds what is looked up by `joining`.
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

FETCHED_VIA: Final = frozenset((IMPORT_VIA, DOMAIN_VIA))  # how a document came that this service fetched itself

USUAL_PLACES: Final = ("/.well-known/agent.json", "/.well-known/agent-card.json")


class LinkageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was fetched: from where, and what it says."""

    url: str
    record: AgentRecord
    names: tuple[str, ...] = ()  # its id and aliases


class DomainHome(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the agent of a domain, from its own documents."""

    domain: str
    places: frozenset[str] = (
        frozenset()
    )  # where documents of it are: those that were fetched, and the usual ones beside them
    names: frozenset[str] = frozenset()  # ids and endpoints at its own host that its documents give
    endpoints: frozenset[str] = frozenset()

    @property
    def agent(self) -> str:
        return f"agent:{self.domain}"


def home_of(domain: str, documents: Iterable[LinkageDocument]) -> DomainHome:
    """Of an agent by the documents that its domain led to."""
    told = list(documents)
    fetched = {normalize_url(each.url) for each in told if "://" in each.url}
    origins = {f"https://{domain}", *(_origin(url) for url in fetched if host_of(url) == domain)}
    endpoints = {
        normalize_url(binding.endpoint)
        for each in told
        for binding in each.record.bindings
        if not binding.extra.get("unresolved") and host_of(binding.endpoint) == domain
    }
    ids = {name for each in told for name in each.names if domain_of(name) == domain}
    own = {url for url in fetched if host_of(url) == domain}
    return DomainHome(
        domain=domain,
        places=frozenset((*fetched, *(origin + path for origin in origins for path in USUAL_PLACES))),
        names=frozenset((*ids, *endpoints, *own)),
        endpoints=frozenset(endpoints),
    )


def find_link(home: DomainHome, told: LinkageDocument, organisation: str | None = None) -> str | None:
    """Why a document is of the agent of that home; None where nothing ties it. `organisation` stands behind the document, where
    it is another one than the host that it came from: its DNS led there."""
    speaker = organisation or host_of(told.url)
    if speaker is None or not is_of_organisation(speaker, home.domain):
        return None
    if not is_link(told.record):
        return _find_own_link(home, told)
    if any(normalize_url(binding.endpoint) in home.places for binding in told.record.bindings):
        return f"{told.url or speaker} points at the document of {home.domain}"
    return None


def _find_own_link(home: DomainHome, told: LinkageDocument) -> str | None:
    """A document that was found where the agent's are, or that gives its endpoints and no others."""
    if normalize_url(told.url) in home.places:
        return f"it was found at {told.url}"
    endpoints = {normalize_url(binding.endpoint) for binding in told.record.bindings}
    if endpoints & home.endpoints and all(host_of(each) == home.domain for each in endpoints):
        return f"it gives endpoints that the document of {home.domain} gives"
    return None


def is_of_organisation(host: str, domain: str) -> bool:
    """Whether two names have one owner, as far as names tell."""
    return registrable_domain(host) == registrable_domain(domain)


def hosts_of_record(record: AgentRecord) -> list[str]:
    """The hosts that a document speaks of, each once."""
    hosts = (host_of(binding.endpoint) for binding in record.bindings)
    return list(dict.fromkeys(host for host in hosts if host is not None))


def pointed_host(record: AgentRecord) -> str | None:
    """The host whose own document a pointer leads to: one of the usual places there, and nothing else."""
    if not is_link(record):
        return None
    endpoint = record.bindings[0].endpoint
    return host_of(endpoint) if urlsplit(normalize_url(endpoint)).path in USUAL_PLACES else None


def host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def normalize_url(url: str) -> str:
    """Without what makes no difference: case of scheme and host, the usual port, a fragment."""
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


# ---- One agent, one record: what was fetched joins what its caller already holds of the same agent.
#
# `kinship` says what ties two documents; here the registrations that may be meant are looked up, and those of one agent are put
# together. Only records of the caller take part: what another owner holds stays as it is, whatever is said of it.

_ANNOUNCED = "announce"

_POINTING = "ard"


class LinkedDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a domain as they are to be registered, the record that they go into, and others of the same agent."""

    publications: tuple[Publication, ...]
    into: Registration | None = None
    others: tuple[Registration, ...] = ()


class RecordLinker:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # --- A document that was fetched joins the agent of a domain ---------------------------------

    async def beside(self, publication: Publication) -> Publication:
        """With the name of the agent whose domain it speaks of, where the caller holds that one and something ties them."""
        publication = await self._with_proof(publication)
        told = linkage_document(publication)
        for host in dict.fromkeys((host_of(told.url), *hosts_of_record(told.record))):
            held = await self._find_own(publication.principal, f"agent:{host}") if host else None
            if host is None or held is None or held.id in told.names or not self._is_free(publication, held):
                continue
            home = home_of(host, _own_documents(held, host))
            tie = find_link(home, told) if home.names else None
            if tie is not None:
                return link_publication(publication, held.id, tie)
        return publication

    async def _with_proof(self, publication: Publication) -> Publication:
        """The very document that its domain led to is worth as much when it is fetched from its address."""
        decoded, digest = publication.decoded, hashlib.sha256(publication.document).hexdigest()
        for name in (decoded.record.id, decoded.source_id, *decoded.aliases):
            held = await self._find_own(publication.principal, name)
            source = held.source(publication.dialect) if held is not None else None
            if source is not None and source.via == DOMAIN_VIA and source.digest == digest:
                return msgspec.structs.replace(publication, verdicts=_trust_evidence(source))
        return publication

    def can_link(self, principal: Principal, home: DomainHome) -> bool:
        """Whether the agent of that home is nobody's, or the caller's."""
        return self._holder(home.agent) is None or self._own_entry(principal, home.agent) is not None

    async def _find_own(self, principal: Principal, name: str) -> Registration | None:
        entry = self._own_entry(principal, name)
        return next(iter(await self._registry.registrations([entry.id])), None) if entry is not None else None

    def _own_entry(self, principal: Principal, name: str) -> CatalogEntry | None:
        entry = self._holder(name)
        return entry if entry is not None and entry.owner == (principal.subject or "anonymous") else None

    def _own_hosted(self, principal: Principal, domain: str) -> CatalogEntry | None:
        """The agent that is served here under the domain itself."""
        entry = self._registry.hosted(domain)
        return entry if entry is not None and entry.owner == (principal.subject or "anonymous") else None

    def _is_free(self, publication: Publication, held: Registration) -> bool:
        """Whether its own id is nobody's, or that agent's already, and the agent has room for it."""
        decoded = publication.decoded
        holder = self._holder(decoded.record.id)
        return (holder is None or holder.id == held.id) and _has_place(held, publication.dialect, decoded.source_id)

    # --- The agent of a domain joins what is known of it -----------------------------------------

    async def link_domain_documents(self, domain: str, publications: Sequence[Publication]) -> LinkedDocuments:
        """The documents of a domain, for the one record that the caller holds of its agent. Names that another owner, or another
        record of the agent, holds are left there. What was written from the DNS alone takes no document's place."""
        home = home_of(domain, map(linkage_document, publications))
        known = await self._known(publications[0].principal, home)
        into = known[0] if known else None
        described = _find_described(into) if into is not None else None
        if described is not None and not any(map(_is_fetched, publications)):
            publications = [_republish(described, publications[0].principal, linkage_document(publications[0]).names)]
        mine = [self._for_record(each, into) for each in publications]
        return LinkedDocuments(publications=tuple(mine), into=into, others=tuple(known[1:]))

    async def fold(self, joined: LinkedDocuments) -> None:
        """Once the documents of the domain are in: further records of the same agent end, and what they held goes on in the one.
        Where that would change where a verified agent is reached, they stay."""
        into, principal = joined.into, joined.publications[0].principal
        for other in joined.others:
            now = await self._registry.registrations([into.id]) if into is not None else []
            if not now or not _can_merge(other, now[0]):
                continue
            await self._registry.withdraw(principal, other.id, via=DOMAIN_VIA)
            names = (other.id, *other.aliases)
            for each in _carry_over(other, now[0], principal) or joined.publications[:1]:
                await self._registry.publish(_also_named(_with_id(each, now[0].id), *names))

    def _for_record(self, publication: Publication, into: Registration | None) -> Publication:
        """`source_id` stays what the document says; as what it is registered is decided here."""
        decoded, owner = publication.decoded, publication.principal.subject or "anonymous"
        agent_id = into.id if into is not None else decoded.record.id
        free = [
            name
            for name in (decoded.record.id, *decoded.aliases)
            if (holder := self._holder(name)) is None or (holder.owner == owner and holder.id == agent_id)
        ]
        return _with_aliases(_with_id(publication, agent_id), tuple(name for name in free if name != agent_id))

    def _holder(self, name: str) -> CatalogEntry | None:
        return self._registry.entries.find_named(name)

    async def _known(self, principal: Principal, home: DomainHome) -> list[Registration]:
        """What the caller holds of that agent: what is served under the domain, else what has its name, then the oldest."""
        ids = [entry.id for name in sorted(home.names) if (entry := self._own_entry(principal, name)) is not None]
        own = self._own_hosted(principal, home.domain) or self._own_entry(principal, home.agent)
        maybe = [agent_id async for agent_id in self._of_organisation(principal, home.domain)]
        called = self._own_entry(principal, home.agent)
        named = {*ids, *(entry.id for entry in (own, called) if entry is not None)}
        wanted = list(dict.fromkeys((*named, *maybe)))[: limits.LINKAGE_CANDIDATES]
        held = await self._registry.registrations(wanted)
        found = [each for each in held if each.id in named or _is_same_agent(each, home)]
        return sorted(found, key=lambda each: (own is None or each.id != own.id, each.created_at, each.id))

    async def _of_organisation(self, principal: Principal, domain: str) -> AsyncIterator[str]:
        """Ids of the caller that are of the organisation. Many agents are passed over in small turns."""
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


def link_publication(publication: Publication, agent_id: str, tie: str) -> Publication:
    """As a further document of an agent, and why."""
    named = _also_named(publication, agent_id)
    warning = f"It is taken for {agent_id}: {tie}."
    decoded = msgspec.structs.replace(named.decoded, warnings=(*named.decoded.warnings, warning))
    return msgspec.structs.replace(named, decoded=decoded)


def _has_place(held: Registration, dialect: str, source_id: str) -> bool:
    """A record has one document of each dialect: another entry of a catalogue does not take the place of the first."""
    source = held.source(dialect)
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


def _own_documents(held: Registration, domain: str) -> list[LinkageDocument]:
    """Those that this service fetched from the domain, or was led to by it."""
    return [
        each
        for source in held.sources
        if source.via == DOMAIN_VIA or (source.via in FETCHED_VIA and source.dialect == "adp")
        for each in (_source_document(source),)
        if source.via == DOMAIN_VIA or (host_of(each.url) == domain == domain_of(source.id))
    ]


def _source_document(source: SourceDocument) -> LinkageDocument:
    decoded = decode_again(source.document, source.dialect, source.url, source.received_at)
    return LinkageDocument(url=source.url or "", record=decoded.record, names=(decoded.record.id, *decoded.aliases))


def _is_same_agent(held: Registration, home: DomainHome) -> bool:
    return any(source.via in FETCHED_VIA and find_link(home, _source_document(source)) for source in held.sources)


def _can_merge(other: Registration, into: Registration) -> bool:
    """Nothing is shown to others than before, nothing that is signed for its own id or served here is moved, and what is proven
    of an agent is not lent to endpoints that its domain does not give."""
    alike = (other.visibility, other.invitees, other.owner) == (into.visibility, into.invitees, into.owner)
    if not alike or other.hosted is not None or any(source.dialect == _ANNOUNCED for source in other.sources):
        return False
    verified = level_of(verdicts_of(into)) == "verified"
    return all(
        _has_place(into, source.dialect, source.id) if is_link(_source_document(source).record) else not verified
        for source in other.sources
        if into.source(source.dialect) is None or source.dialect == _POINTING
    )


def _carry_over(other: Registration, into: Registration, principal: Principal) -> list[Publication]:
    return [_republish(source, principal) for source in other.sources if into.source(source.dialect) is None]


def _trust_evidence(source: SourceDocument) -> tuple[Verdict, ...]:
    """What was found of it elsewhere than in the document."""
    return tuple(verdict for verdict in source.verdicts if verdict.check in (*VERIFIED_LEVELS, SIGNATURE))


def _is_fetched(publication: Publication) -> bool:
    return "://" in (publication.source_url or "")


def _find_described(held: Registration) -> SourceDocument | None:
    """The newest document of an agent that somebody wrote: not made of the DNS, and not an announcement, which comes again."""
    written = (each for each in held.sources if each.via != DOMAIN_VIA or "://" in (each.url or ""))
    return next((each for each in written if each.dialect != _ANNOUNCED), None)


def _republish(source: SourceDocument, principal: Principal, names: tuple[str, ...] = ()) -> Publication:
    """A document as it came, with what its domain proved of it, and further names."""
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
