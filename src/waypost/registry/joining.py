"""One agent, one record: what was fetched joins what its caller already holds of the same agent.

`kinship` says what ties two documents; here the registrations that may be meant are looked up, and those of one agent are put
together. Only records of the caller take part: what another owner holds stays as it is, whatever is said of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from waypost import limits
from waypost.model.merge import only_points
from waypost.model.names import domain_of
from waypost.model.principal import Principal
from waypost.model.registration import Entry, Registration, Source, verdicts_of
from waypost.model.resolution import RUNGS, SIGNATURE
from waypost.model.verdict import Verdict, level_of
from waypost.registry.decisions import decoded_again
from waypost.registry.engine import Registry
from waypost.registry.kinship import FETCHED, Home, Told, find_tie, home_of, host_of, places_of
from waypost.registry.publication import DOMAIN_VIA, Publication
from waypost.trust.domains import registrable_of

_ANNOUNCED = "announce"
_POINTING = "ard"


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a domain as they are to be registered, the record that they go into, and others of the same agent."""

    publications: tuple[Publication, ...]
    into: Registration | None = None
    others: tuple[Registration, ...] = ()


class Joining:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # --- A document that was fetched joins the agent of a domain ---------------------------------

    async def beside(self, publication: Publication) -> Publication:
        """With the name of the agent whose domain it speaks of, where the caller holds that one and something ties them."""
        publication = await self._with_proof(publication)
        told = told_of(publication)
        for host in dict.fromkeys((host_of(told.url), *places_of(told.record))):
            held = await self._find_own(publication.principal, f"agent:{host}") if host else None
            if host is None or held is None or held.id in told.names or not self._is_free(publication, held):
                continue
            home = home_of(host, _own_documents(held, host))
            tie = find_tie(home, told) if home.names else None
            if tie is not None:
                return tied(publication, held.id, tie)
        return publication

    async def _with_proof(self, publication: Publication) -> Publication:
        """The very document that its domain led to is worth as much when it is fetched from its address."""
        decoded, digest = publication.decoded, hashlib.sha256(publication.document).hexdigest()
        for name in (decoded.record.id, decoded.source_id, *decoded.aliases):
            held = await self._find_own(publication.principal, name)
            source = held.source(publication.dialect) if held is not None else None
            if source is not None and source.via == DOMAIN_VIA and source.digest == digest:
                return msgspec.structs.replace(publication, verdicts=_rungs(source))
        return publication

    def may_join(self, principal: Principal, home: Home) -> bool:
        """Whether the agent of that home is nobody's, or the caller's."""
        return (
            self._registry.catalogue.resolve(home.agent) is None or self._own_entry(principal, home.agent) is not None
        )

    async def _find_own(self, principal: Principal, name: str) -> Registration | None:
        entry = self._own_entry(principal, name)
        return next(iter(await self._registry.registrations([entry.id])), None) if entry is not None else None

    def _own_entry(self, principal: Principal, name: str) -> Entry | None:
        entry = self._holder(name)
        return entry if entry is not None and entry.owner == (principal.subject or "anonymous") else None

    def _own_hosted(self, principal: Principal, domain: str) -> Entry | None:
        """The agent that is served here under the domain itself."""
        entry = self._registry.hosted(domain)
        return entry if entry is not None and entry.owner == (principal.subject or "anonymous") else None

    def _is_free(self, publication: Publication, held: Registration) -> bool:
        """Whether its own id is nobody's, or that agent's already, and the agent has room for it."""
        decoded = publication.decoded
        agent_id = self._registry.catalogue.resolve(decoded.record.id)
        return agent_id in (None, held.id) and _has_place(held, publication.dialect, decoded.source_id)

    # --- The agent of a domain joins what is known of it -----------------------------------------

    async def at_home(self, domain: str, publications: Sequence[Publication]) -> Joined:
        """The documents of a domain, for the one record that the caller holds of its agent. Names that another owner, or another
        record of the agent, holds are left there. What was written from the DNS alone takes no document's place."""
        home = home_of(domain, map(told_of, publications))
        known = await self._known(publications[0].principal, home)
        into = known[0] if known else None
        described = _find_described(into) if into is not None else None
        if described is not None and not any(map(_is_fetched, publications)):
            publications = [_again(described, publications[0].principal, told_of(publications[0]).names)]
        mine = [self._for_record(each, into) for each in publications]
        return Joined(publications=tuple(mine), into=into, others=tuple(known[1:]))

    async def fold(self, joined: Joined) -> None:
        """Once the documents of the domain are in: further records of the same agent end, and what they held goes on in the one.
        Where that would change where a verified agent is reached, they stay."""
        into, principal = joined.into, joined.publications[0].principal
        for other in joined.others:
            now = await self._registry.registrations([into.id]) if into is not None else []
            if not now or not _may_fold(other, now[0]):
                continue
            await self._registry.withdraw(principal, other.id, via=DOMAIN_VIA)
            names = (other.id, *other.aliases)
            for each in _carried(other, now[0], principal) or joined.publications[:1]:
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

    def _holder(self, name: str) -> Entry | None:
        agent_id = self._registry.catalogue.resolve(name)
        return self._registry.catalogue.find(agent_id) if agent_id is not None else None

    async def _known(self, principal: Principal, home: Home) -> list[Registration]:
        """What the caller holds of that agent: what is served under the domain, else what has its name, then the oldest."""
        ids = [entry.id for name in sorted(home.names) if (entry := self._own_entry(principal, name)) is not None]
        own = self._own_hosted(principal, home.domain) or self._own_entry(principal, home.agent)
        maybe = [agent_id async for agent_id in self._of_organisation(principal, home.domain)]
        called = self._own_entry(principal, home.agent)
        named = {*ids, *(entry.id for entry in (own, called) if entry is not None)}
        wanted = list(dict.fromkeys((*named, *maybe)))[: limits.KIN_CANDIDATES]
        held = await self._registry.registrations(wanted)
        found = [each for each in held if each.id in named or _is_kin(each, home)]
        return sorted(found, key=lambda each: (own is None or each.id != own.id, each.created_at, each.id))

    async def _of_organisation(self, principal: Principal, domain: str) -> AsyncIterator[str]:
        """Ids of the caller that are of the organisation. Many agents are passed over in small turns."""
        catalogue, organisation = self._registry.catalogue, registrable_of(domain)
        ids = list(catalogue.ids())
        for start in range(0, len(ids), limits.KIN_TURN):
            for agent_id in ids[start : start + limits.KIN_TURN]:
                if organisation in agent_id and self._own_entry(principal, agent_id) is not None:
                    named = domain_of(agent_id)
                    if named is not None and registrable_of(named) == organisation:
                        yield agent_id
            await asyncio.sleep(0)


