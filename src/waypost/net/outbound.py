"""Outgoing HTTP and DNS of one process, configured from its settings.

The HTTP client, the DNS client and the DNSSEC validator are imported on first use: they take 100 ms, a third of the start of a
service, and many services never use them. The HTTP client is imported in a thread, because other requests would wait for it.
Mistakes in the settings are reported at the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from waypost.domains.ports import DnsLookup, PeerCheck, RecordType
from waypost.net.address_policy import AddressPolicy
from waypost.net.clock import SystemClock
from waypost.net.dns.resolver_config import SYSTEM_RESOLVER, parse_resolvers, require_trusted_paths
from waypost.net.probe_target import check_endpoint
from waypost.registry.ports import FetchPurpose, FetchResponse
from waypost.settings import Settings
from waypost.trust.domain_claims import ProofMethod

if TYPE_CHECKING:
    from waypost.domains.ports import DnsResolver
    from waypost.net.dns.upstreams import StubResolver, UpstreamResolvers
    from waypost.net.fetcher import DomainProofLookup, SafeFetcher
    from waypost.trust.dnssec.anchors import TrustAnchors


class OutboundOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`own` are the addresses at which this process listens, `own_origin` its public origin."""

    allow_cidrs: tuple[str, ...] = ()
    resolver: str = SYSTEM_RESOLVER
    ca_file: Path | None = None
    trust_anchors: Path | None = None
    trust_ad: bool = False
    insecure_domains: tuple[str, ...] = ()
    own: tuple[tuple[str, int], ...] = ()
    own_origin: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            allow_cidrs=settings.allow_cidrs,
            resolver=settings.resolver,
            ca_file=settings.fetch_ca,
            trust_anchors=settings.trust_anchors,
            trust_ad=settings.trust_ad,
            insecure_domains=settings.insecure_domains,
        )


class OutboundClient:
    """`Fetcher`, `Sender` and `Prober` of registry/ports.py, `DnsResolver` and `DomainFetcher` of domains/ports.py, `ProofLookup`
    of registry/domain_claims.py."""

    def __init__(self, options: OutboundOptions) -> None:
        self._options = options
        self._is_imported = False
        self._importing = asyncio.Lock()
        self._policy = AddressPolicy(options.allow_cidrs, options.own)
        parse_resolvers(options.resolver)
        if options.trust_ad:
            require_trusted_paths(options.resolver)
        if options.ca_file is not None:
            _ = self._fetcher
        if options.trust_anchors is not None or options.insecure_domains:
            _ = self._anchors

    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        return await (await self._load()).fetch(url, purpose, check=check)

    async def probe(self, endpoint: str) -> int | None:
        return await (await self._load()).probe(endpoint)

    def check_endpoint(self, endpoint: str) -> None:
        check_endpoint(endpoint, self._policy, self._options.own_origin)

    def check(self, url: str, purpose: FetchPurpose) -> None:
        self._fetcher.check(url, purpose)

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        return await (await self._load()).send(url, purpose, method=method, body=body, headers=headers)

    async def lookup(self, name: str, kind: RecordType, /) -> DnsLookup:
        return await self.dns.lookup(name, kind)

    async def lines(self, domain: str, method: ProofMethod, perspective: int) -> list[str]:
        return await self._proofs.lines(domain, method, perspective)

    async def _load(self) -> SafeFetcher:
        if not self._is_imported:
            async with self._importing:
                if not self._is_imported:
                    await asyncio.to_thread(_import_fetcher)
                    self._is_imported = True
        return self._fetcher

    async def aclose(self) -> None:
        """Close the connections to resolvers."""
        if "_upstreams" in self.__dict__:
            await self._upstreams.aclose()

    @cached_property
    def dns(self) -> DnsResolver:
        """DNS lookups with their DNSSEC status."""
        from waypost.net.dns.validator import ValidatingResolver

        return ValidatingResolver(
            self._upstreams, self._anchors, clock=SystemClock().latest, trust_ad=self._options.trust_ad
        )

    @cached_property
    def _upstreams(self) -> UpstreamResolvers:
        from waypost.net.dns.upstreams import UpstreamResolvers

        return UpstreamResolvers(self._options.resolver, ca_file=self._options.ca_file)

    @cached_property
    def _anchors(self) -> TrustAnchors:
        from waypost.net.dns.validator import load_trust_anchors

        return load_trust_anchors(self._options.trust_anchors, self._options.insecure_domains)

    @cached_property
    def _stub_resolver(self) -> StubResolver:
        from waypost.net.dns.upstreams import StubResolver

        return StubResolver(self._upstreams)

    @cached_property
    def _fetcher(self) -> SafeFetcher:
        from waypost.net.fetcher import SafeFetcher

        options = self._options
        return SafeFetcher(self._policy, self._stub_resolver, ca_file=options.ca_file, own_origin=options.own_origin)

    @cached_property
    def _proofs(self) -> DomainProofLookup:
        from waypost.net.fetcher import DomainProofLookup

        return DomainProofLookup(self._stub_resolver, self._fetcher)


def _import_fetcher() -> None:
    from waypost.net.fetcher import import_backend

    import_backend()
