"""The resolvers that are asked: in their order, each by its own carrier, so many questions at once and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

import dns.exception
import dns.rcode
import dns.resolver
import msgspec

from waypost import limits
from waypost.net.authorities import client_context
from waypost.net.dns.encrypted import HttpsCarrier, TlsCarrier
from waypost.net.dns.packet import DnsFailure, Message, Question, failure
from waypost.net.dns.plain import PlainCarrier
from waypost.net.servers import SYSTEM, Server, parse_servers, plain_server

_UNKNOWN_EXTENSION: Final = (dns.rcode.FORMERR, dns.rcode.NOTIMP)
_NEXT: Final = (dns.rcode.SERVFAIL, dns.rcode.REFUSED)


class Carrier(Protocol):
    """One resolver."""

    server: Server

    async def ask(self, question: Question) -> Message:
        """DnsFailure when there is no answer."""
        ...

    async def aclose(self) -> None: ...


class Upstreams:
    """`resolver` is `system`, or what `parse_servers` reads; several are perspectives that can be asked one by one."""

    def __init__(
        self,
        resolver: str = SYSTEM,
        *,
        ca_file: Path | None = None,
        try_seconds: float = limits.DNS_TRY_SECONDS,
    ) -> None:
        self._named = parse_servers(resolver)
        self._ca_file = ca_file
        self._try_seconds = try_seconds
        self._places = asyncio.Semaphore(limits.DNS_AT_ONCE)

    async def ask(self, question: Question, perspective: int | None = None) -> Message:
        """The first answer; without a perspective, a server that fails is followed by the next one."""
        carriers = self._perspective(perspective)
        failed: DnsFailure | None = None
        for carrier in carriers:
            try:
                async with self._places:
                    message = await self._ask(carrier, question)
            except DnsFailure as error:
                failed = error
                continue
            if message.rcode not in _NEXT or carrier is carriers[-1]:
                return msgspec.structs.replace(message, server=str(carrier.server))
        raise failed or failure("No resolver answers.", "refused")

    async def aclose(self) -> None:
        if "_carriers" in self.__dict__:
            await asyncio.gather(*(carrier.aclose() for carrier in self._carriers))

    async def _ask(self, carrier: Carrier, question: Question) -> Message:
        """A server that does not know the extension is asked in the old way; its answer then proves nothing."""
        message = await carrier.ask(question)
        if message.rcode in _UNKNOWN_EXTENSION and question.extended:
            return await carrier.ask(msgspec.structs.replace(question, extended=False))
        return message

    def _perspective(self, perspective: int | None) -> Sequence[Carrier]:
        carriers = self._carriers
        if perspective is None:
            return carriers
        turn = perspective % len(carriers)
        if self._named is None:  # those of the machine stand in for each other
            return [*carriers[turn:], *carriers[:turn]]
        return [carriers[turn]]

    @cached_property
    def _carriers(self) -> list[Carrier]:
        servers = self._named if self._named is not None else system_servers()
        return [self._carrier(server) for server in servers]

    def _carrier(self, server: Server) -> Carrier:
        if server.kind == "plain":
            return PlainCarrier(server, try_seconds=self._try_seconds)
        tls = client_context(self._ca_file)  # one for each: what is spoken inside is said in the handshake
        return TlsCarrier(server, tls) if server.kind == "tls" else HttpsCarrier(server, tls)


def system_servers() -> list[Server]:
    """Those that this machine uses."""
    try:
        found = dns.resolver.Resolver().nameservers
    except dns.exception.DNSException:
        found = []
    servers = [plain_server(server) for server in found if isinstance(server, str)]
    if not servers:
        raise failure("This machine names no resolver.", "no_address", "Name one with the setting resolver.")
    return servers
