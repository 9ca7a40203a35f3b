"""What the procedures need of the net: answers of the DNS with what is proven of them, and documents with the certificate of
the very connection that brought them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from waypost.registry.ports import FetchPurpose, FetchResponse

RecordType = Literal["SVCB", "HTTPS", "TLSA", "TXT", "SRV", "A", "AAAA", "CNAME", "DS", "DNSKEY", "SOA", "NS"]
LookupOutcome = Literal["found", "nodata", "nxdomain", "failed"]
SecurityState = Literal["secure", "insecure", "bogus", "indeterminate"]


class DnsLookup(msgspec.Struct, frozen=True, kw_only=True):
    """One question to the DNS and its answer. `failed` is a server that fails, a timeout or a bogus answer: nothing follows
    from it, least of all that there is no record (D3, C-11)."""

    name: str  # as asked, lower case, without a final dot
    type: RecordType
    outcome: LookupOutcome
    security: SecurityState
    reason: str = ""  # why it failed, or why it is not secure
    records: tuple[bytes, ...] = ()  # rdata in wire form, names in it not compressed
    owner: str = ""  # where the records are, after CNAMEs
    ttl: int = 0
    server: str = ""  # who was asked
    queries: int = 0  # sent for this answer; 0 when it was remembered
    round_trips: int = 0  # one after another
    took_ms: float = 0.0
    validated: bool = True  # by us; False where the AD bit of a trusted resolver was taken for it


class DnsResolver(Protocol):
    async def lookup(self, name: str, kind: RecordType, /) -> DnsLookup:
        """Never raises for what the DNS says or fails to say."""
        ...


class TlsPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Who answered a connection, before anything is asked of it."""

    host: str
    port: int
    address: str
    certificate: bytes | None = None  # DER; None without TLS
    chain: tuple[bytes, ...] = ()  # leaf first, as verified, where it is known
    tls_version: str = ""


PeerCheck = Callable[[TlsPeer], Awaitable[None] | None]


class DomainFetcher(Protocol):
    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        """`check` sees the peer after its handshake and before the request; what it raises ends the connection (ADP-12). It may
        be a coroutine: what it waits for goes side by side with the connection."""
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
        """One request as it is told, and its answer, whatever it is."""
        ...
