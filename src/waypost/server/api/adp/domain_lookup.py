"""What the DNS of an agent's domain says: the key of the agent, and the endpoint that takes its tasks.

For a domain that is hosted here, the key is the one that signs its document here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from waypost.errors import FingerprintMismatch, InvalidParameter, NotFound, UnknownPeer
from waypost.messaging.peers import PeerIdentity, find_dns_key
from waypost.model.json import JsonObject
from waypost.model.names import domain_of
from waypost.model.resolution import Resolution
from waypost.registry.registry import Registry
from waypost.server.hosted_agents.keys import HostedKeys

if TYPE_CHECKING:
    from waypost.domains.resolver import DomainResolution


_SPECIAL_USE_NAMES = ("invalid", "localhost", "test", "example", "local")  # not in the public DNS (RFC 6761)


class DomainKeyResolver(Protocol):
    async def resolve(self, name: str) -> Resolution: ...


class DomainKeys:
    def __init__(self, resolver: DomainKeyResolver, *, everywhere: bool = False) -> None:
        """`everywhere`: also look up special-use names, which a private resolver may know."""
        self._resolver = resolver
        self._everywhere = everywhere

    async def key_of(self, agent: str) -> PeerIdentity | None:
        domain = domain_of(agent) or ""
        last = domain.rpartition(".")[2]
        if (
            "." not in domain
            or last.isdigit()
            or ":" in domain
            or (last in _SPECIAL_USE_NAMES and not self._everywhere)
        ):
            return None
        try:
            found = await self._resolver.resolve(agent)
        except InvalidParameter:
            return None
        if found.dnssec == "bogus":
            raise UnknownPeer(
                f"The DNS answer for {domain} is bogus: {found.reason or 'its signatures are invalid'}.",
                path="$.from",
                hint="Repair the signatures of the zone.",
            )
        rung = found.find_verdict("key-verified")
        if rung is not None and rung.state == "failed":
            raise FingerprintMismatch(
                f"The key in the document of {domain} differs from the one in its DNS.",
                path="$.from",
                hint="Publish the same key in both.",
            )
        return find_dns_key(agent, found)


class HostedPeerKeys:
    """Keys of agents hosted here that the DNS does not lead to yet."""

    def __init__(self, registry: Registry, keys: HostedKeys) -> None:
        self._registry = registry
        self._keys = keys

    async def key_of(self, agent: str) -> PeerIdentity | None:
        domain = domain_of(agent) or ""
        key = self._keys.key_of(domain) if domain and self._registry.hosted(domain) is not None else None
        if key is None:
            return None
        public = key.public
        return PeerIdentity(
            agent=agent, fingerprint=public.fingerprint() or "", by="registry", key=public, domain=domain
        )


class DomainTaskResolver(Protocol):
    async def find(self, name: str) -> DomainResolution: ...


class DomainTaskEndpoints:
    def __init__(self, resolver: DomainTaskResolver) -> None:
        self._resolver = resolver

    async def tasks_url(self, agent: str) -> str:
        """Find the task endpoint, or raise NotFound without a reason: a reason would help to map a network."""
        try:
            found = await self._resolver.find(agent)
        except InvalidParameter:
            raise _no_task_endpoint(agent) from None
        told = found.resolution
        if not told.is_resolved or any(verdict.state == "failed" for verdict in told.verdicts):
            raise _no_task_endpoint(agent)
        for descriptor in found.documents:
            url = _find_tasks_url(descriptor.parsed or {})
            if url is not None:
                return url
        raise _no_task_endpoint(agent)


def has_public_domain(agent: str) -> bool:
    """Whether an Agent URI contains a name that the public DNS could have."""
    domain = domain_of(agent) if agent.startswith("agent:") else None
    return domain is not None and "." in domain and not domain.rpartition(".")[2].isdigit()


def _find_tasks_url(document: JsonObject) -> str | None:
    endpoints: Any = document.get("endpoints")
    url = endpoints.get("tasks") if isinstance(endpoints, dict) else None
    return url if isinstance(url, str) and url.startswith("https://") else None


def _no_task_endpoint(agent: str) -> NotFound:
    return NotFound(f"No task endpoint is known for {agent[:80]!r}.", path="agent", hint="Check the name of the agent.")
