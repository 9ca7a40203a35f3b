"""A DNS server on loopback, over UDP and TCP, with answers set by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

_TRIES = 20


class DnsServer:
    """`set(name, type, …)` sets the answers; several lists are returned in turn, the last one from then on."""

    def __init__(self) -> None:
        self.port = 0
        self.queries: list[tuple[str, str]] = []
        self.silent = False  # take questions, give no answer
        self.truncate = False  # over UDP, set TC so that clients use TCP
        self.authenticated = False  # say of every answer that it was validated (AD)
        self.rcode: dns.rcode.Rcode | None = None  # instead of every answer
        self._answers: dict[tuple[str, str], list[Sequence[str]]] = {}
        self._aliases: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def set(self, name: str, kind: str, *answers: Sequence[str]) -> None:
        """Each answer is a list of records in text form: addresses, or `"quoted text"` for TXT."""
        self._answers[(name.rstrip(".").lower(), kind)] = list(answers)

    def set_alias(self, name: str, target: str, kind: str, records: Sequence[str]) -> None:
        """Set a CNAME, and the records of its target."""
        self.set(name, kind, records)
        self._aliases[name] = target

    def remove(self, name: str, kind: str) -> None:
        self._answers.pop((name.rstrip(".").lower(), kind), None)

    def count(self, name: str, kind: str) -> int:
        return self.queries.count((name, kind))

    def answer(self, data: bytes) -> bytes | None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.queries.append((name, kind))
        if self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA | (dns.flags.AD if self.authenticated else 0)
        if self.rcode is not None:
            response.set_rcode(self.rcode)
            return response.to_wire()
        records = self._next(name, kind)
        if records:
            owner = question.name
            if name in self._aliases:
                owner = dns.name.from_text(self._aliases[name])
                response.answer.append(dns.rrset.from_text(question.name, 1, "IN", "CNAME", owner.to_text()))
            response.answer.append(dns.rrset.from_text(owner, 1, "IN", kind, *records))
        elif not any(known == name for known, _ in self._answers):
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response.to_wire()

    def _next(self, name: str, kind: str) -> Sequence[str]:
        answers = self._answers.get((name, kind), [])
        if len(answers) > 1:
            return answers.pop(0)
        return answers[0] if answers else ()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = self._server.answer(data)
        if answer is not None:
            self._transport.sendto(_truncated(answer) if self._server.truncate else answer, addr)


def _truncated(answer: bytes) -> bytes:
    message = dns.message.from_wire(answer)
    message.flags |= dns.flags.TC
    message.answer.clear()
    return message.to_wire()


@asynccontextmanager
async def dns_server() -> AsyncIterator[DnsServer]:
    server = DnsServer()
    listener, transport = await _bind(server)
    try:
        yield server
    finally:
        listener.close()  # from Python 3.12 on, wait_closed() would wait for clients that keep their connection
        transport.close()


async def _bind(server: DnsServer) -> tuple[asyncio.Server, asyncio.DatagramTransport]:
    """Bind one port for UDP and TCP; retry if it is taken for one of them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            length = int.from_bytes(await reader.readexactly(2), "big")
            answer = server.answer(await reader.readexactly(length))
            if answer is not None:
                writer.write(len(answer).to_bytes(2, "big") + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    loop = asyncio.get_running_loop()
    for _ in range(_TRIES):
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        try:
            transport, _protocol = await loop.create_datagram_endpoint(
                lambda: _Datagrams(server), local_addr=("127.0.0.1", server.port)
            )
        except OSError:
            listener.close()
            continue
        return listener, transport
    raise OSError("no port is free for both UDP and TCP")
