"""The health of an agent's endpoint: states and transitions. Pure: the caller passes the time.

One failure makes it suspect, three in a row dead, two successes in a row healthy again. A dead agent is ranked last; where
dead agents are delisted (rtfs.md P-25), the state is called unhealthy. Heartbeats and the agent's own status have no effect
on it.
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.model.record import AgentRecord

HealthState = Literal["unknown", "healthy", "suspect", "dead", "unhealthy"]
HEALTH_FACT: Final = "health"
UNKNOWN: Final = "unknown"
DEAD: Final = "dead"
UNHEALTHY: Final = "unhealthy"
DOWN: Final = (DEAD, UNHEALTHY)
SUSPENDED: Final = "suspended"  # status of an unhealthy agent
HEALTH_WORDS: Final = {  # for people
    UNKNOWN: "never checked",
    "suspect": "suspect (unreachable)",
    UNHEALTHY: "unhealthy (dead, not listed)",
}
GONE: Final = "gone"  # HTTP 410: the endpoint was removed for good

_WEB: Final = frozenset(("http", "https"))
_SOCKETS: Final = frozenset(("ws", "wss"))
_BARE: Final = frozenset(("grpc", "grpcs", "tcp"))  # only a connection can be tried
_GONE_STATUS: Final = 410


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored health of an agent. Only its owner sees `reason`: others could map a network with it."""

    state: HealthState
    since: float
    reason: str = ""


class EndpointHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an endpoint after the checks so far."""

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
    """Restore the state of an endpoint from its stored health."""
    if health is None:
        return EndpointHealth()
    failures = {"suspect": 1, **dict.fromkeys(DOWN, limits.HEALTH_FAILURES)}.get(health.state, 0)
    was_up = health.state in ("healthy", "suspect")
    return EndpointHealth(
        state=health.state, since=health.since, reason=health.reason, failures=failures, was_up=was_up
    )


def health_after_success(before: EndpointHealth, now: float) -> EndpointHealth:
    successes = before.successes + 1
    is_up = before.state not in DOWN or successes >= limits.HEALTH_SUCCESSES
    if not is_up:
        return msgspec.structs.replace(before, failures=0, successes=successes)
    since = before.since if before.state == "healthy" else now
    return EndpointHealth(state="healthy", since=since, successes=successes, was_up=True)


def health_after_failure(
    before: EndpointHealth, reason: str, now: float, *, hold: bool = False, delists: bool = True
) -> EndpointHealth:
    """`hold` keeps the agent listed: so many checks fail at once that our own network may be down."""
    failures = limits.HEALTH_FAILURES if reason == GONE else before.failures + 1
    is_down = before.state in DOWN or (failures >= limits.HEALTH_FAILURES and not hold)
    down: HealthState = UNHEALTHY if delists else DEAD
    state: HealthState = down if is_down else "suspect"
    since = before.since if before.state == state else now
    return EndpointHealth(state=state, since=since, reason=reason, failures=failures, was_up=before.was_up)


def endpoint_to_check(record: AgentRecord, named: str | None = None) -> str | None:
    """Return the endpoint to check: the one `named` for it, else the preferred binding that can be checked, or None."""
    ordered = sorted(record.bindings, key=lambda binding: binding.priority or 0)
    endpoints = (*((named,) if named is not None else ()), *(binding.endpoint for binding in ordered))
    return next((endpoint for endpoint in endpoints if _can_be_checked(endpoint)), None)


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
    """Return the failure of a response as a code, or None. For a WebSocket any status is a success, and for other
    protocols a connection."""
    if status is None or is_socket(scheme_of(endpoint)):
        return None
    if status == _GONE_STATUS:
        return GONE
    return f"status_{status}" if status == 404 or status >= 500 else None
