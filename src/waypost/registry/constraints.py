"""Constraints of a query that this service can apply. What it cannot is named, never ignored (PRO-24, PRO-53, PRO-60)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waypost.errors import InvalidParameter
from waypost.model.json import kind_of
from waypost.model.names import fold
from waypost.model.registration import Registration

MAX_AGE = "max_results_age_seconds"
Predicate = Callable[[Registration], bool]


def compile_constraints(constraints: dict[str, Any], now: float) -> tuple[list[Predicate], dict[str, Any], list[str]]:
    """Predicates to apply, what they stand for, and the names that cannot be applied."""
    predicates: list[Predicate] = []
    applied: dict[str, Any] = {}
    unsupported: list[str] = []
    for name, value in constraints.items():
        make = _KNOWN.get(name)
        if make is None:
            unsupported.append(name)
        else:
            predicates.append(make(value, now))
            applied[name] = value
    return predicates, applied, unsupported


def _max_age(value: Any, now: float) -> Predicate:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise InvalidParameter(
            "max_results_age_seconds must be a number of seconds, 0 or more.",
            path="$.constraints.max_results_age_seconds",
        )
    oldest = now - value
    return lambda registration: max(registration.changed_at, registration.renewed_at) >= oldest


def _region(value: Any, now: float) -> Predicate:
    wanted = {fold(item) for item in _texts(value)}
    if not wanted:
        raise InvalidParameter(
            f"region must be a text or an array of texts, not {kind_of(value)}.",
            path="$.constraints.region",
            hint="Name a region as publishers do, such as eu or apac.",
        )

    def serves(registration: Registration) -> bool:
        stated = registration.record.constraints or {}
        regions = map(fold, _texts(stated.get("region")) or _texts(stated.get("regions")))
        return any(item in wanted or item in ("global", "*") for item in regions)

    return serves


def _texts(value: Any) -> list[str]:
    """A text or a list of texts. What publishers put here has no defined shape, so anything else is passed over."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


_KNOWN: dict[str, Callable[[Any, float], Predicate]] = {MAX_AGE: _max_age, "region": _region}
SUPPORTED = tuple(_KNOWN)
