"""Counts by tag, protocol, status and owner over a set of agents: the most frequent values, exactly counted.

A registry may have a hundred thousand tags. Few agents are counted one by one; many by going through the most frequent
values until no other can come into the answer.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.model.principal import Principal
from waypost.model.query import Facets, FacetValue
from waypost.registry.catalogue import Catalogue
from waypost.search.tags import Postings

_ONE_BY_ONE: Final = 2000  # agents; some 2 ms of work
_KEPT: Final = 2000  # values whose order by frequency is remembered


class _Order(msgspec.Struct, frozen=True):
    """The most frequent values at some time. Each change since then moves a count by one at most."""

    values: list[tuple[int, str]]
    is_whole: bool
    change: int

    @property
    def patience(self) -> int:
        """Changes after which it is made anew: few where it is cheap to make, or where they could matter."""
        return 0 if self.is_whole else self.values[limits.FACET_VALUES][0] // 4


class FacetCounter:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._orders: dict[str, _Order] = {}

    def count(self, names: Iterable[str], among: BitMap, principal: Principal) -> Facets:
        return {name: self._facet(name, among, principal) for name in names}

    def _facet(self, name: str, among: BitMap, principal: Principal) -> tuple[FacetValue, ...]:
        tags, owners = self._catalogue.tags, self._catalogue.stated.owners
        if name == "tag":
            return self._top(name, tags.by_tag, among, tags.tags_of)
        if name == "owner":
            # No face tells one subject's name to another, so a facet does not either.
            if principal.is_admin:
                return self._top(name, owners, among, self._owner_of)
            own = among.intersection_cardinality(owners.get(principal.subject)) if principal.subject else 0
            return (FacetValue(str(principal.subject), own),) if own else ()
        return self._top(name, tags.by_protocol if name == "protocol" else tags.by_status, among, None)

    def _owner_of(self, ordinal: int) -> tuple[str, ...]:
        entry = self._catalogue.find(self._catalogue.tags.id_of(ordinal))
        return (entry.owner,) if entry is not None else ()

    def _top(
        self, name: str, postings: Postings, among: BitMap, values_of: Callable[[int], Iterable[str]] | None
    ) -> tuple[FacetValue, ...]:
        if values_of is not None and len(among) <= _ONE_BY_ONE:
            counted = Counter(value for ordinal in among for value in values_of(ordinal))
            return _first((-count, value) for value, count in counted.items())
        return self._by_frequency(name, postings, among)

    def _by_frequency(self, name: str, postings: Postings, among: BitMap) -> tuple[FacetValue, ...]:
        order = self._order(name, postings)
        changes = self._catalogue.generation(None) - order.change
        best: list[tuple[int, str]] = []
        for total, value in order.values:
            if len(best) == limits.FACET_VALUES and total + changes < -best[-1][0]:
                return _first(best)
            count = postings.get(value).intersection_cardinality(among)
            if count:
                best = sorted([*best, (-count, value)])[: limits.FACET_VALUES]
        if order.is_whole and not changes:
            return _first(best)
        counts = ((-postings.get(value).intersection_cardinality(among), value) for value in postings)
        return _first(pair for pair in counts if pair[0])

    def _order(self, name: str, postings: Postings) -> _Order:
        """The order that is kept, unless too much has changed since."""
        kept, change = self._orders.get(name), self._catalogue.generation(None)
        if kept is not None and change - kept.change <= kept.patience:
            return kept
        values = heapq.nlargest(_KEPT, ((postings.count(value), value) for value in postings))
        kept = self._orders[name] = _Order(values, len(postings) <= _KEPT, change)
        return kept


def _first(counted: Iterable[tuple[int, str]]) -> tuple[FacetValue, ...]:
    return tuple(FacetValue(value, -count) for count, value in heapq.nsmallest(limits.FACET_VALUES, counted))
