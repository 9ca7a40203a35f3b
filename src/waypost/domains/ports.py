"""Ports to the network: DNS lookups with their DNSSEC status, and HTTP fetches that show the TLS peer before the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from waypost.registry.ports import FetchPurpose, FetchResponse

RecordType = Literal["SVCB", "HTTPS", "TLSA", "TXT", "SRV", "A", "AAAA", "CNAME", "DS", "DNSKEY", "SOA", "NS"]
LookupOutcome = Literal["found", "nodata", "nxdomain", "failed"]
SecurityState = Literal["secure", "insecure", "bogus", "indeterminate"]


class DnsLookup(msgspec.Struct, frozen=True, kw_only=True):
    """A DNS query and its answer. `failed` is a server failure, a timeout or a bogus answer: nothing may be concluded from it,
    least of all that there is no record (D3, C-11)."""

    name: str  # as queried, lower case, without a final dot
    type: RecordType
    outcome: LookupOutcome
    security: SecurityState
    reason: str = ""  # why it failed, or why it is not secure
    records: tuple[bytes, ...] = ()  # rdata in wire form, without name compression
    owner: str = ""  # the name of the records, after CNAMEs
    ttl: int = 0
    server: str = ""
    queries: int = 0  # sent for this answer; 0 for a cached one
    round_trips: int = 0  # sequential ones
    took_ms: float = 0.0
    validated: bool = True  # by this service; False if the AD bit of a trusted resolver was used


class DnsResolver(Protocol):
    async def lookup(self, name: str, kind: RecordType, /) -> DnsLookup:
        """Never raises for an answer or a failure of the DNS."""
        ...


class TlsPeer(msgspec.Struct, frozen=True, kw_only=True):
    """The peer of a TLS connection, before a request is sent."""

    chain: tuple[bytes, ...] = ()  # verified certificates in DER, leaf first; before Python 3.13 the leaf alone
    tls_version: str = ""


PeerCheck = Callable[[TlsPeer], Awaitable[None] | None]


class DomainFetcher(Protocol):
    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        """`check` runs after the TLS handshake and before the request; an exception closes the connection (ADP-12)."""
        ...

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        """One request without redirects; any status is returned."""
        ...
