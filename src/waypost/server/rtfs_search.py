"""`rtfs.registry.discover`: narrow by the indices first, then match card by card, then order and page (rtfs.md §5).

Matching many cards gives way to other requests every few milliseconds, and one request looks at a bounded number of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.dialects.rtfs_match import Criteria
from waypost.errors import InvalidCursor, RateLimited
from waypost.model.json import JsonObject
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.registry.catalogue import LISTED
from waypost.registry.engine import Registry
from waypost.registry.reasons import suggestion_warnings
from waypost.server.pace import Pace
from waypost.server.rtfs_cards import card_to_match, card_to_show
from waypost.server.rtfs_index import CapabilityIndex

_PAGE = 50
_CACHED_BELOW = 1000  # more candidates than this are read past the record cache, which they would only empty
_RANKED_ABOVE = 5000  # with fewer candidates every text is looked at; with more the ranker chooses them
_RANKED = 1000
_SORTED_AT_ONCE = 1000
_CUT = f"text_search: only the {_RANKED} best were looked at; add another criterion to see the rest."
_PURPOSE = "rtfs"

Order = tuple[float, int, str]


class Budget:
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
class Found:
    cards: list[JsonObject]
    total: int
    next_cursor: str | None
    warnings: tuple[str, ...] = ()


class _Candidates(NamedTuple):
    ids: list[str]
    warnings: tuple[str, ...] = ()


class CardSearch:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._index = CapabilityIndex(registry)

    async def find(self, criteria: Criteria, principal: Principal, params: JsonObject, budget: Budget) -> Found:
        context = _context(principal, params)
        after = self._after(params.get("cursor"), context)
        candidates = await self._candidates(criteria, principal)
        best, total = await self._best(criteria, candidates.ids, after, budget)
        page, more = best[: criteria.limit], len(best) > criteria.limit
        return Found(
            cards=await self._shown(criteria, page),
            total=total,
            next_cursor=self._cursor(page[-1][0], context) if more else None,
            warnings=(*candidates.warnings, *(() if total else self._suggestions(criteria, principal))),
        )

    def _suggestions(self, criteria: Criteria, principal: Principal) -> Iterable[str]:
        """What may have been meant by tags that nobody carries; told where nothing else is."""
        return suggestion_warnings(self._registry.suggest(principal, tuple(criteria.tags)))

    async def _best(
        self, criteria: Criteria, ids: Sequence[str], after: Order | None, budget: Budget
    ) -> tuple[list[tuple[Order, str]], int]:
        """The first of those that match, one more than asked for, and how many match in all."""
        best: list[tuple[Order, str]] = []
        total = 0
        pace = Pace()
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

    async def _shown(self, criteria: Criteria, page: list[tuple[Order, str]]) -> list[JsonObject]:
        scores = {agent_id: -order[0] if criteria.terms else None for order, agent_id in page}
        now = self._registry.clock.now()
        cards: list[JsonObject] = []
        pace = Pace()
        for registration in await self._registry.registrations(list(scores)):
            await pace.step()
            cards.append(card_to_show(registration, now, scores[registration.id]))
        return cards

    async def _registrations(self, ids: Sequence[str], budget: Budget) -> AsyncIterator[Registration]:
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            budget.spend(len(part))
            if len(ids) <= _CACHED_BELOW:
                found = await self._registry.registrations(part)
            else:
                found = list((await self._registry.store.fetch(part)).values())
            for registration in found:
                yield registration

    # --- Narrowing -------------------------------------------------------------------------------

    async def _candidates(self, criteria: Criteria, principal: Principal) -> _Candidates:
        """Ids that may match. No await between reading ordinals and naming them: they mean nothing after a change."""
        capable: set[str] | None = None
        if criteria.capability is not None or criteria.tags:
            await self._index.build()
        if criteria.capability is not None:
            capable = await self._index.agents_with(criteria.capability)
        catalogue = self._registry.catalogue
        catalogue.expire(self._registry.clock.now())
        seen = audience(principal)
        chosen = catalogue.tags.select(statuses=LISTED, audience=seen)
        if criteria.agent_id is not None:
            resolved = catalogue.resolve(criteria.agent_id)
            chosen &= self._ordinals({resolved} if resolved is not None else set())
        if criteria.tags:
            chosen &= self._tagged(criteria)
        if capable is not None:
            chosen &= self._ordinals(capable)
        warnings: tuple[str, ...] = ()
        if criteria.terms and len(chosen) > _RANKED_ABOVE:
            await self._registry.searchable()
            ranked = self._ranked(criteria, principal)
            warnings = (_CUT,) if len(ranked) == _RANKED else ()
            chosen &= self._ordinals(ranked)
        return _Candidates(catalogue.tags.ids_of(chosen), warnings)

    def _ordinals(self, ids: set[str]) -> BitMap:
        found = map(self._registry.catalogue.tags.ordinal, ids)
        return BitMap(ordinal for ordinal in found if ordinal is not None)

    def _tagged(self, criteria: Criteria) -> BitMap:
        """Agents that the tag index names, and those whose cards have more tags than it holds."""
        tags = self._registry.catalogue.tags
        if criteria.any_tag:
            named = BitMap.union(BitMap(), *(tags.select(required=(tag,)) for tag in criteria.tags))
        else:
            named = tags.select(required=tuple(criteria.tags))
        return named | self._ordinals(self._index.crowded)

    def _ranked(self, criteria: Criteria, principal: Principal) -> set[str]:
        ranking = self._registry.ranker.rank(
            Query(text=" ".join(criteria.terms), limit=_RANKED),
            audience(principal),
            alive=self._registry.catalogue.is_alive,
            now=self._registry.clock.now(),
        )
        return {hit.id for hit in ranking.hits}

    # --- Paging ----------------------------------------------------------------------------------

    def _cursor(self, order: Order, context: tuple[str, ...]) -> str:
        return self._registry.seal.seal_page(
            _PURPOSE, msgspec.msgpack.encode(order), self._registry.clock.now(), *context
        )

    def _after(self, cursor: object, context: tuple[str, ...]) -> Order | None:
        if cursor is None:
            return None
        if not isinstance(cursor, str):
            raise InvalidCursor("A cursor is a text.", path="cursor", hint="Start without one.")
        now = self._registry.clock.now()
        after: Order = msgspec.msgpack.decode(
            self._registry.seal.open_page(_PURPOSE, cursor, now, *context), type=Order
        )
        return after


def _context(principal: Principal, params: JsonObject) -> tuple[str, ...]:
    """A cursor fits the same caller and the same criteria only."""
    criteria = {name: value for name, value in params.items() if name not in ("cursor", "limit")}
    digest = hashlib.sha256(msgspec.json.encode(criteria, order="deterministic")).hexdigest()
    return (principal.subject or "", digest)
