"""One question to the DNS, answered with how far the answer is proven."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import dns.exception
import dns.name
import dns.rcode
import dns.rdatatype

from waypost import limits
from waypost.domains.ports import Lookup, Outcome, RecordType
from waypost.errors import WaypostError
from waypost.net.dns.exchange import Account, Exchange
from waypost.net.dns.upstreams import Upstreams


class ValidatingDns:
    """`Dns` of domains/ports.py."""

    def __init__(self, upstreams: Upstreams, *, clock: Callable[[], float]) -> None:
        self._exchange = Exchange(upstreams, clock)
        self._upstreams = upstreams

    async def lookup(self, name: str, kind: RecordType) -> Lookup:
        account = Account()
        begun = time.perf_counter()
        asked = name.rstrip(".").lower()
        outcome: Outcome = "failed"
        try:
            async with asyncio.timeout(limits.DNS_SECONDS):
                message = await self._exchange.ask(dns.name.from_text(asked), dns.rdatatype.from_text(kind), account)
        except (WaypostError, TimeoutError, dns.exception.DNSException) as error:
            return Lookup(name=asked, type=kind, outcome=outcome, security="indeterminate", reason=str(error))
        records: tuple[bytes, ...] = ()
        owner = asked
        for rrset in message.answer:
            if rrset.rdtype == message.type:
                records = tuple(rdata.to_wire() or b"" for rdata in rrset)
                owner = rrset.name.to_text(omit_final_dot=True).lower()
        if message.rcode == dns.rcode.NXDOMAIN:
            outcome = "nxdomain"
        elif message.rcode == dns.rcode.NOERROR:
            outcome = "found" if records else "nodata"
        return Lookup(
            name=asked,
            type=kind,
            outcome=outcome,
            security="indeterminate",
            reason="not validated",
            records=records,
            owner=owner,
            server=account.server,
            queries=account.queries,
            round_trips=account.round_trips,
            took_ms=(time.perf_counter() - begun) * 1000,
        )

    async def aclose(self) -> None:
        await self._exchange.aclose()
        await self._upstreams.aclose()
