"""Which of an agent's bindings a client may use: its own rules, asked before it calls anybody (PRO-16).

A registry says what agents say of themselves and how far that was verified; whether to call one is the caller's decision.
Pure: names are not looked up. Whoever connects checks the address that a name leads to, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost.errors import InvalidParameter, NotAllowed
from waypost.model.times import find_instant
from waypost.responses.search import Candidate

_LAST: Final = 1 << 31  # the place of a binding without a priority
_USABLE: Final = frozenset(("active", "testing", None))
TRUST_ORDER: Final = ("failed", "self_asserted", "verified")
_LOCAL: Final = ("localhost", ".localhost", ".local", ".internal", ".home.arpa")


class BindingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a client. Without any: encrypted, public, and of an agent whose checks did not fail."""

    protocols: tuple[str, ...] = ()  # any when empty
    schemes: tuple[str, ...] = ("https", "wss")
    hosts: tuple[str, ...] = ()  # patterns such as *.example.com; any when empty
    denied_hosts: tuple[str, ...] = ()
    local_addresses: bool = False  # loopback, private networks, names that only lead there
    least_trust: str = "self_asserted"

    def __post_init__(self) -> None:
        if self.least_trust not in TRUST_ORDER:
            raise InvalidParameter(
                f"{self.least_trust[:40]!r} is not a level of trust.",
                path="least_trust",
                hint=f"Use {', '.join(TRUST_ORDER)}.",
            )

    def choose(self, candidate: Candidate, *, now: float | None = None) -> dict[str, Any]:
        """The preferred binding that the rules admit. NotAllowed says of each why not."""
        reasons = list(self._against_agent(candidate, now))
        if not reasons:
            for binding in sorted(candidate.bindings, key=_priority):
                refused = list(self.against(binding))
                if not refused:
                    return binding
                reasons += (f"{binding.get('protocol')} {binding.get('endpoint')}: {reason}" for reason in refused)
        raise NotAllowed(
            f"No binding of {candidate.id!r} may be used: {'; '.join(reasons) or 'it has none'}.",
            path="bindings",
            hint="Widen the policy, if you mean to call it.",
        )

    def against(self, binding: Mapping[str, Any]) -> Iterator[str]:
        """What speaks against a binding; nothing when it may be used."""
        protocol, endpoint = str(binding.get("protocol", "")), str(binding.get("endpoint", ""))
        if self.protocols and protocol not in self.protocols:
            yield f"the protocol is none of {', '.join(self.protocols)}"
        try:
            parts = urlsplit(endpoint)
            host = (parts.hostname or "").rstrip(".").lower()
        except ValueError:
            yield "the endpoint is no address"
            return
        if parts.scheme not in self.schemes:
            yield f"the scheme is none of {', '.join(self.schemes)}"
        if not host or parts.username is not None:
            yield "the endpoint names no host, or a user"
            return
        if self.hosts and not _matches_host(host, self.hosts):
            yield f"{host} is none of {', '.join(self.hosts)}"
        if _matches_host(host, self.denied_hosts):
            yield f"{host} is denied"
        if not self.local_addresses and _is_local(host):
            yield f"{host} is a local address"

    def _against_agent(self, candidate: Candidate, now: float | None) -> Iterator[str]:
        if candidate.status not in _USABLE:
            yield f"it is {candidate.status}"
        level = "self_asserted" if candidate.trust is None else candidate.trust.level
        if level not in TRUST_ORDER or TRUST_ORDER.index(level) < TRUST_ORDER.index(self.least_trust):
            yield f"it is {level}, less than {self.least_trust}"
        ends = None if candidate.freshness is None else candidate.freshness.expires_at
        until = find_instant(ends)
        if now is not None and until is not None and until <= now:
            yield f"it was to be asked for again at {ends}"


def _priority(binding: Mapping[str, Any]) -> int:
    priority = binding.get("priority")
    return priority if isinstance(priority, int) else _LAST


def _matches_host(host: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(host, pattern.lower()) for pattern in patterns)


def _is_local(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == _LOCAL[0] or host.endswith(_LOCAL[1:]) or "." not in host
