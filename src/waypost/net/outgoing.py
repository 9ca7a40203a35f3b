"""The way out of one process, made of its settings: fetching, and looking up proofs.

What it is made of is a third of all that a start would import. Most services ask nobody for a while, so it is loaded when
somebody is to be asked; a mistake in the settings is told at once.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waypost.net.addresses import AddressPolicy
from waypost.net.servers import SYSTEM, parse_servers
from waypost.registry.fetching import Fetched, Purpose
from waypost.trust.domains import Method

if TYPE_CHECKING:
    from waypost.net.fetching import SafeFetcher
    from waypost.net.proofs import PublishedProofs


class OutgoingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`own` are the addresses at which this process listens, `own_origin` is how others reach it."""

    allow_cidrs: tuple[str, ...] = ()
    resolver: str = SYSTEM
    ca_file: Path | None = None
    own: tuple[tuple[str, int], ...] = ()
    own_origin: str | None = None


class Outgoing:
    """`Fetcher` of registry/fetching.py and `ProofLookup` of registry/domains.py."""

    def __init__(self, options: OutgoingOptions) -> None:
        self._options = options
        self._policy = AddressPolicy(options.allow_cidrs, options.own)
        parse_servers(options.resolver)
        if options.ca_file is not None:
            _ = self._parts

    async def fetch(self, url: str, purpose: Purpose) -> Fetched:
        return await self._parts[0].fetch(url, purpose)

    async def lines(self, domain: str, method: Method, perspective: int) -> list[str]:
        return await self._parts[1].lines(domain, method, perspective)

    @cached_property
    def _parts(self) -> tuple[SafeFetcher, PublishedProofs]:
        from waypost.net.fetching import SafeFetcher
        from waypost.net.proofs import PublishedProofs
        from waypost.net.resolution import Resolver

        resolver = Resolver(self._options.resolver)
        fetcher = SafeFetcher(
            self._policy, resolver, ca_file=self._options.ca_file, own_origin=self._options.own_origin
        )
        return fetcher, PublishedProofs(resolver, fetcher)
