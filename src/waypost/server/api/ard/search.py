"""Which entries match an ARD query. Search, explore and list use the same matches and the same cutoff (ARD-26).

Filters are evaluated on a table of indexed members. A filter on another path is evaluated on the complete entries that
pass the rest, within a budget. The score is the relevance of the ranker alone (ARD-20), and pages follow it strictly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import RateLimited
from waypost.model.json import JsonObject
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.protocols.ard.codec import CATALOG_STATUSES, catalog_entry, encode_without_residue, find_urn
from waypost.protocols.ard.query import ArdFilter, FacetRequest, FilterClause, values_at
from waypost.registry.registry import Registry
from waypost.server.registration_table import RegistrationTable
from waypost.server.renderer import ArdEntryWriter, Renderer
from waypost.time_slice import TimeSlice

INDEXED_MEMBERS: Final = frozenset(
    ("identifier", "displayName", "type", "publisher", "tags", "capabilities", "version", "updatedAt")
)
_REGISTRY_TYPES: Final = ("application/ai-registry+json", "application/ai-registry")
_SCALE: Final = 100
_MIN_SCORE: Final = 1  # matches below are neither found by search nor counted by explore
_FETCH_SIZE: Final = 50
_FIRST_HITS: Final = 30  # ranked beyond the first page, so that all matches with the score of its last one are known


class ArdFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The indexed members of an entry, and the times by which a list is sorted."""

    identifier: str
    display_name: str
    type: str
    publisher: str
    tags: tuple[str, ...]
    capabilities: tuple[str, ...]
    version: str
    updated: str  # as the entry spells it
    updated_at: float
    created_at: float  # of the registration: entries have no such member
    description: str = ""

    @property
    def is_registry(self) -> bool:
        """True for a registry, which is a referral and not a result (§10)."""
        return self.type.partition(";")[0].strip().lower() in _REGISTRY_TYPES

    def as_entry(self) -> Mapping[str, Any]:
        """The indexed members as an entry, for filters and facets."""
        return {
            "identifier": self.identifier,
            "displayName": self.display_name,
            "type": self.type,
            "publisher": self.publisher,
            "tags": self.tags,
            "capabilities": self.capabilities,
            **({"version": self.version} if self.version else {}),
            **({"updatedAt": self.updated} if self.updated else {}),
        }


def extract_facts(entry: JsonObject, registration: Registration, *, with_description: bool = False) -> ArdFacts:
    updated = _string(entry, "updatedAt")
    return ArdFacts(
        identifier=entry["identifier"],
        display_name=entry["displayName"],
        type=intern(entry["type"]),
        publisher=intern(_publisher_of(entry["identifier"])),
        tags=tuple(map(intern, _strings(entry, "tags"))),
        capabilities=tuple(map(intern, _strings(entry, "capabilities"))),
        version=_string(entry, "version"),
        updated=updated,
        updated_at=find_instant(updated) or registration.changed_at,
        created_at=registration.created_at,
        description=_string(entry, "description") if with_description else "",
    )


def _publisher_of(identifier: str) -> str:
    """ARD-22: the publisher that the identifier names, whatever the entry says."""
    urn = find_urn(identifier)
    return urn.publisher if urn is not None else ""


