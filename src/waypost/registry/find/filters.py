"""The hard filters of a query, as bitmaps over the catalog.

An agent that states nothing about a constraint does not pass it, and is counted as rejected. A constraint that is not known
is reported, never ignored (PRO-24, PRO-53, PRO-60).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.facts import (
    AUTH,
    COST,
    DEFAULT_CURRENCY,
    EVERYWHERE,
    FACT_CHARS,
    LANGUAGE,
    LATENCY,
    REGION,
    amount_of,
    auth_name,
    currency_name,
    language_tag,
    texts_of,
)
from waypost.model.json import kind_of, member
from waypost.model.names import fold, fold_tag
from waypost.model.query import FilterEffect, Query
from waypost.model.record import LISTED
from waypost.model.registration import TRUST_FACT
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.fact_index import FactIndex

MAX_AGE = "max_results_age_seconds"

_COST_MEMBERS = ("max", "currency", "per")

ConstraintMatcher = Callable[[FactIndex], BitMap]


class Constraint(msgspec.Struct, frozen=True):
    """One constraint of a query, and the agents that pass it."""

    name: str
    value: Any
    admits: ConstraintMatcher


def compile_constraints(constraints: dict[str, Any], now: float) -> tuple[list[Constraint], list[str]]:
    """The known constraints, and the names of the unknown ones. A known one with a wrong value is refused."""
    applied: list[Constraint] = []
    unsupported: list[str] = []
    for name, value in constraints.items():
        make = _KNOWN.get(name)
        if make is None:
            unsupported.append(name)
        else:
            applied.append(Constraint(name, value, make(value, member("$.constraints", name), now)))
    return applied, unsupported


def _max_age(value: Any, path: str, now: float) -> ConstraintMatcher:
    oldest = now - _amount(value, path, "a number of seconds, 0 or more")
    return lambda facts: facts.active_since(oldest)


def _region(value: Any, path: str, now: float) -> ConstraintMatcher:
    values = _texts(value, path, "Name a region as publishers do, such as eu or apac.")
    return lambda facts: facts.match_any(REGION, values)


def _language(value: Any, path: str, now: float) -> ConstraintMatcher:
    values = [language_tag(item) for item in _texts(value, path, "Name a language by its tag, such as de or pt-BR.")]
    return lambda facts: facts.match_any(LANGUAGE, values)


def _auth(value: Any, path: str, now: float) -> ConstraintMatcher:
    given = _texts(value, path, "Name ways to authenticate that you can use, such as oauth2, bearer, apiKey or none.")
    values = [name for name in map(auth_name, given) if name]
    return lambda facts: facts.match_any(AUTH, values)


def _latency(value: Any, path: str, now: float) -> ConstraintMatcher:
    given, path = _part(value, path, "max_ms", ("max_ms",))
    most = _amount(given, path, "a number of milliseconds, 0 or more")
    return lambda facts: facts.at_most(LATENCY, most)


def _cost(value: Any, path: str, now: float) -> ConstraintMatcher:
    """The price of one call. Prices in different currencies are never compared; the default is US dollars."""
    currency: Any = DEFAULT_CURRENCY
    if isinstance(value, dict):
        currency = value.get("currency", DEFAULT_CURRENCY)
        if not isinstance(currency, str) or not currency.strip():
            raise _wrong(currency, member(path, "currency"), "a currency such as EUR")
        if value.get("per", "call") != "call":
            raise _wrong(value["per"], member(path, "per"), '"call": other prices are not compared')
    given, path = _part(value, path, "max", _COST_MEMBERS)
    most = _amount(given, path, "an amount of money, 0 or more")
    scale = f"{COST}:{currency_name(currency)}"
    return lambda facts: facts.at_most(scale, most) | facts.at_most(f"{COST}:{EVERYWHERE}", most)


def _trust(value: Any, path: str, now: float) -> ConstraintMatcher:
    """At least this level. `self_asserted` leaves out only agents with a failed check."""
    if value == "verified":
        return lambda facts: facts.match_any(TRUST_FACT, ("verified",))
    if value == "self_asserted":
        return lambda facts: facts.match_not(TRUST_FACT, "failed")
    raise InvalidParameter(
        "trust must be verified or self_asserted.",
        path=path,
        hint="self_asserted leaves out agents with a failed check.",
    )


def _part(value: Any, path: str, name: str, known: tuple[str, ...]) -> tuple[Any, str]:
    """The limit, given as a value or as a member of an object. An unknown member is refused: it would be a filter ignored."""
    if not isinstance(value, dict):
        return value, path
    for other in value:
        if other not in known:
            raise InvalidParameter(
                f"{other[:64]!r} is not a known member.", path=member(path, other), hint=f"Use {', '.join(known)}."
            )
    return value.get(name), member(path, name)


def _amount(value: Any, path: str, what: str) -> float:
    amount = amount_of(value)
    if amount is None:
        raise _wrong(value, path, what)
    return amount


def _texts(value: Any, path: str, hint: str) -> list[str]:
    """All given values: one that is not read would be a filter ignored."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    if not given or not all(isinstance(item, str) and 0 < len(item.strip()) <= FACT_CHARS for item in given):
        error = _wrong(value, path, f"a text or an array of texts of 1 to {FACT_CHARS} characters")
        raise InvalidParameter(error.message, path=path, hint=hint)
    if len(given) > limits.FILTER_VALUES:
        raise InvalidParameter(f"{len(given)} values; at most {limits.FILTER_VALUES} are allowed.", path=path)
    return texts_of(given)


