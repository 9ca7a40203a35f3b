"""Leases: a table of states, and how long a registration lives."""

from __future__ import annotations

from typing import Literal

from waypost import limits
from waypost.errors import InvalidParameter

State = Literal["none", "live", "expired", "withdrawn"]
LeaseEvent = Literal["publish", "renew", "deadline", "withdraw"]

# (state, event) → state. What is not listed is refused. docs/explanation/freshness-and-leases.md draws its diagram from it.
TRANSITIONS: dict[tuple[State, LeaseEvent], State] = {
    ("none", "publish"): "live",
    ("live", "publish"): "live",
    ("live", "renew"): "live",
    ("live", "deadline"): "expired",
    ("live", "withdraw"): "withdrawn",
    ("expired", "publish"): "live",
    ("withdrawn", "publish"): "live",
    ("withdrawn", "withdraw"): "withdrawn",
}


def granted_ttl(asked: int | None, dialect: str) -> int | None:
    """The time a lease runs, clamped to the bounds; None when the dialect has no lease and none was asked for."""
    ttl = asked if asked is not None else limits.TTL_DEFAULT_SECONDS.get(dialect)
    if ttl is None:
        return None
    return max(limits.TTL_MIN_SECONDS, min(limits.TTL_MAX_SECONDS, ttl))


def parse_ttl(value: object, path: str = "ttl_seconds") -> int:
    """A TTL as callers send it: a whole, positive number of seconds (T1 of the threat list)."""
    number = value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        number = int(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= 2**31:
        raise InvalidParameter(
            "A TTL is a whole number of seconds above 0.",
            path=path,
            hint=f"Use {limits.TTL_MIN_SECONDS} to {limits.TTL_MAX_SECONDS}; other values are clamped to that.",
        )
    return number


def earliest(*instants: float | None) -> float | None:
    known = [instant for instant in instants if instant is not None]
    return min(known) if known else None
