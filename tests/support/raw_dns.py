"""A name server for protocol violations: the test receives each query and decides which bytes to send."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import dns.flags
import dns.message
import dns.rrset

_TRIES = 20


@dataclass
class ReceivedQuery:
    """One query: transport, source, and a way to reply."""

    data: bytes
    over: str
    source: Any
    send: Callable[[bytes], None]

    @property
    def message(self) -> dns.message.Message:
        return dns.message.from_wire(self.data)

    def response(self, *texts: str) -> dns.message.Message:
        """Reply with TXT records of one string of at most 255 characters each."""
        response = dns.message.make_response(self.message)
        question = self.message.question[0]
        if texts:
            rows = [f'"{text}"' for text in texts]
            response.answer.append(dns.rrset.from_text(question.name, 60, "IN", "TXT", *rows))
        return response

    def answer(self, *texts: str) -> None:
        self.send(self.response(*texts).to_wire(max_size=65535))


Behaviour = Callable[[ReceivedQuery], None]


@dataclass
class RawDns:
    port: int = 0
    asked: list[ReceivedQuery] = field(default_factory=list)
    streams: int = 0  # connections that were opened

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_dns(behave: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawDns]:
    server = RawDns()

    def heard(asked: ReceivedQuery) -> None:
        server.asked.append(asked)
        behave(asked)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.streams += 1
        source = writer.get_extra_info("peername")
        try:
            while True:
                data = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                heard(ReceivedQuery(data, "stream", source, lambda answer: _write(writer, answer)))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    listener, transport = await _bind(server, serve, heard, tls)
    try:
        yield server
    finally:
        transport.close()
        listener.close()


async def _bind(
    server: RawDns, serve: Any, heard: Behaviour, tls: ssl.SSLContext | None
) -> tuple[asyncio.Server, asyncio.BaseTransport]:
    """Bind one port for UDP and TCP; retry if it is taken for one of them."""
    for _ in range(_TRIES):
        listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
        try:
            transport, _protocol = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(heard), local_addr=("127.0.0.1", server.port)
            )
        except OSError:
            listener.close()
            continue
        return listener, transport
    raise OSError("no port is free for both UDP and TCP")


def _write(writer: asyncio.StreamWriter, answer: bytes) -> None:
    """No reply closes the connection."""
    if not answer:
        writer.close()
    elif not writer.is_closing():
        writer.write(len(answer).to_bytes(2, "big") + answer)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, heard: Behaviour) -> None:
        self._heard = heard

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._heard(ReceivedQuery(data, "datagram", addr, lambda answer: self._transport.sendto(answer, addr)))


def truncated(asked: ReceivedQuery) -> None:
    response = asked.response()
    response.flags |= dns.flags.TC
    asked.send(response.to_wire())
