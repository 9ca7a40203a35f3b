"""One resolver over UDP, and over TCP where an answer does not fit.

Each question has a socket of its own: a port that nobody knows, an id that nobody knows, and a kernel that lets no other
address in. Whatever does not fit the question is not an answer; it is waited on.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import dns.exception
import dns.rcode
import dns.resolver
import httpcore2
import msgspec

from waypost import limits
from waypost.errors import FetchFailed
from waypost.net.dns.message import DnsFailure, DnsMessage, DnsQuery, dns_failure, parse_message
from waypost.net.dns.resolver_config import SYSTEM_RESOLVER, DnsServer, make_plain_server, parse_resolvers
from waypost.net.tls_context import client_tls_context


class UdpUpstream:
    """`Carrier` of upstreams.py."""

    def __init__(self, server: DnsServer, *, try_seconds: float = limits.DNS_TRY_SECONDS) -> None:
        self.server = server
        self._try_seconds = try_seconds

    async def ask(self, question: DnsQuery) -> DnsMessage:
        for attempt in range(1, limits.DNS_TRIES + 1):
            try:
                message = await self._over_udp(question)
            except TimeoutError:
                continue
            if not message.is_truncated:
                return msgspec.structs.replace(message, queries=attempt, round_trips=attempt)
            message = await self._over_tcp(question)
            return msgspec.structs.replace(message, queries=attempt + 1, round_trips=attempt + 1)
        raise dns_failure(f"The resolver {self.server} gives no answer.", "timed_out", "Does it run?")

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def _over_udp(self, question: DnsQuery) -> DnsMessage:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[DnsMessage] = loop.create_future()
        number = secrets.randbelow(65536)
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _UdpProtocol(question, number, answer), remote_addr=(self.server.host, self.server.port)
            )
        except OSError:
            raise _unreachable(self.server) from None
        try:
            transport.sendto(question.wire(number))
            async with asyncio.timeout(self._try_seconds):
                return await answer
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise _unreachable(self.server) from None
        finally:
            transport.close()

    async def _over_tcp(self, question: DnsQuery) -> DnsMessage:
        number = secrets.randbelow(65536)
        try:
            async with asyncio.timeout(limits.DNS_TRIES * self._try_seconds):
                reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
                try:
                    writer.write(add_length_prefix(question.wire(number)))
                    message = parse_message(await read_frame(reader))
                finally:
                    writer.transport.abort()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            raise _unreachable(self.server) from None
        if message.id != number or not message.answers(question) or message.is_truncated:
            raise dns_failure("The resolver answered another question.", "malformed")
        return message


class _UdpProtocol(asyncio.DatagramProtocol):
    def __init__(self, question: DnsQuery, number: int, answer: asyncio.Future[DnsMessage]) -> None:
        self._question = question
        self._id = number.to_bytes(2, "big")
        self._answer = answer

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._answer.done() or data[:2] != self._id:
            return
        try:
            message = parse_message(data)
        except FetchFailed as error:
            self._answer.set_exception(error)
            return
        if message.answers(self._question):
            self._answer.set_result(message)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def add_length_prefix(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))


def _unreachable(server: DnsServer) -> FetchFailed:
    return dns_failure(f"The resolver {server} cannot be reached.", "refused", "Does it run?")


# ---- Resolvers over TLS (RFC 7858) and HTTPS (RFC 8484): who answers has proved its name, and nobody between can read or change.
#
# One connection over TLS carries many questions at a time, told apart by their ids; it is opened when one is asked and closed
# when none was for a while.

_MEDIA_TYPE: Final = b"application/dns-message"

_HTTP_CONNECTIONS: Final = 16  # over HTTP/1.1 one connection carries one question at a time

_HTTP_2: Final = find_spec("h2") is not None  # the extra `doh`; some resolvers speak nothing else

_IDS: Final = 65536


class TlsUpstream:
    """`Carrier` of upstreams.py."""

    def __init__(self, server: DnsServer, tls: ssl.SSLContext) -> None:
        self.server = server
        self._tls = tls
        self._opening = asyncio.Lock()
        self._connection: _TlsConnection | None = None

    async def ask(self, question: DnsQuery) -> DnsMessage:
        for attempt in range(1, limits.DNS_TRIES + 1):
            connection, fresh = await self._open()
            try:
                message = parse_message(await connection.ask(question))
            except (ConnectionError, asyncio.IncompleteReadError):
                continue  # it may have been closed for its idleness as we asked
            except TimeoutError:
                raise dns_failure(f"The resolver {self.server} gives no answer.", "timed_out", "Does it run?") from None
            if not message.answers(question):
                raise dns_failure("The resolver answered another question.", "malformed")
            trips = attempt + 2 * fresh  # a handshake of TCP, and one of TLS
            return msgspec.structs.replace(message, queries=attempt, round_trips=trips)
        raise _unreachable(self.server)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()

    async def _open(self) -> tuple[_TlsConnection, bool]:
        async with self._opening:
            if self._connection is not None and self._connection.is_open:
                return self._connection, False
            try:
                async with asyncio.timeout(limits.DNS_TRIES * limits.DNS_TRY_SECONDS):
                    reader, writer = await asyncio.open_connection(
                        self.server.host, self.server.port, ssl=self._tls, server_hostname=self.server.name
                    )
            except ssl.SSLError:
                raise _unauthenticated(self.server) from None
            except (OSError, TimeoutError):
                raise _unreachable(self.server) from None
            self._connection = _TlsConnection(reader, writer)
            return self._connection, True


class _TlsConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._listening = asyncio.create_task(self._listen())

    @property
    def is_open(self) -> bool:
        return not self._listening.done() and not self._writer.is_closing()

    async def ask(self, question: DnsQuery) -> bytes:
        loop = asyncio.get_running_loop()
        number = self._free_id()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting[number] = answer
        if self._idle is not None:
            self._idle.cancel()
        try:
            self._writer.write(add_length_prefix(question.wire(number)))
            async with asyncio.timeout(limits.DNS_TRIES * limits.DNS_TRY_SECONDS):
                return await answer
        finally:
            self._waiting.pop(number, None)
            if not self._waiting:
                self._idle = loop.call_later(limits.DNS_IDLE_SECONDS, self._writer.close)

    async def aclose(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.wait([self._listening])

    def _free_id(self) -> int:
        while (number := secrets.randbelow(_IDS)) in self._waiting:
            pass
        return number

    async def _listen(self) -> None:
        try:
            while True:
                frame = await read_frame(self._reader)
                answer = self._waiting.get(int.from_bytes(frame[:2], "big"))
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError())


class HttpsUpstream:
    """`Carrier` of upstreams.py."""

    def __init__(self, server: DnsServer, tls: ssl.SSLContext) -> None:
        self.server = server
        self._tls = tls

    @cached_property
    def _pool(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            http2=_HTTP_2,
            max_connections=_HTTP_CONNECTIONS,
            keepalive_expiry=limits.DNS_IDLE_SECONDS,
        )

    async def ask(self, question: DnsQuery) -> DnsMessage:
        try:
            async with asyncio.timeout(limits.DNS_SECONDS):
                message = parse_message(
                    await self._post(question.wire(0))
                )  # an id would only spoil caches (RFC 8484 §4.1)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise (_unauthenticated if _is_tls_error(error) else _unreachable)(self.server) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError, TimeoutError):
            raise dns_failure(f"The resolver {self.server} gives no answer.", "timed_out", "Does it run?") from None
        if not message.answers(question):
            raise dns_failure("The resolver answered another question.", "malformed")
        return message

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _post(self, query: bytes) -> bytes:
        server = self.server
        url = httpcore2.URL(scheme=b"https", host=server.host.encode(), port=server.port, target=server.path.encode())
        headers = [
            (b"Host", f"{server.host}:{server.port}".encode()),
            (b"Content-Type", _MEDIA_TYPE),
            (b"Accept", _MEDIA_TYPE),
            (b"Content-Length", str(len(query)).encode()),
        ]
        async with self._pool.stream("POST", url, headers=headers, content=query) as response:
            if response.status != 200:
                raise dns_failure(f"The resolver {server} answered with status {response.status}.", "status")
            body = b""
            async for part in response.aiter_stream():
                body += part
                if len(body) > limits.DNS_MESSAGE_BYTES:
                    raise dns_failure("The answer of the resolver is larger than a message can be.", "malformed")
            return body


def _is_tls_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _unauthenticated(server: DnsServer) -> FetchFailed:
    return dns_failure(
        f"The resolver {server} could not prove who it is.",
        "tls",
        "Its certificate must be valid for the name; name a private authority in the setting fetch_ca.",
    )


# ---- The resolvers that are asked: in their order, each by its own carrier, so many questions at once and no more.

_UNKNOWN_EXTENSION: Final = (dns.rcode.FORMERR, dns.rcode.NOTIMP)

_NEXT: Final = (dns.rcode.SERVFAIL, dns.rcode.REFUSED)


class UpstreamResolver(Protocol):
    """One resolver."""

    server: DnsServer

    async def ask(self, question: DnsQuery) -> DnsMessage:
        """DnsFailure when there is no answer."""
        ...

    async def aclose(self) -> None: ...


class UpstreamResolvers:
    """`resolver` is `system`, or what `parse_servers` reads; several are perspectives that can be asked one by one."""

    def __init__(
        self,
        resolver: str = SYSTEM_RESOLVER,
        *,
        ca_file: Path | None = None,
        try_seconds: float = limits.DNS_TRY_SECONDS,
    ) -> None:
        self._named = parse_resolvers(resolver)
        self._ca_file = ca_file
        self._try_seconds = try_seconds
        self._places = asyncio.Semaphore(limits.DNS_AT_ONCE)

    async def ask(self, question: DnsQuery, perspective: int | None = None) -> DnsMessage:
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
        raise failed or dns_failure("No resolver answers.", "refused")

    async def aclose(self) -> None:
        if "_carriers" in self.__dict__:
            await asyncio.gather(*(carrier.aclose() for carrier in self._carriers))

    async def _ask(self, carrier: UpstreamResolver, question: DnsQuery) -> DnsMessage:
        """A server that does not know the extension is asked in the old way; its answer then proves nothing."""
        message = await carrier.ask(question)
        if message.rcode in _UNKNOWN_EXTENSION and question.extended:
            return await carrier.ask(msgspec.structs.replace(question, extended=False))
        return message

    def _perspective(self, perspective: int | None) -> Sequence[UpstreamResolver]:
        carriers = self._carriers
        if perspective is None:
            return carriers
        turn = perspective % len(carriers)
        if self._named is None:  # those of the machine stand in for each other
            return [*carriers[turn:], *carriers[:turn]]
        return [carriers[turn]]

    @cached_property
    def _carriers(self) -> list[UpstreamResolver]:
        servers = self._named if self._named is not None else system_servers()
        return [self._carrier(server) for server in servers]

    def _carrier(self, server: DnsServer) -> UpstreamResolver:
        if server.kind == "plain":
            return UdpUpstream(server, try_seconds=self._try_seconds)
        tls = client_tls_context(self._ca_file)  # one for each: what is spoken inside is said in the handshake
        return TlsUpstream(server, tls) if server.kind == "tls" else HttpsUpstream(server, tls)


def system_servers() -> list[DnsServer]:
    """Those that this machine uses."""
    try:
        found = dns.resolver.Resolver().nameservers
    except dns.exception.DNSException:
        found = []
    servers = [make_plain_server(server) for server in found if isinstance(server, str)]
    if not servers:
        raise dns_failure("This machine names no resolver.", "no_address", "Name one with the setting resolver.")
    return servers