def told_of(publication: Publication) -> Told:
    decoded = publication.decoded
    names = (decoded.record.id, decoded.source_id, *decoded.aliases)
    return Told(url=publication.source_url or "", record=decoded.record, names=names)


def tied(publication: Publication, agent_id: str, tie: str) -> Publication:
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


def _own_documents(held: Registration, domain: str) -> list[Told]:
    """Those that this service fetched from the domain, or was led to by it."""
    return [
        each
        for source in held.sources
        if source.via == DOMAIN_VIA or (source.via in FETCHED and source.dialect == "adp")
        for each in (_told(source),)
        if source.via == DOMAIN_VIA or (host_of(each.url) == domain == domain_of(source.id))
    ]


def _told(source: Source) -> Told:
    decoded = decoded_again(source.document, source.dialect, source.url, source.received_at)
    return Told(url=source.url or "", record=decoded.record, names=(decoded.record.id, *decoded.aliases))


def _is_kin(held: Registration, home: Home) -> bool:
    return any(source.via in FETCHED and find_tie(home, _told(source)) for source in held.sources)


def _may_fold(other: Registration, into: Registration) -> bool:
    """Nothing is shown to others than before, nothing that is signed for its own id or served here is moved, and what is proven
    of an agent is not lent to endpoints that its domain does not give."""
    alike = (other.visibility, other.invitees, other.owner) == (into.visibility, into.invitees, into.owner)
    if not alike or other.hosted is not None or any(source.dialect == _ANNOUNCED for source in other.sources):
        return False
    verified = level_of(verdicts_of(into)) == "verified"
    return all(
        _has_place(into, source.dialect, source.id) if only_points(_told(source).record) else not verified
        for source in other.sources
        if into.source(source.dialect) is None or source.dialect == _POINTING
    )


def _carried(other: Registration, into: Registration, principal: Principal) -> list[Publication]:
    return [_again(source, principal) for source in other.sources if into.source(source.dialect) is None]


def _rungs(source: Source) -> tuple[Verdict, ...]:
    """What was found of it elsewhere than in the document."""
    return tuple(verdict for verdict in source.verdicts if verdict.check in (*RUNGS, SIGNATURE))


def _is_fetched(publication: Publication) -> bool:
    return "://" in (publication.source_url or "")


def _find_described(held: Registration) -> Source | None:
    """The newest document of an agent that somebody wrote: not made of the DNS, and not an announcement, which comes again."""
    written = (each for each in held.sources if each.via != DOMAIN_VIA or "://" in (each.url or ""))
    return next((each for each in written if each.dialect != _ANNOUNCED), None)


def _again(source: Source, principal: Principal, names: tuple[str, ...] = ()) -> Publication:
    """A document as it came, with what its domain proved of it, and further names."""
    decoded = decoded_again(source.document, source.dialect, source.url, source.received_at)
    aliases = tuple(dict.fromkeys((*decoded.aliases, *names)))
    return Publication(
        dialect=source.dialect,
        document=source.document,
        decoded=msgspec.structs.replace(decoded, aliases=aliases),
        verdicts=_rungs(source),
        principal=principal,
        via=source.via,
        source_url=source.url,
    )
