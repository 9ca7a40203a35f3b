"""Counts by tag, protocol, status and owner over a set of agents: the most frequent values, exactly counted.

A registry may have a hundred thousand tags. Few agents are counted one by one; many by going through the most frequent
values until no other can come into the answer. Which these are is counted over what the caller sees and nothing else: values
of hidden agents neither lead nor lengthen the way (THREATS V2).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.model.principal import INTERNAL, PRIVATE, PUBLIC, Principal, audience
from waypost.model.query import FacetCount, Facets
from waypost.registry.catalog.catalog import Catalog
from waypost.responses.service import Stats
from waypost.search.index.tag_index import BitmapPostings

_ONE_BY_ONE: Final = 2000  # agents; some 2 ms of work

_KEPT: Final = 2000  # values whose order by frequency is remembered

_FEW_VALUES: Final = 200  # values that are all counted: some 0.2 ms

_MANY_VALUED: Final = frozenset(("tag", "owner"))  # of which the values of hidden agents would tell by their number

_SHARED: Final = frozenset((PUBLIC, INTERNAL))  # what many see as a whole; private agents are few to each who sees them

ValuesOf = Callable[[int], Iterable[str]]


class _Order(msgspec.Struct, frozen=True):
    """The most frequent values at some time. Each change since then moves a count by one at most."""

    values: list[tuple[int, str]]
    rest: int  # what none of the other values exceeded
    change: int

    @property
    def patience(self) -> int:
        """Changes after which it is made anew: few where they could matter."""
        last = min(limits.FACET_VALUES, len(self.values) - 1)
        return self.values[last][0] // 4 if self.values else 0


class FacetCounter:
    def __init__(self, catalogue: Catalog) -> None:
        self._catalogue = catalogue
        self._orders: dict[tuple[str, frozenset[str] | None], _Order] = {}  # by facet and by what is seen as a whole

    def count(self, names: Iterable[str], among: BitMap, principal: Principal) -> Facets:
        return {name: self._facet(name, among, principal) for name in names}

    def _facet(self, name: str, among: BitMap, principal: Principal) -> tuple[FacetCount, ...]:
        tags, owners = self._catalogue.tags, self._catalogue.facts.owners
        seen = audience(principal)
        shared = None if seen is None else seen & _SHARED
        if name == "tag":
            return self._top(name, tags.by_tag, among, tags.tags_of, shared)
        if name == "owner":
            # No face tells one subject's name to another, so a facet does not either.
            if principal.is_admin:
                return self._top(name, owners, among, self._owner_of, shared)
            own = among.intersection_cardinality(owners.get(principal.subject)) if principal.subject else 0
            return (FacetCount(str(principal.subject), own),) if own else ()
        if name == "protocol":
            return self._top(name, tags.by_protocol, among, self._protocols_of, shared)
        return self._top(name, tags.by_status, among, self._status_of, shared)

    def _owner_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalogue.find(self._catalogue.tags.id_of(ordinal))
        return (entry.owner,) if entry is not None else ()

    def _protocols_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalogue.find(self._catalogue.tags.id_of(ordinal))
        return entry.protocols if entry is not None else ()

    def _status_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalogue.find(self._catalogue.tags.id_of(ordinal))
        return (entry.status,) if entry is not None else ()

    def _top(
        self, name: str, postings: BitmapPostings, among: BitMap, values_of: ValuesOf, shared: frozenset[str] | None
    ) -> tuple[FacetCount, ...]:
        if len(among) <= _ONE_BY_ONE and name in _MANY_VALUED:
            return _first(_counted(among, values_of))
        if len(postings) <= _FEW_VALUES:
            counts = ((-postings.get(value).intersection_cardinality(among), value) for value in postings)
            return _first(pair for pair in counts if pair[0])
        return self._by_frequency(name, postings, among, values_of, shared)

    def _by_frequency(
        self, name: str, postings: BitmapPostings, among: BitMap, values_of: ValuesOf, shared: frozenset[str] | None
    ) -> tuple[FacetCount, ...]:
        order = self._order(name, values_of, shared)
        beyond = among - self._catalogue.tags.select(audience=shared)  # private ones, which the order does not count
        slack = self._catalogue.generation(shared) - order.change + len(beyond)
        best: list[tuple[int, str]] = []
        for total, value in (*order.values, (order.rest, None)):
            if len(best) == limits.FACET_VALUES and total + slack < -best[-1][0]:
                return _first(best)
            count = postings.get(value).intersection_cardinality(among) if value is not None else 0
            if count and value is not None:
                best = sorted([*best, (-count, value)])[: limits.FACET_VALUES]
        return _first(best) if order.rest + slack == 0 else _first(_counted(among, values_of))

    def _order(self, name: str, values_of: ValuesOf, shared: frozenset[str] | None) -> _Order:
        """The order that is kept, unless too much has changed since."""
        kept, change = self._orders.get((name, shared)), self._catalogue.generation(shared)
        if kept is not None and change - kept.change <= kept.patience:
            return kept
        counted = (
            (-count, value) for count, value in _counted(self._catalogue.tags.select(audience=shared), values_of)
        )
        values = heapq.nlargest(_KEPT + 1, counted)
        kept = _Order(values[:_KEPT], values[_KEPT][0] if len(values) > _KEPT else 0, change)
        self._orders[name, shared] = kept
        return kept


def _counted(agents: BitMap, values_of: ValuesOf) -> Iterable[tuple[int, str]]:
    """Each value of these agents, with how many have it; the most frequent one is the least."""
    counted = Counter(chain.from_iterable(map(values_of, agents)))
    return ((-count, value) for value, count in counted.items())


def _first(counted: Iterable[tuple[int, str]]) -> tuple[FacetCount, ...]:
    return tuple(FacetCount(value, -count) for count, value in heapq.nsmallest(limits.FACET_VALUES, counted))


# ---- Figures of a registry, over what a caller sees.

_STATUSES = ("active", "testing", "deprecated", "inactive", "suspended")


def catalog_stats(catalogue: Catalog, audience: frozenset[str] | None) -> Stats:
    by_status = {status: count for status in _STATUSES if (count := catalogue.count(audience, (status,)))}
    total = catalogue.count(audience, _STATUSES)
    by_visibility = {
        tier: catalogue.count(frozenset((tier,)), _STATUSES)
        for tier in (PUBLIC, INTERNAL)
        if audience is None or tier in audience
    }
    by_visibility[PRIVATE] = total - sum(by_visibility.values())
    shown = {tier: count for tier, count in by_visibility.items() if count}
    return Stats(agents=total, by_status=by_status, by_visibility=shown)
