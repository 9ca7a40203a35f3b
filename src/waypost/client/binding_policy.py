"""The rules by which a client chooses a binding of an agent before it calls it (PRO-16).

A registry reports what agents claim and how far it was verified; whether to call one is the caller's decision. The rules do
not resolve names: the code that connects must check the resolved address as well.
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

_NO_PRIORITY: Final = 1 << 31  # a binding without a priority comes last
_USABLE: Final = frozenset(("active", "testing", None))
TRUST_ORDER: Final = ("failed", "self_asserted", "verified")
_LOCAL_NAMES: Final = ("localhost", ".localhost", ".local", ".internal", ".home.arpa")


class BindingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which bindings a client may use. By default: encrypted, public, and of an agent that failed no check.

    Example:
        policy = BindingPolicy(hosts=("*.example.com",), least_trust="verified")
        binding = policy.choose(candidate)
    """

    protocols: tuple[str, ...] = ()  # empty: any
    schemes: tuple[str, ...] = ("https", "wss")
    hosts: tuple[str, ...] = ()  # patterns such as *.example.com; empty: any
    denied_hosts: tuple[str, ...] = ()
    local_addresses: bool = False  # loopback, private networks and names of local networks
    least_trust: str = "self_asserted"

    def __post_init__(self) -> None:
        if self.least_trust not in TRUST_ORDER:
            raise InvalidParameter(
                f"{self.least_trust[:40]!r} is not a level of trust.",
                path="least_trust",
                hint=f"Use {', '.join(TRUST_ORDER)}.",
            )

    def choose(self, candidate: Candidate, *, now: float | None = None) -> dict[str, Any]:
        """The preferred binding that the rules allow. Raises NotAllowed with the reasons if there is none.

        Args:
            candidate: A candidate of a search.
            now: The time, to refuse candidates that have expired.

        Example:
            result = client.find("translate an invoice")
            binding = BindingPolicy(protocols=("https",)).choose(result.candidates[0])
            print(binding["endpoint"])
        """
        reasons = list(self._agent_problems(candidate, now))
        if not reasons:
            for binding in sorted(candidate.bindings, key=_priority):
                problems = list(self.problems(binding))
                if not problems:
                    return binding
                reasons += (f"{binding.get('protocol')} {binding.get('endpoint')}: {problem}" for problem in problems)
        raise NotAllowed(
            f"No binding of {candidate.id!r} may be used: {'; '.join(reasons) or 'it has none'}.",
            path="bindings",
            hint="Relax the policy to call this agent.",
        )

    def problems(self, binding: Mapping[str, Any]) -> Iterator[str]:
        """Why the rules do not allow a binding; nothing if they do.

        Args:
            binding: A binding of an agent.

        Example:
            policy = BindingPolicy(hosts=("*.example.com",))
            print(list(policy.problems({"protocol": "a2a", "endpoint": "http://localhost:9999"})))
        """
        protocol, endpoint = str(binding.get("protocol", "")), str(binding.get("endpoint", ""))
        if self.protocols and protocol not in self.protocols:
            yield f"the protocol is not one of {', '.join(self.protocols)}"
        try:
            parts = urlsplit(endpoint)
            host = (parts.hostname or "").rstrip(".").lower()
        except ValueError:
            yield "the endpoint is not a URL"
            return
        if parts.scheme not in self.schemes:
            yield f"the scheme is not one of {', '.join(self.schemes)}"
        if not host or parts.username is not None:
            yield "the endpoint has no host, or a user name"
            return
        if self.hosts and not _matches_host(host, self.hosts):
            yield f"{host} does not match {', '.join(self.hosts)}"
        if _matches_host(host, self.denied_hosts):
            yield f"{host} is denied"
        if not self.local_addresses and _is_local(host):
            yield f"{host} is a local address"

    def _agent_problems(self, candidate: Candidate, now: float | None) -> Iterator[str]:
        if candidate.status not in _USABLE:
            yield f"it is {candidate.status}"
        level = "self_asserted" if candidate.trust is None else candidate.trust.level
        if level not in TRUST_ORDER or TRUST_ORDER.index(level) < TRUST_ORDER.index(self.least_trust):
            yield f"its trust is {level}, less than {self.least_trust}"
        expires_at = None if candidate.freshness is None else candidate.freshness.expires_at
        expiry = find_instant(expires_at)
        if now is not None and expiry is not None and expiry <= now:
            yield f"it expired at {expires_at}"


def _priority(binding: Mapping[str, Any]) -> int:
    priority = binding.get("priority")
    return priority if isinstance(priority, int) else _NO_PRIORITY


def _matches_host(host: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(host, pattern.lower()) for pattern in patterns)


def _is_local(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == _LOCAL_NAMES[0] or host.endswith(_LOCAL_NAMES[1:]) or "." not in host
