"""The way out of one process, made of its settings: fetching, and looking up proofs.

What it is made of is a third of all that a start would import. Most services ask nobody for a while, so it is loaded when
somebody is to be asked; a mistake in the settings is told at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from waypost.domains.ports import Check, Lookup, RecordType
from waypost.net.addresses import AddressPolicy
from waypost.net.clock import SystemClock
from waypost.net.servers import SYSTEM, check_trusted_paths, parse_servers
from waypost.registry.fetching import Fetched, Purpose
from waypost.settings import Settings
from waypost.trust.domains import Method

if TYPE_CHECKING:
    from waypost.domains.ports import Dns
    from waypost.net.dns.upstreams import Upstreams
    from waypost.net.fetching import SafeFetcher
    from waypost.net.proofs import PublishedProofs
    from waypost.trust.dnssec.anchors import TrustAnchors


class OutgoingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`own` are the addresses at which this process listens, `own_origin` is how others reach it."""

    allow_cidrs: tuple[str, ...] = ()
    resolver: str = SYSTEM
    ca_file: Path | None = None
    trust_anchors: Path | None = None
    trust_ad: bool = False
    insecure_domains: tuple[str, ...] = ()
    own: tuple[tuple[str, int], ...] = ()
    own_origin: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """What the settings say of it; `msgspec.structs.replace` says what is otherwise."""
        return cls(
            allow_cidrs=settings.allow_cidrs,
            resolver=settings.resolver,
            ca_file=settings.fetch_ca,
            trust_anchors=settings.trust_anchors,
            trust_ad=settings.trust_ad,
            insecure_domains=settings.insecure_domains,
        )


class Outgoing:
    """`Fetcher` of registry/fetching.py, `Dns` and `DomainFetcher` of domains/ports.py, `ProofLookup` of registry/domains.py."""

    def __init__(self, options: OutgoingOptions) -> None:
        self._options = options
        self._policy = AddressPolicy(options.allow_cidrs, options.own)
        parse_servers(options.resolver)
        if options.trust_ad:
            check_trusted_paths(options.resolver)
        if options.ca_file is not None:
            _ = self._parts
        if options.trust_anchors is not None or options.insecure_domains:
            _ = self._anchors

    async def fetch(self, url: str, purpose: Purpose, *, check: Check | None = None) -> Fetched:
        return await self._parts[0].fetch(url, purpose, check=check)

    async def probe(self, endpoint: str) -> int | None:
        return await self._parts[0].probe(endpoint)

    def check_endpoint(self, endpoint: str) -> None:
        self._parts[0].check_endpoint(endpoint)

    def check(self, url: str, purpose: Purpose) -> None:
        self._parts[0].check(url, purpose)

    async def send(
        self,
        url: str,
        purpose: Purpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Fetched:
        return await self._parts[0].send(url, purpose, method=method, body=body, headers=headers)

    async def lookup(self, name: str, kind: RecordType, /) -> Lookup:
        return await self.dns.lookup(name, kind)

    async def lines(self, domain: str, method: Method, perspective: int) -> list[str]:
        return await self._parts[1].lines(domain, method, perspective)

    async def aclose(self) -> None:
        """Close what is kept open to a resolver."""
        if "_upstreams" in self.__dict__:
            await self._upstreams.aclose()

    @cached_property
    def dns(self) -> Dns:
        """Questions to the DNS with how far their answers are proven."""
        from waypost.net.dns.validating import ValidatingDns

        return ValidatingDns(self._upstreams, self._anchors, clock=SystemClock().now, trust_ad=self._options.trust_ad)

    @cached_property
    def _upstreams(self) -> Upstreams:
        from waypost.net.dns.upstreams import Upstreams

        return Upstreams(self._options.resolver, ca_file=self._options.ca_file)

    @cached_property
    def _anchors(self) -> TrustAnchors:
        from waypost.net.dns.anchor_file import read_anchors

        return read_anchors(self._options.trust_anchors, self._options.insecure_domains)

    @cached_property
    def _parts(self) -> tuple[SafeFetcher, PublishedProofs]:
        from waypost.net.fetching import SafeFetcher
        from waypost.net.proofs import PublishedProofs
        from waypost.net.resolution import Resolver

        resolver = Resolver(self._upstreams)
        fetcher = SafeFetcher(
            self._policy, resolver, ca_file=self._options.ca_file, own_origin=self._options.own_origin
        )
        return fetcher, PublishedProofs(resolver, fetcher)
