"""The key of an agent as its own domain gives it: in the DNS, and in the document that the DNS leads to; for a domain that is
hosted here, the one that its document here is signed with."""

from __future__ import annotations

from typing import Protocol

from waypost.errors import FingerprintMismatch, InvalidParameter, UnknownPeer
from waypost.meeting.peers import PeerKey, resolved_key
from waypost.model.names import domain_of
from waypost.model.resolution import Resolution
from waypost.registry.engine import Registry
from waypost.server.hosted_keys import HostedKeys

_NOWHERE = ("invalid", "localhost", "test", "example", "local")  # names that no public DNS has (RFC 6761)


class Resolver(Protocol):
    async def resolve(self, name: str) -> Resolution: ...


class DomainKeys:
    def __init__(self, resolver: Resolver, *, everywhere: bool = False) -> None:
        """`everywhere`: a resolver of one's own, which may know names that the public DNS has not."""
        self._resolver = resolver
        self._everywhere = everywhere

    async def key_of(self, agent: str) -> PeerKey | None:
        domain = domain_of(agent) or ""
        last = domain.rpartition(".")[2]
        if "." not in domain or last.isdigit() or ":" in domain or (last in _NOWHERE and not self._everywhere):
            return None
        try:
            found = await self._resolver.resolve(agent)
        except InvalidParameter:
            return None
        if found.dnssec == "bogus":
            raise UnknownPeer(
                f"What the DNS says of {domain} is not to be believed: {found.reason or 'its signatures do not hold'}.",
                path="$.from",
                hint="Mend the zone; nothing else is believed of this agent until then.",
            )
        rung = found.rung("key-verified")
        if rung is not None and rung.state == "failed":
            raise FingerprintMismatch(
                f"The document of {domain} shows another key than its DNS.",
                path="$.from",
                hint="Publish one key in both.",
            )
        return resolved_key(agent, found)


class HostedPeerKeys:
    """Agents that this service hosts, while no DNS leads to them: whoever has their key speaks for them."""

    def __init__(self, registry: Registry, keys: HostedKeys) -> None:
        self._registry = registry
        self._keys = keys

    async def key_of(self, agent: str) -> PeerKey | None:
        domain = domain_of(agent) or ""
        key = self._keys.key_of(domain) if domain and self._registry.hosted(domain) is not None else None
        if key is None:
            return None
        public = key.public
        return PeerKey(agent=agent, fingerprint=public.fingerprint() or "", by="registry", key=public, domain=domain)
