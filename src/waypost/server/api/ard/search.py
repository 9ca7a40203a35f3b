"""Which entries an ARD question is about, for search, explore and the list alike: one matched set, one cutoff (ARD-26).

Filters look at the facts that are at hand; where a path needs whole entries, those that pass the rest are looked at, within
a budget. What a text matches is what the ranker finds, without its regard for owners and trust: the score is relevance alone
(ARD-20), and pages follow it strictly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from waypost import limits
from waypost.errors import RateLimited
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.protocols.ard.catalog import LISTED
from waypost.protocols.ard.query import ArdFilter, FacetRequest, FilterClause, values_at
from waypost.registry.registry import Registry
from waypost.server.catalog_entries import (
    INDEXED_MEMBERS,
    ArdEntryTable,
    ArdEntryWriter,
    ArdFacts,
    extract_facts,
    with_publisher,
)
from waypost.server.registration_table import TimeSlice
from waypost.server.renderer import Renderer

_SCALE: Final = 100
_CUTOFF: Final = 1  # of the scale: what is below is not in the answer of search, nor counted by explore
_PAGE: Final = 50


class ArdMatch(NamedTuple):
    """In the order of an answer: the highest score first, equals by their names."""

    score: int
    identifier: str
    id: str


PagePosition = tuple[int, str]  # the score and the name of the last one shown


class ArdSearch:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self.writer = ArdEntryWriter(registry, renderer)
        self._table = ArdEntryTable(registry, self.writer)

    async def matched(self, text: str, narrowed: ArdFilter, principal: Principal) -> dict[str, int]:
        """What a text and a filter match, each id with its score, best first."""
        fits = (await self.filter_ids(narrowed, principal)).__contains__ if narrowed.values else self._is_listed
        return await self._ranked(text, fits, principal)

    async def _ranked(self, text: str, fits: Callable[[str], bool], principal: Principal) -> dict[str, int]:
        query = Query(text=text, limit=limits.ARD_MATCHES, diversity=False)
        ranking = await self._registry.rank(query, principal, is_match=fits)
        scored = ((hit.id, round(hit.score * _SCALE)) for hit in ranking.hits)
        return {agent_id: score for agent_id, score in scored if score >= _CUTOFF}

    def _is_listed(self, agent_id: str) -> bool:
        entry = self._registry.entries.find(agent_id)
        return entry is not None and entry.status in LISTED

    async def page(
        self, matched: Mapping[str, int], after: PagePosition | None, size: int
    ) -> tuple[list[ArdMatch], bool]:
        """The next of them, and whether there are more. Names are looked up for the scores that the page needs only."""
        shown: list[ArdMatch] = []
        for score, group in groupby(matched, key=matched.__getitem__):
            if after is not None and score > after[0]:
                continue
            if len(shown) > size:
                break
            named = sorted((await self._names(list(group))).items(), key=lambda item: item[1])
            shown += (
                ArdMatch(score, name, agent_id)
                for agent_id, name in named
                if after is None or (-score, name) > (-after[0], after[1])
            )
        return shown[:size], len(shown) > size

    async def _names(self, ids: Sequence[str]) -> dict[str, str]:
        """The identifiers of those that are entries; registries are none."""
        known = {agent_id: facts for agent_id in ids if (facts := self._table.facts.get(agent_id)) is not None}
        missing = [agent_id for agent_id in ids if agent_id not in known]
        for registration in await self._registry.registrations(missing) if missing else ():
            known[registration.id] = self.writer.facts(registration)
        return {agent_id: facts.identifier for agent_id, facts in known.items() if not facts.is_registry}

    async def filter_ids(self, narrowed: ArdFilter, principal: Principal) -> set[str]:
        """The ids of listed agents that pass a filter."""
        found = await self._visible(principal)
        at_hand = narrowed.over(INDEXED_MEMBERS)
        if at_hand.values:
            facts, pace, kept = self._table.facts, TimeSlice(), list[str]()
            for agent_id in found:
                await pace.step()
                if agent_id in facts and at_hand.matches(facts[agent_id].as_entry()):
                    kept.append(agent_id)
            found = kept
        beyond = narrowed.over(path for path in narrowed.values if path not in INDEXED_MEMBERS)
        if not beyond.values:
            return set(found)
        return {
            registration.id
            async for registration in self._looked_at(found)
            if beyond.matches(with_publisher(self.writer.listed(registration)))
        }

    async def _visible(self, principal: Principal) -> list[str]:
        """Listed agents that the caller sees. Registries are no answers: they are told where others may be asked."""
        facts = self._table.facts
        return [agent_id for agent_id in await self._seen(principal) if not facts[agent_id].is_registry]

    async def _seen(self, principal: Principal) -> list[str]:
        await self._table.build()
        entries = self._registry.entries
        listed = entries.ids_of(entries.select(audience(principal)))
        return [agent_id for agent_id in listed if agent_id in self._table.facts]

    async def _looked_at(self, ids: Sequence[str]) -> AsyncIterator[Registration]:
        if len(ids) > limits.ARD_SCAN_ENTRIES:
            raise RateLimited(
                f"This path needs {len(ids)} entries to be looked at; one request looks at {limits.ARD_SCAN_ENTRIES}.",
                retry_after=1,
                hint=f"Narrow it by {', '.join(sorted(INDEXED_MEMBERS))}.",
            )
        pace = TimeSlice()
        for start in range(0, len(ids), _PAGE):
            for registration in await self._registry.registrations(ids[start : start + _PAGE], cached=False):
                await pace.step()
                yield registration

    # --- Facets ----------------------------------------------------------------------------------

    async def counted(self, facets: Sequence[FacetRequest], ids: Iterable[str]) -> dict[str, Counter[str]]:
        """For each field its values, each with the number of entries that have it."""
        counts = {facet.field: Counter[str]() for facet in facets}
        at_hand = [field for field in counts if field in INDEXED_MEMBERS]
        beyond = [field for field in counts if field not in INDEXED_MEMBERS]
        found, facts, pace = list(ids), self._table.facts, TimeSlice()
        for agent_id in found if at_hand else ():
            await pace.step()
            if agent_id in facts:
                _count(counts, at_hand, facts[agent_id].as_entry())
        if beyond:
            async for registration in self._looked_at(found):
                _count(counts, beyond, self.writer.listed(registration))
        return counts

    async def explore_ids(self, text: str | None, narrowed: ArdFilter, principal: Principal) -> list[str]:
        """Everything that is matched, text or none."""
        found = await self.filter_ids(narrowed, principal)
        return list(found if text is None else await self._ranked(text, found.__contains__, principal))

    # --- The list --------------------------------------------------------------------------------

    async def listed(self, clauses: Sequence[FilterClause], principal: Principal) -> list[tuple[str, ArdFacts]]:
        """Every listed agent that all clauses admit, in no order."""
        facts, pace, found = self._table.facts, TimeSlice(), await self._visible(principal)
        quick = [clause for clause in clauses if clause.field != "description"]
        kept: list[tuple[str, ArdFacts]] = []
        for agent_id in found:
            await pace.step()
            known = facts.get(agent_id)
            if known is not None and all(clause.matches(known) for clause in quick):
                kept.append((agent_id, known))
        if len(quick) == len(clauses):
            return kept
        described = [clause for clause in clauses if clause.field == "description"]
        whole: list[tuple[str, ArdFacts]] = []
        async for registration in self._looked_at([agent_id for agent_id, _ in kept]):
            known = extract_facts(self.writer.listed(registration), registration, whole=True)
            if all(clause.matches(known) for clause in described):
                whole.append((registration.id, known))
        return whole

    async def registries(self, principal: Principal) -> list[str]:
        """Where else somebody may ask, in the order of their names."""
        facts = self._table.facts
        found = [agent_id for agent_id in await self._seen(principal) if facts[agent_id].is_registry]
        return sorted(found, key=lambda agent_id: facts[agent_id].identifier)[: limits.ARD_REFERRALS]


def _count(counts: Mapping[str, Counter[str]], fields: Iterable[str], entry: Mapping[str, Any]) -> None:
    """Once for each value that the entry has, however often it has it."""
    for field in fields:
        counts[field].update(set(values_at(entry, field)))
