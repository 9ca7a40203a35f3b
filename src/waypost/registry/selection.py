"""Whom the hard filters of a question admit, filter by filter, among the agents that the caller may see.

Bitmaps of the catalogue: a selection is true until the next change, so make one where you need it and let it go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from pyroaring import BitMap

from waypost.model.names import fold, fold_tag
from waypost.model.query import FilterCount, Query
from waypost.registry.catalogue import LISTED, Catalogue
from waypost.registry.constraints import Constraint


class Step(NamedTuple):
    """One filter and the visible agents that pass it."""

    filter: str
    value: Any
    admitted: BitMap


class Selection:
    def __init__(
        self,
        catalogue: Catalogue,
        audience: frozenset[str] | None,
        query: Query,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self._catalogue = catalogue
        self._audience = audience
        self._query = query
        self._constraints = constraints

    @cached_property
    def visible(self) -> BitMap:
        """What can be an answer at all: listed, seen by the caller, and reachable somewhere."""
        seen = self._catalogue.tags.select(statuses=LISTED, audience=self._audience)
        return seen - self._catalogue.stated.unreachable

    @cached_property
    def admitted(self) -> BitMap:
        """Those that pass every filter."""
        return BitMap.intersection(self.visible, *(step.admitted for step in self.steps))

    @cached_property
    def steps(self) -> list[Step]:
        return [*self._filters(), *self._constrained()]

    def _filters(self) -> Iterator[Step]:
        query, tags = self._query, self._catalogue.tags
        for tag in query.required_tags:
            yield Step("required_tags", tag, self.visible & tags.by_tag.get(fold_tag(tag)))
        for tag in query.excluded_tags:
            yield Step("excluded_tags", tag, self.visible - tags.by_tag.get(fold_tag(tag)))
        if query.protocols:
            spoken = tags.by_protocol.union(map(fold, query.protocols))
            yield Step("protocols", list(query.protocols), self.visible & spoken)
        if query.statuses:
            yield Step("statuses", list(query.statuses), self.visible & tags.by_status.union(query.statuses))

    def _constrained(self) -> Iterator[Step]:
        stated = self._catalogue.stated
        for each in self._constraints:
            yield Step(f"constraints.{each.name}", each.value, self.visible & each.admits(stated))

    def admits(self) -> Callable[[str], bool]:
        """The filters as a test of ids."""
        ordinal_of, admitted = self._catalogue.tags.ordinal, self.admitted

        def test(agent_id: str) -> bool:
            ordinal = ordinal_of(agent_id)
            return ordinal is not None and ordinal in admitted

        return test

    def rejected(self) -> dict[str, int]:
        """How many agents that pass the other filters each constraint turns away."""
        if not self._constraints:
            return {}
        before = len(self.steps) - len(self._constraints)
        left = BitMap.intersection(self.visible, *(step.admitted for step in self.steps[:before]))
        pairs = zip(self._constraints, self.steps[before:], strict=True)
        counts = {each.name: len(left - step.admitted) for each, step in pairs}
        return {name: count for name, count in counts.items() if count}

    def counts(self) -> tuple[FilterCount, ...]:
        left = self.visible
        counted = []
        for step in self.steps:
            left = left & step.admitted
            counted.append(
                FilterCount(filter=step.filter, value=step.value, matching=len(step.admitted), remaining=len(left))
            )
        return tuple(counted)
