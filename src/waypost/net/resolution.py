"""Names to addresses and texts, by DNS alone and without blocking. The hosts file is not read: what it says is for people on
this machine, and requests come from elsewhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from functools import cached_property

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver
from dns.nameserver import Do53Nameserver, Nameserver
from dns.rdtypes.ANY.TXT import TXT

from waypost import limits
from waypost.errors import FetchFailed
from waypost.net.addresses import Address
from waypost.net.servers import SYSTEM, parse_servers


class Resolver:
    """`server` is `system`, or `HOST:PORT`; several, after commas, are perspectives that can be asked one by one."""

    def __init__(self, server: str = SYSTEM, *, timeout_seconds: float = limits.FETCH_CONNECT_SECONDS) -> None:
        self._timeout = timeout_seconds
        self._named = parse_servers(server)

    async def addresses(self, name: str) -> list[Address]:
        """Every address of a name, from one look-up. FetchFailed when there is none, or too many to be a server."""
        answers = await asyncio.gather(
            self._ask(name, dns.rdatatype.A, 0), self._ask(name, dns.rdatatype.AAAA, 0), return_exceptions=True
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

    async def _ask(self, name: str, kind: dns.rdatatype.RdataType, perspective: int) -> list[bytes]:
        resolver = self._perspectives[perspective % len(self._perspectives)]
        try:
            answer = await resolver.resolve(
                dns.name.from_text(name),
                kind,
                raise_on_no_answer=False,
                search=False,
                lifetime=self._timeout,
            )
        except dns.resolver.NXDOMAIN:
            raise NoSuchName(*_no_address(name).args, path="url", details={"reason": "no_address"}) from None
        except dns.exception.DNSException:
            raise _no_address(name) from None
        rows = [] if answer.rrset is None else [*answer.rrset][: limits.PROOF_TXT_RECORDS]
        return [b"".join(row.strings) if isinstance(row, TXT) else row.to_text().encode() for row in rows]

    @cached_property
    def _perspectives(self) -> Sequence[dns.asyncresolver.Resolver]:
        if self._named is not None:
            return [_resolver([Do53Nameserver(host, port)]) for host, port in self._named]
        try:
            servers = dns.resolver.Resolver().nameservers
        except dns.exception.DNSException:
            raise FetchFailed(
                "This machine names no resolver.",
                path="resolver",
                hint="Name one with the setting resolver.",
                details={"reason": "no_address"},
            ) from None
        return [_resolver(servers), _resolver([*servers[1:], servers[0]])]


class NoSuchName(FetchFailed):
    """Told apart from a resolver that fails: that a name is not there can be an answer."""


def _resolver(servers: Sequence[str | Nameserver]) -> dns.asyncresolver.Resolver:
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers = list(servers)
    return resolver


def _no_address(name: str) -> FetchFailed:
    return FetchFailed(
        f"{name[:253]} has no address.", path="url", hint="Is the name right?", details={"reason": "no_address"}
    )
