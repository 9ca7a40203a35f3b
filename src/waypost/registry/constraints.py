"""Constraints of a query that this service can apply. What it cannot is named, never ignored (PRO-24, PRO-53, PRO-60)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waypost.errors import InvalidParameter
from waypost.model.json import kind_of
from waypost.model.names import fold
from waypost.model.registration import Registration

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
            f"max_results_age_seconds must be a number of seconds, not {kind_of(value)}.",
            path="$.constraints.max_results_age_seconds",
        )
    oldest = now - value
    return lambda registration: max(registration.changed_at, registration.renewed_at) >= oldest


def _region(value: Any, now: float) -> Predicate:
    wanted = {fold(item) for item in ([value] if isinstance(value, str) else value or ()) if isinstance(item, str)}
    if not wanted:
        raise InvalidParameter("region must be a text or a list of texts.", path="$.constraints.region")

    def serves(registration: Registration) -> bool:
        stated = (registration.record.constraints or {}).get("region")
        if stated is None:
            stated = (registration.record.constraints or {}).get("regions")
        regions = [stated] if isinstance(stated, str) else stated or ()
        return any(fold(item) in wanted or fold(item) in ("global", "*") for item in regions if isinstance(item, str))

    return serves


_KNOWN: dict[str, Callable[[Any, float], Predicate]] = {"max_results_age_seconds": _max_age, "region": _region}
SUPPORTED = tuple(_KNOWN)
