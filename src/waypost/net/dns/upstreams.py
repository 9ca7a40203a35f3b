"""DNS queries to upstream resolvers: over UDP with TCP as fallback, TLS (RFC 7858) or HTTPS (RFC 8484).

Each UDP query has a connected socket of its own with a random port and id (RFC 5452). A datagram that does not match the query
is ignored, and the wait goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import ssl
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import dns.exception
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.resolver
import httpcore2
import msgspec
from dns.rdtypes.ANY.TXT import TXT

from waypost import limits
from waypost.errors import FetchFailed
from waypost.net.address_policy import Address
from waypost.net.dns.message import DnsFailure, DnsMessage, DnsQuery, dns_failure, follow_aliases, parse_message
from waypost.net.dns.resolver_config import SYSTEM_RESOLVER, DnsServer, make_plain_server, parse_resolvers
from waypost.net.ssrf import client_tls_context

_MEDIA_TYPE: Final = b"application/dns-message"

_HTTP_CONNECTIONS: Final = 16  # over HTTP/1.1 a connection carries one query at a time

_HTTP_2: Final = find_spec("h2") is not None  # the extra `doh`; some resolvers speak nothing else

_IDS: Final = 65536

_NO_ANSWER: Final = "dns_failed"  # of the resolver; it says nothing about the name

_EDNS_REJECTED: Final = (dns.rcode.FORMERR, dns.rcode.NOTIMP)

_TRY_NEXT: Final = (dns.rcode.SERVFAIL, dns.rcode.REFUSED)


class UpstreamResolver(Protocol):
    server: DnsServer

    async def send(self, query: DnsQuery) -> DnsMessage:
        """Raises DnsFailure if there is no answer."""
        ...

    async def aclose(self) -> None: ...


class UdpUpstream:
    """`UpstreamResolver` over UDP; over TCP if the answer is truncated."""

    def __init__(self, server: DnsServer, *, try_seconds: float = limits.DNS_TRY_SECONDS) -> None:
        self.server = server
        self._try_seconds = try_seconds

    async def send(self, query: DnsQuery) -> DnsMessage:
        for attempt in range(1, limits.DNS_TRIES + 1):
            try:
                message = await self._send_udp(query)
            except TimeoutError:
                continue
            if not message.is_truncated:
                return msgspec.structs.replace(message, queries=attempt, round_trips=attempt)
            message = await self._send_tcp(query)
            return msgspec.structs.replace(message, queries=attempt + 1, round_trips=attempt + 1)
        raise _no_answer(self.server)

    async def aclose(self) -> None:
        """Each query closes its own socket."""

    async def _send_udp(self, query: DnsQuery) -> DnsMessage:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[DnsMessage] = loop.create_future()
        query_id = secrets.randbelow(_IDS)
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _UdpProtocol(query, query_id, answer), remote_addr=(self.server.host, self.server.port)
            )
        except OSError:
            raise _unreachable(self.server) from None
        try:
            transport.sendto(query.wire(query_id))
            async with asyncio.timeout(self._try_seconds):
                return await answer
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise _unreachable(self.server) from None
        finally:
            transport.close()

    async def _send_tcp(self, query: DnsQuery) -> DnsMessage:
        query_id = secrets.randbelow(_IDS)
        try:
            async with asyncio.timeout(limits.DNS_TRIES * self._try_seconds):
                reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
                try:
                    writer.write(add_length_prefix(query.wire(query_id)))
                    message = parse_message(await read_frame(reader))
                finally:
                    writer.transport.abort()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            raise _unreachable(self.server) from None
        if message.id != query_id or message.is_truncated:
            raise _mismatched()
        return _require_match(message, query)


class _UdpProtocol(asyncio.DatagramProtocol):
    def __init__(self, query: DnsQuery, query_id: int, answer: asyncio.Future[DnsMessage]) -> None:
        self._query = query
        self._id = query_id.to_bytes(2, "big")
        self._answer = answer

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._answer.done() or data[:2] != self._id:
            return
        try:
            message = parse_message(data)
        except FetchFailed as error:
            self._answer.set_exception(error)
            return
        if message.answers(self._query):
            self._answer.set_result(message)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


class TlsUpstream:
    """`UpstreamResolver` over TLS: one connection carries concurrent queries, and is closed when idle."""

    def __init__(self, server: DnsServer, tls: ssl.SSLContext) -> None:
        self.server = server
        self._tls = tls
        self._lock = asyncio.Lock()
        self._connection: _TlsConnection | None = None

    async def send(self, query: DnsQuery) -> DnsMessage:
        for attempt in range(1, limits.DNS_TRIES + 1):
            connection, is_new = await self._open()
            try:
                message = _require_match(parse_message(await connection.send(query)), query)
            except (ConnectionError, asyncio.IncompleteReadError):
                continue  # the server may have closed the idle connection meanwhile
            except TimeoutError:
                raise _no_answer(self.server) from None
            round_trips = attempt + 2 * is_new  # the handshakes of TCP and TLS
            return msgspec.structs.replace(message, queries=attempt, round_trips=round_trips)
        raise _unreachable(self.server)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()

    async def _open(self) -> tuple[_TlsConnection, bool]:
        async with self._lock:
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
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._read_task = asyncio.create_task(self._read_frames())

    @property
    def is_open(self) -> bool:
        return not self._read_task.done() and not self._writer.is_closing()

    async def send(self, query: DnsQuery) -> bytes:
        loop = asyncio.get_running_loop()
        query_id = self._unused_id()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._pending[query_id] = answer
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            self._writer.write(add_length_prefix(query.wire(query_id)))
            async with asyncio.timeout(limits.DNS_TRIES * limits.DNS_TRY_SECONDS):
                return await answer
        finally:
            self._pending.pop(query_id, None)
            if not self._pending:
                self._idle_timer = loop.call_later(limits.DNS_IDLE_SECONDS, self._writer.close)

    async def aclose(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.wait([self._read_task])

    def _unused_id(self) -> int:
        while (query_id := secrets.randbelow(_IDS)) in self._pending:
            pass
        return query_id

    async def _read_frames(self) -> None:
        try:
            while True:
                frame = await read_frame(self._reader)
                answer = self._pending.get(int.from_bytes(frame[:2], "big"))
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError())


class HttpsUpstream:
    """`UpstreamResolver` over HTTPS."""

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

    async def send(self, query: DnsQuery) -> DnsMessage:
        wire = query.wire(0)  # id 0 keeps responses cacheable (RFC 8484 §4.1)
        try:
            async with asyncio.timeout(limits.DNS_SECONDS):
                message = parse_message(await self._post(wire))
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise (_unauthenticated if _is_tls_error(error) else _unreachable)(self.server) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError, TimeoutError):
            raise _no_answer(self.server) from None
        return _require_match(message, query)

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _post(self, wire: bytes) -> bytes:
        server = self.server
        url = httpcore2.URL(scheme=b"https", host=server.host.encode(), port=server.port, target=server.path.encode())
        headers = [
            (b"Host", f"{server.host}:{server.port}".encode()),
            (b"Content-Type", _MEDIA_TYPE),
            (b"Accept", _MEDIA_TYPE),
            (b"Content-Length", str(len(wire)).encode()),
        ]
        async with self._pool.stream("POST", url, headers=headers, content=wire) as response:
            if response.status != 200:
                raise dns_failure(f"The resolver {server} answered with status {response.status}.", "status")
            body = b""
            async for part in response.aiter_stream():
                body += part
                if len(body) > limits.DNS_MESSAGE_BYTES:
                    raise dns_failure("The response of the resolver is larger than a DNS message can be.", "malformed")
            return body


class UpstreamResolvers:
    """The resolvers of the setting `resolver`, in order, with a limit of concurrent queries.

    Several resolvers are also several perspectives, which can be queried one by one.
    """

    def __init__(
        self,
        resolver: str = SYSTEM_RESOLVER,
        *,
        ca_file: Path | None = None,
        try_seconds: float = limits.DNS_TRY_SECONDS,
    ) -> None:
        self._servers = parse_resolvers(resolver)
        self._ca_file = ca_file
        self._try_seconds = try_seconds
        self._slots = asyncio.Semaphore(limits.DNS_CONCURRENT_QUERIES)

    async def send(self, query: DnsQuery, perspective: int | None = None) -> DnsMessage:
        """The first answer. Without a perspective, a failed resolver is followed by the next one."""
        upstreams = self._select(perspective)
        failure: DnsFailure | None = None
        for upstream in upstreams:
            try:
                async with self._slots:
                    message = await _send_with_fallback(upstream, query)
            except DnsFailure as error:
                failure = error
                continue
            if message.rcode not in _TRY_NEXT or upstream is upstreams[-1]:
                return msgspec.structs.replace(message, server=str(upstream.server))
        raise failure or dns_failure("No resolver answers.", "refused")

    async def aclose(self) -> None:
        if "_upstreams" in self.__dict__:
            await asyncio.gather(*(upstream.aclose() for upstream in self._upstreams))

    def _select(self, perspective: int | None) -> Sequence[UpstreamResolver]:
        upstreams = self._upstreams
        if perspective is None:
            return upstreams
        index = perspective % len(upstreams)
        if self._servers is None:  # the system's resolvers replace each other
            return [*upstreams[index:], *upstreams[:index]]
        return [upstreams[index]]

    @cached_property
    def _upstreams(self) -> list[UpstreamResolver]:
        servers = self._servers if self._servers is not None else system_servers()
        return [self._make_upstream(server) for server in servers]

    def _make_upstream(self, server: DnsServer) -> UpstreamResolver:
        if server.kind == "plain":
            return UdpUpstream(server, try_seconds=self._try_seconds)
        tls = client_tls_context(self._ca_file)  # not shared: httpcore2 sets the ALPN protocols on it
        return TlsUpstream(server, tls) if server.kind == "tls" else HttpsUpstream(server, tls)


class StubResolver:
    """Addresses and TXT records of a name, without DNSSEC. The hosts file is not read: it is for users of this machine.

    `upstreams` may be the text of the setting `resolver`.
    """

    def __init__(
        self,
        upstreams: str | UpstreamResolvers = SYSTEM_RESOLVER,
        *,
        timeout_seconds: float = limits.FETCH_CONNECT_SECONDS,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._upstreams = UpstreamResolvers(upstreams) if isinstance(upstreams, str) else upstreams

    async def addresses(self, name: str) -> list[Address]:
        """All addresses of a name. Raises FetchFailed if there are none, or too many for a server."""
        results = await asyncio.gather(
            self._query(name, dns.rdatatype.A, None),
            self._query(name, dns.rdatatype.AAAA, None),
            return_exceptions=True,
        )
        addresses: list[Address] = []
        failure: BaseException = _no_address(name)
        for result in results:
            if isinstance(result, list):
                addresses += [ipaddress.ip_address(text.decode("ascii")) for text in result]
            elif not isinstance(result, FetchFailed):
                raise result
            elif result.details.get("reason") == _NO_ANSWER:
                failure = result
        if len(addresses) > limits.FETCH_ADDRESSES:
            raise _no_address(name)
        if not addresses:
            raise failure
        return addresses

    async def texts(self, name: str, perspective: int = 0) -> list[bytes]:
        """The TXT records of a name, the strings of each joined. A name that does not exist has none."""
        try:
            return await self._query(name, dns.rdatatype.TXT, perspective)
        except NoSuchName:
            return []

    async def _query(self, name: str, kind: dns.rdatatype.RdataType, perspective: int | None) -> list[bytes]:
        try:
            owner = dns.name.from_text(name)
        except dns.exception.DNSException:
            raise _no_address(name) from None
        query = DnsQuery(name=owner, type=kind, signatures=False, checking_disabled=False)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                message = await self._upstreams.send(query, perspective)
        except (dns.exception.DNSException, FetchFailed, TimeoutError):
            raise _no_resolver(name) from None
        if message.rcode == dns.rcode.NXDOMAIN:
            raise NoSuchName(*_no_address(name).args, path="url", details={"reason": "no_address"}) from None
        if message.rcode != dns.rcode.NOERROR:
            raise _no_address(name)
        rrset = follow_aliases(message, owner).rrset
        return [] if rrset is None else [_rdata_bytes(rdata) for rdata in [*rrset][: limits.PROOF_TXT_RECORDS]]


class NoSuchName(FetchFailed):
    """NXDOMAIN. Not a failure of the resolver: for some callers it is an answer."""


async def _send_with_fallback(upstream: UpstreamResolver, query: DnsQuery) -> DnsMessage:
    """Repeat the query without EDNS if the server rejects it. The answer then proves nothing."""
    message = await upstream.send(query)
    if message.rcode in _EDNS_REJECTED and query.edns:
        return await upstream.send(msgspec.structs.replace(query, edns=False))
    return message


def system_servers() -> list[DnsServer]:
    """The resolvers that this machine is configured with."""
    try:
        nameservers = dns.resolver.Resolver().nameservers
    except dns.exception.DNSException:
        nameservers = []
    servers = [make_plain_server(server) for server in nameservers if isinstance(server, str)]
    if not servers:
        raise dns_failure("This machine has no resolver configured.", "no_address", "Name one in the setting resolver.")
    return servers


def add_length_prefix(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))


def _require_match(message: DnsMessage, query: DnsQuery) -> DnsMessage:
    if not message.answers(query):
        raise _mismatched()
    return message


def _is_tls_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _rdata_bytes(rdata: dns.rdata.Rdata) -> bytes:
    return b"".join(rdata.strings) if isinstance(rdata, TXT) else rdata.to_text().encode()


def _no_answer(server: DnsServer) -> FetchFailed:
    return dns_failure(f"The resolver {server} does not answer.", "timed_out", "Check that it is running.")


def _unreachable(server: DnsServer) -> FetchFailed:
    return dns_failure(f"Cannot connect to the resolver {server}.", "refused", "Check that it is running.")


def _mismatched() -> FetchFailed:
    return dns_failure("The answer of the resolver does not match the query.", "malformed")


def _unauthenticated(server: DnsServer) -> FetchFailed:
    return dns_failure(
        f"The TLS handshake with the resolver {server} failed.",
        "tls",
        "Its certificate must be valid for the name. Name a private authority in the setting fetch_ca.",
    )


def _no_resolver(name: str) -> FetchFailed:
    return FetchFailed(
        f"The resolver did not answer the question for {name[:253]}.",
        path="url",
        hint="Check that it is running, or name another one in the setting resolver.",
        details={"reason": _NO_ANSWER},
    )


def _no_address(name: str) -> FetchFailed:
    return FetchFailed(
        f"{name[:253]} has no address.", path="url", hint="Check the name.", details={"reason": "no_address"}
    )
