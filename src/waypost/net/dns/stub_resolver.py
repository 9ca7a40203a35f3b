"""Names to addresses and texts, by DNS alone and without blocking. The hosts file is not read: what it says is for people on
this machine, and requests come from elsewhere.
"""

from __future__ import annotations

import asyncio
import ipaddress

import dns.exception
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
from dns.rdtypes.ANY.TXT import TXT

from waypost import limits
from waypost.errors import FetchFailed
from waypost.net.address_policy import Address
from waypost.net.dns.message import DnsQuery, follow_aliases
from waypost.net.dns.resolver_config import SYSTEM_RESOLVER
from waypost.net.dns.upstreams import UpstreamResolvers


class StubResolver:
    """`server` is who is asked, or what the setting `resolver` says; several, after commas, are perspectives that can be
    asked one by one."""

    def __init__(
        self,
        server: str | UpstreamResolvers = SYSTEM_RESOLVER,
        *,
        timeout_seconds: float = limits.FETCH_CONNECT_SECONDS,
    ) -> None:
        self._timeout = timeout_seconds
        self._upstreams = UpstreamResolvers(server) if isinstance(server, str) else server

    async def addresses(self, name: str) -> list[Address]:
        """Every address of a name, from one look-up. FetchFailed when there is none, or too many to be a server."""
        answers = await asyncio.gather(
            self._ask(name, dns.rdatatype.A, None), self._ask(name, dns.rdatatype.AAAA, None), return_exceptions=True
        )
        found: list[Address] = []
        for answer in answers:
            if isinstance(answer, list):
                found += [ipaddress.ip_address(text.decode("ascii")) for text in answer]
            elif not isinstance(answer, FetchFailed):
                raise answer
        if not found or len(found) > limits.FETCH_ADDRESSES:
            raise _no_address(name)
        return found

    async def texts(self, name: str, perspective: int = 0) -> list[bytes]:
        """The TXT records of a name, the strings of each joined; none is an answer too."""
        try:
            return await self._ask(name, dns.rdatatype.TXT, perspective)
        except NoSuchName:
            return []

    async def _ask(self, name: str, kind: dns.rdatatype.RdataType, perspective: int | None) -> list[bytes]:
        try:
            owner = dns.name.from_text(name)
            question = DnsQuery(name=owner, type=kind, signatures=False, checking=False)
            async with asyncio.timeout(self._timeout):
                message = await self._upstreams.ask(question, perspective)
        except (dns.exception.DNSException, FetchFailed, TimeoutError):
            raise _no_address(name) from None
        if message.rcode == dns.rcode.NXDOMAIN:
            raise NoSuchName(*_no_address(name).args, path="url", details={"reason": "no_address"}) from None
        if message.rcode != dns.rcode.NOERROR:
            raise _no_address(name)
        rrset = follow_aliases(message, owner).rrset
        return [] if rrset is None else [_rdata_bytes(row) for row in [*rrset][: limits.PROOF_TXT_RECORDS]]


class NoSuchName(FetchFailed):
    """Told apart from a resolver that fails: that a name is not there can be an answer."""


def _rdata_bytes(row: dns.rdata.Rdata) -> bytes:
    return b"".join(row.strings) if isinstance(row, TXT) else row.to_text().encode()


def _no_address(name: str) -> FetchFailed:
    return FetchFailed(
        f"{name[:253]} has no address.", path="url", hint="Is the name right?", details={"reason": "no_address"}
    )