def _wrong(value: Any, path: str, what: str) -> InvalidParameter:
    name = path.rpartition(".")[2]
    shown = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else kind_of(value)
    return InvalidParameter(f"{name} must be {what}, not {shown}.", path=path)


_KNOWN: dict[str, Callable[[Any, str, float], ConstraintMatcher]] = {
    MAX_AGE: _max_age,
    "region": _region,
    "language": _language,
    "auth": _auth,
    "max_latency_ms": _latency,
    "max_cost": _cost,
    "trust": _trust,
    # synonyms
    "regions": _region,
    "languages": _language,
    "auth_type": _auth,
    "latency": _latency,
    "cost": _cost,
    "min_trust": _trust,
}

SUPPORTED = tuple(_KNOWN)


class FilterStep(NamedTuple):
    """One filter and the visible agents that pass it."""

    filter: str
    value: Any
    admitted: BitMap


class FilterSelection:
    """The visible agents that pass the filters of a query. It is valid until the next change of the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        audience: frozenset[str] | None,
        query: Query,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self._catalog = catalog
        self._audience = audience
        self._query = query
        self._constraints = constraints

    @cached_property
    def visible(self) -> BitMap:
        """Possible results: listed, visible to the caller, with an endpoint."""
        seen = self._catalog.tags.select(statuses=LISTED, audience=self._audience)
        return seen - self._catalog.facts.unreachable

    @cached_property
    def admitted(self) -> BitMap:
        return BitMap.intersection(self.visible, *(step.admitted for step in self.steps))

    @cached_property
    def steps(self) -> list[FilterStep]:
        return [*self._filters(), *self._constrained()]

    def _filters(self) -> Iterator[FilterStep]:
        query, tags = self._query, self._catalog.tags
        for tag in query.required_tags:
            yield FilterStep("required_tags", tag, self.visible & tags.by_tag.get(fold_tag(tag)))
        for tag in query.excluded_tags:
            yield FilterStep("excluded_tags", tag, self.visible - tags.by_tag.get(fold_tag(tag)))
        if query.protocols:
            speakers = tags.by_protocol.union(map(fold, query.protocols))
            yield FilterStep("protocols", list(query.protocols), self.visible & speakers)
        if query.statuses:
            yield FilterStep("statuses", list(query.statuses), self.visible & tags.by_status.union(query.statuses))

    def _constrained(self) -> Iterator[FilterStep]:
        facts = self._catalog.facts
        for each in self._constraints:
            yield FilterStep(f"constraints.{each.name}", each.value, self.visible & each.admits(facts))

    def admits(self) -> Callable[[str], bool]:
        """The filters as a predicate over ids."""
        ordinal_of, admitted = self._catalog.tags.ordinal, self.admitted

        def test(agent_id: str) -> bool:
            ordinal = ordinal_of(agent_id)
            return ordinal is not None and ordinal in admitted

        return test

    def rejected(self) -> dict[str, int]:
        """For each constraint, how many agents it rejects that pass the other filters."""
        if not self._constraints:
            return {}
        before = len(self.steps) - len(self._constraints)
        left = BitMap.intersection(self.visible, *(step.admitted for step in self.steps[:before]))
        pairs = zip(self._constraints, self.steps[before:], strict=True)
        counts = {each.name: len(left - step.admitted) for each, step in pairs}
        return {name: count for name, count in counts.items() if count}

    def counts(self) -> tuple[FilterEffect, ...]:
        left = self.visible
        counted = []
        for step in self.steps:
            left = left & step.admitted
            counted.append(
                FilterEffect(filter=step.filter, value=step.value, matching=len(step.admitted), remaining=len(left))
            )
        return tuple(counted)