def _string(entry: JsonObject, name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _strings(entry: JsonObject, name: str) -> list[str]:
    value = entry.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


class _FactTable(RegistrationTable):
    """The facts of all registrations, by id."""

    def __init__(self, registry: Registry, extract: Callable[[Registration], ArdFacts]) -> None:
        super().__init__(registry)
        self._extract = extract
        self.facts: dict[str, ArdFacts] = {}

    def _put(self, registration: Registration) -> None:
        self.facts[registration.id] = self._extract(registration)

    def _drop(self, agent_id: str) -> None:
        self.facts.pop(agent_id, None)


class ArdMatch(NamedTuple):
    score: int
    identifier: str
    id: str


PagePosition = tuple[int, str]  # the score and the identifier of the last result of a page


class ArdSearch:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self._writer = ArdEntryWriter(registry, renderer)
        self._table = _FactTable(registry, self._facts_of)
        self._recent: LruCache[str, tuple[int, ArdFacts]] = LruCache(limits.ARD_FACTS_CACHE)

    def entry(self, registration: Registration) -> JsonObject:
        """The entry in the form of ARD's own schema."""
        return catalog_entry(self._writer.entry(registration), self._renderer.host)

    def _facts_of(self, registration: Registration) -> ArdFacts:
        if registration.source("ard") is None:
            context = self._renderer.context(registration, self._registry.clock.now())
            entry = encode_without_residue(registration.record, context)
            if entry is not None:
                return extract_facts(entry, registration)
        return extract_facts(self.entry(registration), registration)

    # --- Search ----------------------------------------------------------------------------------

    async def search(
        self,
        text: str,
        filters: ArdFilter,
        principal: Principal,
        after: PagePosition | None,
        size: int,
        foreign: Mapping[str, Registration] | None = None,
    ) -> tuple[list[ArdMatch], bool]:
        """A page of the matches, best first, and whether there are more. `foreign` are entries of other registries.

        The first page is nearly always among the first hits, and ranking a few takes much less time than all of them.
        """
        foreign = foreign or {}
        is_match = (await self.filter_ids(filters, principal)).__contains__ if filters.values else self._is_listed
        for count in (size + _FIRST_HITS, limits.ARD_MATCHES) if after is None else (limits.ARD_MATCHES,):
            scores = await self._rank(text, is_match, principal, count, tuple(foreign.values()))
            if is_cut := len(scores) == count < limits.ARD_MATCHES:
                lowest = min(scores.values())  # others may have this score, too
                scores = {agent_id: score for agent_id, score in scores.items() if score > lowest}
            matches, has_more = await self.page(scores, after, size, foreign)
            if has_more or not is_cut:
                break
        return matches, has_more

    def filter_foreign(self, foreign: Sequence[Registration], filters: ArdFilter) -> dict[str, Registration]:
        """Those that pass the filters, by id; registries are no results."""
        found = {}
        for registration in foreign:
            entry = self.entry(registration)
            facts = extract_facts(entry, registration)
            if not facts.is_registry and filters.matches({**entry, "publisher": facts.publisher}):
                found[registration.id] = registration
        return found

    async def _rank(
        self,
        text: str,
        is_match: Callable[[str], bool],
        principal: Principal,
        count: int = limits.ARD_MATCHES,
        foreign: Sequence[Registration] = (),
    ) -> dict[str, int]:
        """The scores of the best `count` matches by id, best first. A dead agent, which ranks after all live ones, gets the
        score of its place: pages follow the order of the scores (ARD-24)."""
        query = Query(text=text, limit=count, depth=limits.ARD_MATCHES, diversity=False)
        ranking = await self._registry.rank(query, principal, is_match=is_match, foreign=foreign)
        scored = ((hit.id, round(hit.score * _SCALE)) for hit in ranking.hits)
        matches = [(agent_id, score) for agent_id, score in scored if score >= _MIN_SCORE]
        shown = accumulate((score for _, score in matches), min)
        return {agent_id: score for (agent_id, _), score in zip(matches, shown, strict=True)}

    def _is_listed(self, agent_id: str) -> bool:
        entry = self._registry.entries.find(agent_id)
        return entry is not None and entry.status in CATALOG_STATUSES

    async def page(
        self,
        scores: Mapping[str, int],
        after: PagePosition | None,
        size: int,
        foreign: Mapping[str, Registration] | None = None,
    ) -> tuple[list[ArdMatch], bool]:
        """The next matches by score, then identifier, and whether there are more. Identifiers are looked up only for
        the scores that the page needs."""
        matches: list[ArdMatch] = []
        for score, ids in groupby(scores, key=scores.__getitem__):
            if after is not None and score > after[0]:
                continue
            if len(matches) > size:
                break
            identifiers = sorted((await self._identifiers(list(ids), foreign or {})).items(), key=lambda item: item[1])
            matches += (
                ArdMatch(score, identifier, agent_id)
                for agent_id, identifier in identifiers
                if after is None or (-score, identifier) > (-after[0], after[1])
            )
        return matches[:size], len(matches) > size

    async def _identifiers(self, ids: Sequence[str], foreign: Mapping[str, Registration]) -> dict[str, str]:
        """The identifiers of agents, without registries."""
        known = {agent_id: self._facts_of(foreign[agent_id]) for agent_id in ids if agent_id in foreign}
        known |= {
            agent_id: facts
            for agent_id in ids
            if agent_id not in foreign and (facts := self._find_facts(agent_id)) is not None
        }
        missing = [agent_id for agent_id in ids if agent_id not in known]
        for registration in await self._registry.registrations(missing) if missing else ():
            facts = known[registration.id] = self._facts_of(registration)
            self._recent.put(registration.id, (registration.revision, facts))
        return {agent_id: facts.identifier for agent_id, facts in known.items() if not facts.is_registry}

    def _find_facts(self, agent_id: str) -> ArdFacts | None:
        """The facts of an agent if they are in memory and current."""
        facts = self._table.facts.get(agent_id)
        if facts is not None:
            return facts
        revision, facts = self._recent.get(agent_id) or (None, None)
        entry = self._registry.entries.find(agent_id)
        return facts if entry is not None and entry.revision == revision else None

    async def filter_ids(self, filters: ArdFilter, principal: Principal) -> set[str]:
        """The ids of listed agents that pass the filters."""
        ids = await self._agent_ids(principal)
        indexed = filters.restrict(INDEXED_MEMBERS)
        if indexed.values:
            facts, time_slice, passed = self._table.facts, TimeSlice(), list[str]()
            for agent_id in ids:
                await time_slice.step()
                if agent_id in facts and indexed.matches(facts[agent_id].as_entry()):
                    passed.append(agent_id)
            ids = passed
        others = filters.restrict(path for path in filters.values if path not in INDEXED_MEMBERS)
        if not others.values:
            return set(ids)
        return {registration.id async for registration, entry in self._scan(ids) if others.matches(entry)}

    async def _agent_ids(self, principal: Principal) -> list[str]:
        """The ids of listed agents that the caller sees, without registries."""
        facts = self._table.facts
        return [agent_id for agent_id in await self._listed_ids(principal) if not facts[agent_id].is_registry]

    async def _listed_ids(self, principal: Principal) -> list[str]:
        await self._table.build()
        entries = self._registry.entries
        ids = entries.ids_of(entries.select(audience(principal), statuses=CATALOG_STATUSES))
        return [agent_id for agent_id in ids if agent_id in self._table.facts]

    async def _scan(self, ids: Sequence[str]) -> AsyncIterator[tuple[Registration, JsonObject]]:
        """Registrations with their complete entries, which have the publisher of their identifier (ARD-22)."""
        if len(ids) > limits.ARD_SCAN_ENTRIES:
            raise RateLimited(
                f"This path needs a scan of {len(ids)} entries; the limit is {limits.ARD_SCAN_ENTRIES}.",
                retry_after=1,
                hint=f"Narrow it by {', '.join(sorted(INDEXED_MEMBERS))}.",
            )
        time_slice = TimeSlice()
        for start in range(0, len(ids), _FETCH_SIZE):
            for registration in await self._registry.registrations(ids[start : start + _FETCH_SIZE], cached=False):
                await time_slice.step()
                entry = self.entry(registration)
                yield registration, {**entry, "publisher": _publisher_of(entry["identifier"])}

    # --- Facets ----------------------------------------------------------------------------------

    async def count(
        self, facets: Sequence[FacetRequest], text: str | None, filters: ArdFilter, principal: Principal
    ) -> dict[str, Counter[str]]:
        """For each field of the matches, how many entries have each value."""
        ids = list(await self.filter_ids(filters, principal))
        if text is not None:
            ids = list(await self._rank(text, set(ids).__contains__, principal))
        counts = {facet.field: Counter[str]() for facet in facets}
        indexed = [field for field in counts if field in INDEXED_MEMBERS]
        others = [field for field in counts if field not in INDEXED_MEMBERS]
        facts, time_slice = self._table.facts, TimeSlice()
        for agent_id in ids if indexed else ():
            await time_slice.step()
            if agent_id in facts:
                _count(counts, indexed, facts[agent_id].as_entry())
        if others:
            async for _, entry in self._scan(ids):
                _count(counts, others, entry)
        return counts

    # --- List ------------------------------------------------------------------------------------

    async def list_agents(self, clauses: Sequence[FilterClause], principal: Principal) -> list[tuple[str, ArdFacts]]:
        """The ids and facts of listed agents that match all clauses, unordered."""
        facts, time_slice = self._table.facts, TimeSlice()
        indexed = [clause for clause in clauses if clause.field != "description"]
        matches: list[tuple[str, ArdFacts]] = []
        for agent_id in await self._agent_ids(principal):
            await time_slice.step()
            known = facts.get(agent_id)
            if known is not None and all(clause.matches(known) for clause in indexed):
                matches.append((agent_id, known))
        others = [clause for clause in clauses if clause.field == "description"]
        if not others:
            return matches
        scanned = [
            (registration.id, extract_facts(entry, registration, with_description=True))
            async for registration, entry in self._scan([agent_id for agent_id, _ in matches])
        ]
        return [(agent_id, known) for agent_id, known in scanned if all(clause.matches(known) for clause in others)]

    async def registries(self, principal: Principal) -> list[str]:
        """The ids of registered registries, sorted by identifier."""
        facts = self._table.facts
        ids = [agent_id for agent_id in await self._listed_ids(principal) if facts[agent_id].is_registry]
        return sorted(ids, key=lambda agent_id: facts[agent_id].identifier)[: limits.ARD_REFERRALS]


def _count(counts: Mapping[str, Counter[str]], fields: Iterable[str], entry: Mapping[str, Any]) -> None:
    """Count each distinct value of an entry once."""
    for field in fields:
        counts[field].update(set(values_at(entry, field)))
