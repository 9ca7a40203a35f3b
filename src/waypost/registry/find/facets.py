"""Facets: the most frequent tags, protocols, statuses and owners of a set of agents, with exact counts.

A registry may have a hundred thousand tags. A small set of agents is counted one by one. For a large set, the most frequent
values overall are tried in order until no other can be among the first. That order is computed over visible agents only:
values of hidden agents change neither the result nor the time (THREATS V2).
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
from waypost.registry.catalog.tag_index import BitmapPostings
from waypost.responses.service import Stats

_SMALL_SET: Final = 2000  # agents that are counted one by one: about 2 ms
_CACHED_VALUES: Final = 2000  # values whose order by frequency is cached
_FEW_VALUES: Final = 200  # values that are all counted: about 0.2 ms
_MANY_VALUED: Final = frozenset(("tag", "owner"))  # facets with values that hidden agents add
_SHARED: Final = frozenset((PUBLIC, INTERNAL))  # visibilities that many callers see completely
_STATUSES: Final = ("active", "testing", "deprecated", "inactive", "suspended")

ValuesOf = Callable[[int], Iterable[str]]


class _Frequencies(msgspec.Struct, frozen=True):
    """The most frequent values at some generation. Each change since then moves a count by at most one."""

    values: list[tuple[int, str]]
    rest: int  # the highest count of all other values
    generation: int

    @property
    def valid_changes(self) -> int:
        """The number of changes after which they are counted again."""
        last = min(limits.FACET_VALUES, len(self.values) - 1)
        return self.values[last][0] // 4 if self.values else 0


class FacetCounter:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._frequencies: dict[tuple[str, frozenset[str] | None], _Frequencies] = {}  # by facet and shared audience

    def count(self, names: Iterable[str], among: BitMap, principal: Principal) -> Facets:
        return {name: self._facet(name, among, principal) for name in names}

    def _facet(self, name: str, among: BitMap, principal: Principal) -> tuple[FacetCount, ...]:
        tags, owners = self._catalog.tags, self._catalog.facts.owners
        visible_to = audience(principal)
        shared = None if visible_to is None else visible_to & _SHARED
        if name == "tag":
            return self._top(name, tags.by_tag, among, tags.tags_of, shared)
        if name == "owner":
            # No API shows the name of one subject to another, and neither does a facet.
            if principal.is_admin:
                return self._top(name, owners, among, self._owner_of, shared)
            own = among.intersection_cardinality(owners.get(principal.subject)) if principal.subject else 0
            return (FacetCount(str(principal.subject), own),) if own else ()
        if name == "protocol":
            return self._top(name, tags.by_protocol, among, self._protocols_of, shared)
        return self._top(name, tags.by_status, among, self._status_of, shared)

    def _owner_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalog.find(self._catalog.tags.id_of(ordinal))
        return (entry.owner,) if entry is not None else ()

    def _protocols_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalog.find(self._catalog.tags.id_of(ordinal))
        return entry.protocols if entry is not None else ()

    def _status_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalog.find(self._catalog.tags.id_of(ordinal))
        return (entry.status,) if entry is not None else ()

    def _top(
        self, name: str, postings: BitmapPostings, among: BitMap, values_of: ValuesOf, shared: frozenset[str] | None
    ) -> tuple[FacetCount, ...]:
        if len(among) <= _SMALL_SET and name in _MANY_VALUED:
            return _first(_counted(among, values_of))
        if len(postings) <= _FEW_VALUES:
            counts = ((-postings.get(value).intersection_cardinality(among), value) for value in postings)
            return _first(pair for pair in counts if pair[0])
        return self._by_frequency(name, postings, among, values_of, shared)

    def _by_frequency(
        self, name: str, postings: BitmapPostings, among: BitMap, values_of: ValuesOf, shared: frozenset[str] | None
    ) -> tuple[FacetCount, ...]:
        order = self._get_frequencies(name, values_of, shared)
        private = among - self._catalog.tags.select(audience=shared)  # not counted in the frequencies
        slack = self._catalog.generation(shared) - order.generation + len(private)
        best: list[tuple[int, str]] = []
        for total, value in (*order.values, (order.rest, None)):
            if len(best) == limits.FACET_VALUES and total + slack < -best[-1][0]:
                return _first(best)
            count = postings.get(value).intersection_cardinality(among) if value is not None else 0
            if count and value is not None:
                best = sorted([*best, (-count, value)])[: limits.FACET_VALUES]
        return _first(best) if order.rest + slack == 0 else _first(_counted(among, values_of))

    def _get_frequencies(self, name: str, values_of: ValuesOf, shared: frozenset[str] | None) -> _Frequencies:
        """The cached ones, unless too much has changed since."""
        cached, generation = self._frequencies.get((name, shared)), self._catalog.generation(shared)
        if cached is not None and generation - cached.generation <= cached.valid_changes:
            return cached
        counted = ((-count, value) for count, value in _counted(self._catalog.tags.select(audience=shared), values_of))
        values = heapq.nlargest(_CACHED_VALUES + 1, counted)
        rest = values[_CACHED_VALUES][0] if len(values) > _CACHED_VALUES else 0
        made = self._frequencies[name, shared] = _Frequencies(values[:_CACHED_VALUES], rest, generation)
        return made


def _counted(agents: BitMap, values_of: ValuesOf) -> Iterable[tuple[int, str]]:
    """The values of these agents with their counts negated, so that the most frequent one is the smallest."""
    counted = Counter(chain.from_iterable(map(values_of, agents)))
    return ((-count, value) for value, count in counted.items())


def _first(counted: Iterable[tuple[int, str]]) -> tuple[FacetCount, ...]:
    return tuple(FacetCount(value, -count) for count, value in heapq.nsmallest(limits.FACET_VALUES, counted))


def catalog_stats(catalog: Catalog, audience: frozenset[str] | None) -> Stats:
    """Counts over what an audience sees."""
    by_status = {status: count for status in _STATUSES if (count := catalog.count(audience, (status,)))}
    total = catalog.count(audience, _STATUSES)
    by_visibility = {
        tier: catalog.count(frozenset((tier,)), _STATUSES)
        for tier in (PUBLIC, INTERNAL)
        if audience is None or tier in audience
    }
    by_visibility[PRIVATE] = total - sum(by_visibility.values())
    shown = {tier: count for tier, count in by_visibility.items() if count}
    return Stats(agents=total, by_status=by_status, by_visibility=shown)
