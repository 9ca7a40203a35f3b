"""Which agents have a capability.

It only narrows: what it names is matched card by card all the same. It knows ids of capabilities, with and without their
version, and the cards with more tags than the record (and so the tag index) holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from waypost import limits
from waypost.errors import InvalidCursor, RateLimited
from waypost.model.json import JsonObject
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.protocols.rtfs.codec import split_version
from waypost.protocols.rtfs.criteria import CapabilityPattern, DiscoverCriteria, glob_matches
from waypost.registry.find.empty_results import suggestion_warnings
from waypost.registry.registry import Registry
from waypost.server.registration_table import RegistrationTable, TimeSlice
from waypost.server.renderer import card_to_match, card_to_show


class CapabilityIndex(RegistrationTable):
    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._agents: dict[str, set[str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self.crowded: set[str] = set()

    def _put(self, registration: Registration) -> None:
        card = card_to_match(registration)
        names = [item["capability_id"] for item in card.get("capabilities") or ()]
        keys = tuple(dict.fromkeys((*names, *(split_version(name)[0] for name in names))))
        self._names[registration.id] = keys
        for key in keys:
            self._agents.setdefault(key, set()).add(registration.id)
        if len(card.get("discovery_tags") or ()) > limits.TAGS:
            self.crowded.add(registration.id)

    def _drop(self, agent_id: str) -> None:
        self.crowded.discard(agent_id)
        for key in self._names.pop(agent_id, ()):
            agents = self._agents.get(key)
            if agents is not None:
                agents.discard(agent_id)
                if not agents:
                    del self._agents[key]

    async def agents_with(self, capability: CapabilityPattern) -> set[str]:
        """Every agent that may have the capability."""
        found = set(self._agents.get(capability.text, ()))
        if capability.is_glob:
            found.update(await self._globbed(capability.text))
        for agent_id in _prefixes(capability.text):
            entry = self._registry.entries.find_named(agent_id)
            if entry is not None:
                found.add(entry.id)
        return found

    async def _globbed(self, pattern: str) -> set[str]:
        found: set[str] = set()
        pace = TimeSlice()
        for key in list(self._agents):
            await pace.step()
            if glob_matches(pattern, key):
                found.update(self._agents.get(key, ()))
        return found


def _prefixes(text: str) -> Iterable[str]:
    """What may be the agent in `{agent_id}/{capability_id}`: either part may hold a slash itself."""
    at = text.find("/")
    while at >= 0:
        yield text[:at]
        at = text.find("/", at + 1)


# ---- `rtfs.registry.discover`: narrow by the indices first, then match card by card, then order and page (rtfs.md §5).
#
# Matching many cards gives way to other requests every few milliseconds, and one request looks at a bounded number of them.

_PAGE = 50

_CACHED_BELOW = 1000  # more candidates than this are read past the record cache, which they would only empty

_RANKED_ABOVE = 5000  # with fewer candidates every text is looked at; with more the ranker chooses them

_RANKED = 1000

_SORTED_AT_ONCE = 1000

_CUT = f"text_search: only the {_RANKED} best were looked at; add another criterion to see the rest."

_PURPOSE = "rtfs"

Order = tuple[float, int, str]


class CardBudget:
    """How many cards a request may still look at: one budget for all calls of a batch."""

    def __init__(self, cards: int = limits.RTFS_SCAN_CARDS) -> None:
        self._left = cards

    def spend(self, cards: int) -> None:
        self._left -= cards
        if self._left < 0:
            raise RateLimited(
                f"One request looks at no more than {limits.RTFS_SCAN_CARDS} cards.",
                retry_after=1,
                hint="Narrow the search by agent_id, capability_id, discovery_tags or text_search, or send fewer calls.",
            )


@dataclass(frozen=True, slots=True)
class RtfsSearchResult:
    cards: list[JsonObject]
    total: int
    next_cursor: str | None
    warnings: tuple[str, ...] = ()


class _CandidateIds(NamedTuple):
    ids: list[str]
    warnings: tuple[str, ...] = ()


class CardSearch:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._index = CapabilityIndex(registry)

    async def find(
        self, criteria: DiscoverCriteria, principal: Principal, params: JsonObject, budget: CardBudget
    ) -> RtfsSearchResult:
        context = _context(principal, params)
        after = self._after(params.get("cursor"), context)
        candidates = await self._candidates(criteria, principal)
        best, total = await self._best(criteria, candidates.ids, after, budget)
        page, more = best[: criteria.limit], len(best) > criteria.limit
        return RtfsSearchResult(
            cards=await self._shown(criteria, page),
            total=total,
            next_cursor=self._cursor(page[-1][0], context) if more else None,
            warnings=(*candidates.warnings, *(() if total else self._suggestions(criteria, principal))),
        )

    def _suggestions(self, criteria: DiscoverCriteria, principal: Principal) -> Iterable[str]:
        """What may have been meant by tags that nobody carries; told where nothing else is."""
        return suggestion_warnings(self._registry.suggest(principal, tuple(criteria.tags)))

    async def _best(
        self, criteria: DiscoverCriteria, ids: Sequence[str], after: Order | None, budget: CardBudget
    ) -> tuple[list[tuple[Order, str]], int]:
        """The first of those that match, one more than asked for, and how many match in all."""
        best: list[tuple[Order, str]] = []
        total = 0
        pace = TimeSlice()
        async for registration in self._registrations(ids, budget):
            await pace.step()
            card = card_to_match(registration)
            if not criteria.matches(card):
                continue
            total += 1
            order = criteria.order(card)
            if after is None or order > after:
                best.append((order, registration.id))
            if len(best) > criteria.limit + _SORTED_AT_ONCE:
                best = sorted(best)[: criteria.limit + 1]
        return sorted(best)[: criteria.limit + 1], total

    async def _shown(self, criteria: DiscoverCriteria, page: list[tuple[Order, str]]) -> list[JsonObject]:
        scores = {agent_id: -order[0] if criteria.terms else None for order, agent_id in page}
        now = self._registry.clock.now()
        cards: list[JsonObject] = []
        pace = TimeSlice()
        for registration in await self._registry.registrations(list(scores)):
            await pace.step()
            cards.append(card_to_show(registration, now, scores[registration.id]))
        return cards

    async def _registrations(self, ids: Sequence[str], budget: CardBudget) -> AsyncIterator[Registration]:
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            budget.spend(len(part))
            for registration in await self._registry.registrations(part, cached=len(ids) <= _CACHED_BELOW):
                yield registration

    # --- Narrowing -------------------------------------------------------------------------------

    async def _candidates(self, criteria: DiscoverCriteria, principal: Principal) -> _CandidateIds:
        """Ids of agents that may match."""
        capable: set[str] | None = None
        if criteria.capability is not None or criteria.tags:
            await self._index.build()
        if criteria.capability is not None:
            capable = await self._index.agents_with(criteria.capability)
        ids = self._selected(criteria, principal, capable)
        if not criteria.terms or len(ids) <= _RANKED_ABOVE:
            return _CandidateIds(ids)
        ranking = await self._registry.rank(Query(text=" ".join(criteria.terms), limit=_RANKED), principal)
        ranked = {hit.id for hit in ranking.hits}
        warnings = (_CUT,) if len(ranked) == _RANKED else ()
        return _CandidateIds([agent_id for agent_id in ids if agent_id in ranked], warnings)

    def _selected(self, criteria: DiscoverCriteria, principal: Principal, capable: set[str] | None) -> list[str]:
        entries = self._registry.entries
        named = None if criteria.agent_id is None else entries.find_named(criteria.agent_id)
        chosen = entries.select(audience(principal))
        if criteria.agent_id is not None:
            chosen &= entries.ordinals(() if named is None else (named.id,))
        if criteria.tags:
            tagged = entries.tagged(tuple(criteria.tags), match_any=criteria.any_tag)
            chosen &= tagged | entries.ordinals(self._index.crowded)  # cards with more tags than the tag index holds
        if capable is not None:
            chosen &= entries.ordinals(capable)
        return entries.ids_of(chosen)

    # --- Paging ----------------------------------------------------------------------------------

    def _cursor(self, order: Order, context: tuple[str, ...]) -> str:
        return self._registry.cursors.seal_page(_PURPOSE, order, *context)

    def _after(self, cursor: object, context: tuple[str, ...]) -> Order | None:
        if cursor is None:
            return None
        if not isinstance(cursor, str):
            raise InvalidCursor("A cursor is a text.", path="cursor", hint="Start without one.")
        after: Order = self._registry.cursors.open_page(_PURPOSE, cursor, Order, *context)
        return after


def _context(principal: Principal, params: JsonObject) -> tuple[str, ...]:
    """A cursor fits the same caller and the same criteria only."""
    criteria = {name: value for name, value in params.items() if name not in ("cursor", "limit")}
    digest = hashlib.sha256(msgspec.json.encode(criteria, order="deterministic")).hexdigest()
    return (principal.subject or "", digest)
