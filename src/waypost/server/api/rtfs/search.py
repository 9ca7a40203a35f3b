"""`rtfs.registry.discover`: narrow by indexes, match card by card, then sort and page (rtfs.md §5).

Matching yields to other requests every few milliseconds, and one request may match a bounded number of cards.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from waypost import limits
from waypost.errors import InvalidCursor, RateLimited
from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.model.times import to_rfc3339
from waypost.protocols.codec import EncodeContext
from waypost.protocols.rtfs.codec import RTFS, native_card, split_version, upgrade_card
from waypost.protocols.rtfs.criteria import CapabilityPattern, DiscoverCriteria, glob_matches
from waypost.registry.find.empty_results import suggestion_warnings
from waypost.registry.registry import Registry
from waypost.server.http.request_params import AnswerBudget
from waypost.server.registration_table import RegistrationTable
from waypost.server.renderer import registered_card
from waypost.time_slice import TimeSlice

_FETCH_SIZE = 50
_CACHE_BELOW = 1000  # with more candidates, reads bypass the record cache: they would only evict its content
_RANK_ABOVE = 5000  # with more candidates, the ranker preselects for a text search
_RANKED = 1000
_SORT_SIZE = 1000
_CUT_WARNING = f"text_search: only the {_RANKED} best matches were considered; add another criterion to see the rest."
_CURSOR_PURPOSE = "rtfs"

SortKey = tuple[float, int, str]


def card_to_match(registration: Registration) -> JsonObject:
    """The card under today's names. Cheap, because a search matches many."""
    source = registration.source("rtfs")
    return upgrade_card(registered_card(source)) if source is not None else native_card(registration.record)


def card_to_show(registration: Registration, now: float, score: float | None) -> JsonObject:
    """The card as registered, with what the registry knows of it under `registry` (P-33)."""
    source = registration.source("rtfs")
    if source is not None:
        card = registered_card(source)
    else:
        context = EncodeContext(now=now, updated_at=registration.changed_at, created_at=registration.created_at)
        card = RTFS.encode(registration.record, context).document
    health = UNKNOWN if registration.health is None else registration.health.state
    status: JsonObject = {"health": health, "registered_at": to_rfc3339(registration.created_at)}
    expires_at = registration.expires_at
    if expires_at is not None:
        status["expires_at"] = to_rfc3339(expires_at)
    if score is not None:
        status["score"] = score
    return card | {"registry": status}


