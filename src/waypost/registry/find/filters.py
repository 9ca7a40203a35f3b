"""Constraints of a question that this service can apply: each becomes a bitmap over what agents state.

A constraint is hard. An agent that states nothing of what is asked is left out, and counted among the rejected: nobody
can hold a silent record to it. What is unknown is named, never ignored (PRO-24, PRO-53, PRO-60).
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

_COST_PARTS = ("max", "currency", "per")

ConstraintMatcher = Callable[[FactIndex], BitMap]


class Constraint(msgspec.Struct, frozen=True):
    """One constraint as it was asked, and whom it admits."""

    name: str
    value: Any
    admits: ConstraintMatcher


def compile_constraints(constraints: dict[str, Any], now: float) -> tuple[list[Constraint], list[str]]:
    """What can be applied, and the names of what cannot. A known name with a value of the wrong shape is refused."""
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
    return lambda stated: stated.active_since(oldest)


def _region(value: Any, path: str, now: float) -> ConstraintMatcher:
    wanted = _texts(value, path, "Name a region as publishers do, such as eu or apac.")
    return lambda stated: stated.match_any(REGION, wanted)


def _language(value: Any, path: str, now: float) -> ConstraintMatcher:
    wanted = [language_tag(item) for item in _texts(value, path, "Name a language by its tag, such as de or pt-BR.")]
    return lambda stated: stated.match_any(LANGUAGE, wanted)


def _auth(value: Any, path: str, now: float) -> ConstraintMatcher:
    asked = _texts(value, path, "Name ways to authenticate that you can use, such as oauth2, bearer, apiKey or none.")
    wanted = [name for name in map(auth_name, asked) if name]
    return lambda stated: stated.match_any(AUTH, wanted)


def _latency(value: Any, path: str, now: float) -> ConstraintMatcher:
    asked, path = _part(value, path, "max_ms", ("max_ms",))
    most = _amount(asked, path, "a number of milliseconds, 0 or more")
    return lambda stated: stated.at_most(LATENCY, most)


def _cost(value: Any, path: str, now: float) -> ConstraintMatcher:
    """The price of one call. Prices in different currencies are never compared; without one, US dollars are meant."""
    currency: Any = DEFAULT_CURRENCY
    if isinstance(value, dict):
        currency = value.get("currency", DEFAULT_CURRENCY)
        if not isinstance(currency, str) or not currency.strip():
            raise _wrong(currency, member(path, "currency"), "a currency such as EUR")
        if value.get("per", "call") != "call":
            raise _wrong(value["per"], member(path, "per"), '"call": other prices are not compared')
    asked, path = _part(value, path, "max", _COST_PARTS)
    most = _amount(asked, path, "an amount of money, 0 or more")
    scale = f"{COST}:{currency_name(currency)}"
    return lambda stated: stated.at_most(scale, most) | stated.at_most(f"{COST}:{EVERYWHERE}", most)


def _trust(value: Any, path: str, now: float) -> ConstraintMatcher:
    """At least this level. `self_asserted` leaves out only what failed a check."""
    if value == "verified":
        return lambda stated: stated.match_any(TRUST_FACT, ("verified",))
    if value == "self_asserted":
        return lambda stated: stated.but(TRUST_FACT, "failed")
    raise InvalidParameter(
        "trust must be verified or self_asserted.", path=path, hint="self_asserted leaves out what failed a check."
    )


def _part(value: Any, path: str, name: str, known: tuple[str, ...]) -> tuple[Any, str]:
    """The bound itself, which stands alone or as a member. A member that nobody reads would be a filter ignored."""
    if not isinstance(value, dict):
        return value, path
    for other in value:
        if other not in known:
            raise InvalidParameter(
                f"{other[:64]!r} is not known here.", path=member(path, other), hint=f"Use {', '.join(known)}."
            )
    return value.get(name), member(path, name)


def _amount(value: Any, path: str, what: str) -> float:
    amount = amount_of(value)
    if amount is None:
        raise _wrong(value, path, what)
    return amount


def _texts(value: Any, path: str, hint: str) -> list[str]:
    """What is asked for, whole: a value that nobody reads would be a filter ignored."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    if not given or not all(isinstance(item, str) and 0 < len(item.strip()) <= FACT_CHARS for item in given):
        error = _wrong(value, path, f"a text or an array of texts of 1 to {FACT_CHARS} characters")
        raise InvalidParameter(error.message, path=path, hint=hint)
    if len(given) > limits.FILTER_VALUES:
        raise InvalidParameter(f"{len(given)} values; at most {limits.FILTER_VALUES} are read.", path=path)
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
    # other names for the same
    "regions": _region,
    "languages": _language,
    "auth_type": _auth,
    "latency": _latency,
    "cost": _cost,
    "min_trust": _trust,
}

SUPPORTED = tuple(_KNOWN)


# ---- Whom the hard filters of a question admit, filter by filter, among the agents that the caller may see.
#
# Bitmaps of the catalogue: a selection is true until the next change, so make one where you need it and let it go.


class FilterStep(NamedTuple):
    """One filter and the visible agents that pass it."""

    filter: str
    value: Any
    admitted: BitMap


class FilterSelection:
    def __init__(
        self,
        catalogue: Catalog,
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
        return seen - self._catalogue.facts.unreachable

    @cached_property
    def admitted(self) -> BitMap:
        """Those that pass every filter."""
        return BitMap.intersection(self.visible, *(step.admitted for step in self.steps))

    @cached_property
    def steps(self) -> list[FilterStep]:
        return [*self._filters(), *self._constrained()]

    def _filters(self) -> Iterator[FilterStep]:
        query, tags = self._query, self._catalogue.tags
        for tag in query.required_tags:
            yield FilterStep("required_tags", tag, self.visible & tags.by_tag.get(fold_tag(tag)))
        for tag in query.excluded_tags:
            yield FilterStep("excluded_tags", tag, self.visible - tags.by_tag.get(fold_tag(tag)))
        if query.protocols:
            spoken = tags.by_protocol.union(map(fold, query.protocols))
            yield FilterStep("protocols", list(query.protocols), self.visible & spoken)
        if query.statuses:
            yield FilterStep("statuses", list(query.statuses), self.visible & tags.by_status.union(query.statuses))

    def _constrained(self) -> Iterator[FilterStep]:
        stated = self._catalogue.facts
        for each in self._constraints:
            yield FilterStep(f"constraints.{each.name}", each.value, self.visible & each.admits(stated))

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

    def counts(self) -> tuple[FilterEffect, ...]:
        left = self.visible
        counted = []
        for step in self.steps:
            left = left & step.admitted
            counted.append(
                FilterEffect(filter=step.filter, value=step.value, matching=len(step.admitted), remaining=len(left))
            )
        return tuple(counted)
