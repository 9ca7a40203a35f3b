"""How an agent's endpoint answers when it is asked whether it lives, and what follows from that. Pure: time is an argument.

One failure makes suspect, three in a row make unhealthy, two answers in a row make healthy again (rtfs.md P-25). What an agent
says of itself moves none of it.
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.model.record import AgentRecord

HealthState = Literal["unknown", "healthy", "suspect", "unhealthy"]
HEALTH_FACT: Final = "health"
UNKNOWN: Final = "unknown"
UNHEALTHY: Final = "unhealthy"
SUSPENDED: Final = "suspended"  # the status of an agent that is unhealthy
GONE: Final = "gone"  # its server says that there is nothing any more, and asks not to be asked again

_WEB: Final = frozenset(("http", "https"))
_SOCKETS: Final = frozenset(("ws", "wss"))
_BARE: Final = frozenset(("grpc", "grpcs", "tcp"))  # a connection is all that can be tried
_GONE_STATUS: Final = 410


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of an agent, and told. `reason` is for its owner: others could map a network by it."""

    state: HealthState
    since: float
    reason: str = ""


class EndpointHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Where an endpoint stands after the checks so far."""

    state: HealthState = "unknown"
    since: float = 0.0
    reason: str = ""
    failures: int = 0  # in a row
    successes: int = 0  # in a row
    was_up: bool = False

    @property
    def health(self) -> Health:
        return Health(self.state, self.since, self.reason)


def restore_endpoint_health(health: Health | None) -> EndpointHealth:
    """Where an endpoint stands of which only this is remembered."""
    if health is None:
        return EndpointHealth()
    failures = {"suspect": 1, UNHEALTHY: limits.HEALTH_FAILURES}.get(health.state, 0)
    was_up = health.state in ("healthy", "suspect")
    return EndpointHealth(
        state=health.state, since=health.since, reason=health.reason, failures=failures, was_up=was_up
    )


def health_after_success(before: EndpointHealth, now: float) -> EndpointHealth:
    successes = before.successes + 1
    is_up = before.state != UNHEALTHY or successes >= limits.HEALTH_SUCCESSES
    if not is_up:
        return msgspec.structs.replace(before, failures=0, successes=successes)
    since = before.since if before.state == "healthy" else now
    return EndpointHealth(state="healthy", since=since, successes=successes, was_up=True)


def health_after_failure(before: EndpointHealth, reason: str, now: float, *, hold: bool = False) -> EndpointHealth:
    """`hold` keeps what is listed in the list: so many fail at once that it may be us."""
    failures = limits.HEALTH_FAILURES if reason == GONE else before.failures + 1
    is_down = before.state == UNHEALTHY or (failures >= limits.HEALTH_FAILURES and not hold)
    state: HealthState = UNHEALTHY if is_down else "suspect"
    since = before.since if before.state == state else now
    return EndpointHealth(state=state, since=since, reason=reason, failures=failures, was_up=before.was_up)


def endpoint_to_check(record: AgentRecord, named: str | None = None) -> str | None:
    """The place of an agent that can be asked: the one that was `named` for it, else the preferred one first; None where nobody
    can tell whether it lives."""
    ordered = sorted(record.bindings, key=lambda binding: binding.priority or 0)
    places = (*((named,) if named is not None else ()), *(binding.endpoint for binding in ordered))
    return next((place for place in places if _can_be_checked(place)), None)


def _can_be_checked(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        if not parts.hostname:
            return False
        return parts.scheme in _WEB | _SOCKETS or (parts.scheme in _BARE and parts.port is not None)
    except ValueError:
        return False


def scheme_of(endpoint: str) -> str:
    return endpoint.partition("://")[0].lower()


def is_socket(scheme: str) -> bool:
    return scheme in _SOCKETS


def is_connect_only(scheme: str) -> bool:
    return scheme in _BARE


def failure_of(endpoint: str, status: int | None) -> str | None:
    """What an answer says against an agent, in a word; None where it lives. A WebSocket lives as soon as a status comes, and
    where there is nothing but a connection, that is enough."""
    if status is None or is_socket(scheme_of(endpoint)):
        return None
    if status == _GONE_STATUS:
        return GONE
    return f"status_{status}" if status == 404 or status >= 500 else None