class CapabilityIndex(RegistrationTable):
    """Agents by capability id, with and without its version. It only narrows: cards are matched afterwards."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._agents: dict[str, set[str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self.with_many_tags: set[str] = set()  # agents whose cards have more tags than the tag index holds

    def _put(self, registration: Registration) -> None:
        card = card_to_match(registration)
        names = [item["capability_id"] for item in card.get("capabilities") or ()]
        keys = tuple(dict.fromkeys((*names, *(split_version(name)[0] for name in names))))
        self._names[registration.id] = keys
        for key in keys:
            self._agents.setdefault(key, set()).add(registration.id)
        if len(card.get("discovery_tags") or ()) > limits.TAGS:
            self.with_many_tags.add(registration.id)

    def _drop(self, agent_id: str) -> None:
        self.with_many_tags.discard(agent_id)
        for key in self._names.pop(agent_id, ()):
            agents = self._agents.get(key)
            if agents is not None:
                agents.discard(agent_id)
                if not agents:
                    del self._agents[key]

    async def agents_with(self, capability: CapabilityPattern) -> set[str]:
        """The agents that may have a capability."""
        agents = set(self._agents.get(capability.text, ()))
        if capability.is_glob:
            time_slice = TimeSlice()
            for key in list(self._agents):
                await time_slice.step()
                if glob_matches(capability.text, key):
                    agents.update(self._agents.get(key, ()))
        for agent_id in _prefixes(capability.text):
            entry = self._registry.entries.find_named(agent_id)
            if entry is not None:
                agents.add(entry.id)
        return agents


def _prefixes(text: str) -> Iterable[str]:
    """The possible agent ids in `{agent_id}/{capability_id}`, where both may contain a slash."""
    at = text.find("/")
    while at >= 0:
        yield text[:at]
        at = text.find("/", at + 1)


class CardBudget:
    """The number of cards that a request may still match, and the bytes of its answer: for all calls of a batch."""

    def __init__(self, cards: int = limits.RTFS_SCAN_CARDS) -> None:
        self._left = cards
        self.answer = AnswerBudget()

    def spend(self, cards: int) -> None:
        self._left -= cards
        if self._left < 0:
            raise RateLimited(
                f"One request matches at most {limits.RTFS_SCAN_CARDS} cards.",
                retry_after=1,
                hint="Narrow the search by agent_id, capability_id, discovery_tags or text_search, or send fewer calls.",
            )


@dataclass(frozen=True, slots=True)
class CardPage:
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
    ) -> CardPage:
        context = _cursor_context(principal, params)
        after = self._parse_cursor(params.get("cursor"), context)
        candidates = await self._candidates(criteria, principal)
        best, total = await self._match(criteria, candidates.ids, after, budget)
        page, has_more = best[: criteria.limit], len(best) > criteria.limit
        cards, covered = await self._cards(criteria, page, budget)
        if covered < len(page):
            page, has_more = page[:covered], True
        return CardPage(
            cards=cards,
            total=total,
            next_cursor=self._cursor(page[-1][0], context) if has_more else None,
            warnings=(*candidates.warnings, *(() if total else self._suggestions(criteria, principal))),
        )

    def _suggestions(self, criteria: DiscoverCriteria, principal: Principal) -> Iterable[str]:
        """Similar tags for those that no agent has. Computed only for an empty result."""
        return suggestion_warnings(self._registry.suggest(principal, tuple(criteria.tags)))

    async def _match(
        self, criteria: DiscoverCriteria, ids: Sequence[str], after: SortKey | None, budget: CardBudget
    ) -> tuple[list[tuple[SortKey, str]], int]:
        """The first matches after a position, one more than the limit, and the total number of matches."""
        best: list[tuple[SortKey, str]] = []
        total = 0
        time_slice = TimeSlice()
        async for registration in self._registrations(ids, budget):
            await time_slice.step()
            card = card_to_match(registration)
            if not criteria.matches(card):
                continue
            total += 1
            key = criteria.order(card)
            if after is None or key > after:
                best.append((key, registration.id))
            if len(best) > criteria.limit + _SORT_SIZE:
                best = sorted(best)[: criteria.limit + 1]
        return sorted(best)[: criteria.limit + 1], total

    async def _cards(
        self, criteria: DiscoverCriteria, page: list[tuple[SortKey, str]], budget: CardBudget
    ) -> tuple[list[JsonObject], int]:
        """The first cards of the page, as many as the answer may have, and how many of its rows they cover."""
        scores = {agent_id: -key[0] if criteria.terms else None for key, agent_id in page}
        covered = len(page)
        now = self._registry.clock.now()
        cards: list[JsonObject] = []
        time_slice = TimeSlice()
        for registration in await self._registry.registrations(list(scores)):
            await time_slice.step()
            card = card_to_show(registration, now, scores[registration.id])
            if not budget.answer.take(len(dump_json(card))):
                covered = list(scores).index(registration.id)
                break
            cards.append(card)
        if not covered and page:
            raise RateLimited(
                "The answers to the calls before this one fill the answer to the batch.",
                retry_after=1,
                hint="Send this call again, with fewer others.",
            )
        return cards, covered

    async def _registrations(self, ids: Sequence[str], budget: CardBudget) -> AsyncIterator[Registration]:
        for start in range(0, len(ids), _FETCH_SIZE):
            part = ids[start : start + _FETCH_SIZE]
            budget.spend(len(part))
            for registration in await self._registry.registrations(part, cached=len(ids) <= _CACHE_BELOW):
                yield registration

    # --- Candidates ------------------------------------------------------------------------------

    async def _candidates(self, criteria: DiscoverCriteria, principal: Principal) -> _CandidateIds:
        """The ids of agents that may match."""
        capable: set[str] | None = None
        if criteria.capability is not None or criteria.tags:
            await self._index.build()
        if criteria.capability is not None:
            capable = await self._index.agents_with(criteria.capability)
        ids = self._select(criteria, principal, capable)
        if not criteria.terms or len(ids) <= _RANK_ABOVE:
            return _CandidateIds(ids)
        ranking = await self._registry.rank(Query(text=" ".join(criteria.terms), limit=_RANKED), principal)
        ranked = {hit.id for hit in ranking.hits}
        warnings = (_CUT_WARNING,) if len(ranked) == _RANKED else ()
        return _CandidateIds([agent_id for agent_id in ids if agent_id in ranked], warnings)

    def _select(self, criteria: DiscoverCriteria, principal: Principal, capable: set[str] | None) -> list[str]:
        entries = self._registry.entries
        named = None if criteria.agent_id is None else entries.find_named(criteria.agent_id)
        chosen = entries.select(audience(principal))
        if criteria.agent_id is not None:
            chosen &= entries.ordinals(() if named is None else (named.id,))
        if criteria.tags:
            tagged = entries.tagged(tuple(criteria.tags), match_any=criteria.any_tag)
            chosen &= tagged | entries.ordinals(self._index.with_many_tags)
        if capable is not None:
            chosen &= entries.ordinals(capable)
        return entries.ids_of(chosen)

    # --- Cursors ---------------------------------------------------------------------------------

    def _cursor(self, key: SortKey, context: tuple[str, ...]) -> str:
        return self._registry.cursors.seal_page(_CURSOR_PURPOSE, key, *context)

    def _parse_cursor(self, cursor: object, context: tuple[str, ...]) -> SortKey | None:
        if cursor is None:
            return None
        if not isinstance(cursor, str):
            raise InvalidCursor("A cursor must be a string.", path="cursor", hint="Start without a cursor.")
        key: SortKey = self._registry.cursors.open_page(_CURSOR_PURPOSE, cursor, SortKey, *context)
        return key


def _cursor_context(principal: Principal, params: JsonObject) -> tuple[str, ...]:
    """A cursor is valid for the same caller and the same criteria only."""
    criteria = {name: value for name, value in params.items() if name not in ("cursor", "limit")}
    digest = hashlib.sha256(msgspec.json.encode(criteria, order="deterministic")).hexdigest()
    return (principal.subject or "", digest)
