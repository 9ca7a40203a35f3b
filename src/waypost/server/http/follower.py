"""HTTP/1.1 to the writing process, over a socket in the data folder: connections kept open, bodies and answers in parts.

It carries what it is given and knows no path. One connection carries one exchange at a time; what a slow client has not
taken yet is not read from the other side.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

import httptools

from waypost import limits
from waypost.errors import StoreUnavailable, WaypostError
from waypost.registry.follower import Follower
from waypost.server.auth.certificates import peer_certificate
from waypost.server.http.app import HttpApp
from waypost.server.http.asgi import App, Headers, Message, Receive, Request, Scope, Send
from waypost.server.http.metrics import Metrics
from waypost.server.http.websockets import VIA_SCOPE_KEY

_LEADER_RESTARTING = "The process that writes is being started anew."

_LEADER_LOST = "The process that writes ended before it answered; the write may have been done."

_RETRY_SECONDS = 1


class UpstreamConnection(asyncio.Protocol):
    """One connection. `head` and `parts` wait for what arrives; a connection that is lost ends both with an error."""

    def __init__(self) -> None:
        self.is_lost = False
        self.keeps = True  # may carry another exchange
        self.idle_since = 0.0
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._has_head = False
        self._is_over = False
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()

    # --- From the loop ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what a stream connection is given

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._news.set()
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
        self._news.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # --- From the parser -------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200
        self.keeps = self._parser.should_keep_alive()
        if not self._has_head:
            self._headers.clear()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._waiting_bytes += len(body)
        if self._waiting_bytes > limits.FORWARD_PART_BYTES:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_over = self._has_head

    # --- One exchange ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._has_head = self._is_over = False
        self._transport.resume_reading()

    async def write(self, data: bytes) -> None:
        await self._may_write.wait()
        if not self.is_lost:
            self._transport.write(data)

    async def head(self) -> tuple[int, Headers]:
        try:
            async with asyncio.timeout(limits.FORWARD_ANSWER_SECONDS):
                while not self._has_head:
                    await self._wait()
        except TimeoutError:
            raise StoreUnavailable("The process that writes does not answer.", retry_after=_RETRY_SECONDS) from None
        return self._parser.get_status_code(), self._headers

    async def parts(self) -> AsyncIterator[bytes]:
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._waiting_bytes -= len(part)
                yield part
            if self._is_over:
                return
            if not self.is_lost:
                self._transport.resume_reading()
            await self._wait()

    async def _wait(self) -> None:
        if self.is_lost:
            raise StoreUnavailable(
                _LEADER_LOST, hint="Look whether it was, and send it again.", retry_after=_RETRY_SECONDS
            )
        self._news.clear()
        await self._news.wait()

    def close(self) -> None:
        self.is_lost = True
        self._transport.abort()

    @property
    def takes_no_more(self) -> bool:
        """The answer has begun, and the connection ends with it: to write on could lose what is not read yet."""
        return self._has_head and not self.keeps

    @property
    def is_free(self) -> bool:
        """All that was asked was answered, and the connection stays."""
        return self._is_over and not self._parts and self.keeps and not self.is_lost


class UpstreamPool:
    """The connections to the writing process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[UpstreamConnection] = []

    async def borrow(self) -> UpstreamConnection:
        """A connection that is free, or a new one."""
        while self._idle:
            link = self._idle.pop()
            if not link.is_lost and time.monotonic() - link.idle_since < limits.FORWARD_IDLE_SECONDS:
                link.begin()
                return link
            if not link.is_lost:
                link.close()
        try:
            _, link = await asyncio.get_running_loop().create_unix_connection(UpstreamConnection, self._path)
        except OSError:
            raise StoreUnavailable(
                _LEADER_RESTARTING, hint="Reads are answered meanwhile; send it again.", retry_after=_RETRY_SECONDS
            ) from None
        return link

    def give_back(self, link: UpstreamConnection) -> None:
        if link.is_free and len(self._idle) < limits.FORWARD_IDLE_CONNECTIONS:
            link.idle_since = time.monotonic()
            self._idle.append(link)
        elif not link.is_lost:
            link.close()

    def close(self) -> None:
        for link in self._idle:
            link.close()
        self._idle.clear()


# ---- A process that follows: it answers reads, once it has caught up, and passes everything else on to the one that writes.
#
# The other side of the socket is `Forwarded`: it takes from a header who really asks. Only what comes through that socket,
# which no other user can open, is believed; a client's header of that name is thrown away here.

ORIGIN_HEADER = b"waypost-origin"  # scheme, address and port of whoever asks

CERTIFICATE_HEADER = b"waypost-certificate"  # the one that was shown, base64 of DER

VIA_HEADER = b"waypost-via"  # how it came, where that was not by HTTP

_REPORT_SECONDS = 1.0

_READS = frozenset(("GET", "HEAD", "OPTIONS"))

_DISCOVER = b"/profile/v1/discover"  # the one question that is asked by POST often enough to matter

_LEADER_ONLY_PATHS = frozenset(
    (b"/metrics", b"/readyz", b"/api/v1/stats")
)  # of the service, not of one of its processes

_SIGN_IN = b"token="

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        ORIGIN_HEADER,
        CERTIFICATE_HEADER,
        VIA_HEADER,
    )
)

_OWN = frozenset((b"connection", b"date", b"keep-alive", b"transfer-encoding"))  # of this connection to the client


class FollowerApp:
    """The ASGI application of a process that follows."""

    def __init__(self, service: HttpApp, follower: Follower, upstream: UpstreamPool) -> None:
        self._service = service
        self._follower = follower
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._service(scope, receive, send)
        elif not _is_read(scope):
            await self._forward(scope, receive, send)
        elif self._follower.is_behind:
            await self._answer_later(scope, receive, send)
        else:
            await self._service(scope, receive, send)

    async def _answer_later(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._follower.catch_up()
        except WaypostError as error:
            await self._service.refuse(Request(scope, receive), send, error)
        else:
            await self._service(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _ForwardedExchange(scope, receive, send)
        try:
            link = await self._upstream.borrow()
            try:
                await exchange.run(link)
            finally:
                self._upstream.give_back(link)
        except WaypostError as error:
            if exchange.is_answered:
                return  # half an answer went out: the server closes the connection, so that it does not look whole
            request = Request(scope, receive)
            request.has_unread_body = True
            await self._service.refuse(request, send, error)


class _ForwardedExchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._chunked = False
        self.is_answered = False

    async def run(self, link: UpstreamConnection) -> None:
        head = self._head()
        if not self._has_body():
            await link.write(head)
            await self._relay(link)
            return
        first = await self._receive()
        await link.write(head + self._framed(first))
        if not first.get("more_body"):
            await self._relay(link)
            return
        rest = asyncio.create_task(self._pass_on(link))
        try:
            await self._relay(link)
        finally:
            if not rest.done():  # answered before all was sent: what is still on its way has no place to go
                link.keeps = False
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)

    def _has_body(self) -> bool:
        return any(
            (name == b"content-length" and value != b"0") or name == b"transfer-encoding"
            for name, value in self._scope["headers"]
        )

    def _head(self) -> bytes:
        scope = self._scope
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        target: bytes = scope.get("raw_path") or scope["path"].encode()
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP]
        if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        headers.append((ORIGIN_HEADER, origin_header(scope)))
        if VIA_SCOPE_KEY in scope:
            headers.append((VIA_HEADER, scope[VIA_SCOPE_KEY].encode()))
        shown = peer_certificate(scope)
        if shown is not None:
            headers.append((CERTIFICATE_HEADER, base64.b64encode(ssl.PEM_cert_to_DER_cert(shown))))
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        return b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode(), target, lines)

    def _framed(self, message: Message) -> bytes:
        body: bytes = message.get("body", b"")
        if not self._chunked:
            return body
        part = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        return part if message.get("more_body") else part + b"0\r\n\r\n"

    async def _pass_on(self, link: UpstreamConnection) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                link.close()  # the writing process learns that its caller is gone
                return
            if link.takes_no_more:
                return
            await link.write(self._framed(message))
            if not message.get("more_body"):
                return

    async def _relay(self, link: UpstreamConnection) -> None:
        status, headers = await link.head()
        kept: Headers = [pair for pair in headers if pair[0] not in _OWN]
        if not link.keeps:
            kept.append((b"connection", b"close"))
        self.is_answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": kept})
        is_shown = self._scope["method"] != "HEAD"
        async for part in link.parts():
            if is_shown:
                await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})


def _is_read(scope: Scope) -> bool:
    path = scope.get("raw_path")
    if scope["method"] in _READS:
        return path not in _LEADER_ONLY_PATHS and not _is_sign_in(scope)
    return path == _DISCOVER and scope["method"] == "POST"


def _is_sign_in(scope: Scope) -> bool:
    """A code that signs in is good once in the whole service, so one process redeems them all."""
    return scope.get("raw_path") == b"/" and _SIGN_IN in scope.get("query_string", b"")


def origin_header(scope: Scope) -> bytes:
    host, port = scope.get("client") or ("", 0)
    return f"{scope.get('scheme', 'http')} {port} {host}".encode("latin-1", "replace")


class LeaderApp:
    """The ASGI application behind the socket: the service, asked by whoever asked the other process."""

    def __init__(self, service: App, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = []
        is_passed_on = False
        for name, value in scope["headers"]:
            if name == ORIGIN_HEADER:
                is_passed_on = True
                scheme, port, host = value.decode("latin-1").split(" ", 2)
                scope["scheme"], scope["client"] = scheme, (host, int(port)) if host else None
            elif name == VIA_HEADER:
                scope[VIA_SCOPE_KEY] = value.decode("latin-1")
            elif name == CERTIFICATE_HEADER:
                pem = ssl.DER_cert_to_PEM_cert(base64.b64decode(value))
                scope["extensions"] = {"tls": {"client_cert_chain": (pem,)}}
            else:
                headers.append((name, value))
        scope["headers"] = headers
        if is_passed_on:
            await self._service(scope, receive, send)
        else:  # the other process speaks for itself: whatever it passes on says from whom it comes
            await self._take_report(Request(scope, receive), send)

    async def _take_report(self, request: Request, send: Send) -> None:
        self._metrics.merge_report(await request.body())
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class MetricsReporter:
    """Tells the writing process what was counted here, so that one page of figures speaks for all processes."""

    def __init__(self, metrics: Metrics, upstream: UpstreamPool, slot: int) -> None:
        self._metrics = metrics
        self._upstream = upstream
        self._slot = slot
        self._told = b""

    async def go_on(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            try:
                await self.report()
            except WaypostError:
                continue  # the writing process is away; it is told the next time

    async def report(self) -> None:
        told = self._metrics.report(self._slot, os.getpid())
        if told == self._told:
            return
        link = await self._upstream.borrow()
        try:
            head = b"POST /report HTTP/1.1\r\nhost: worker\r\ncontent-length: %d\r\n\r\n" % len(told)
            await link.write(head + told)
            await link.head()
            async for _ in link.parts():
                pass
            self._told = told
        finally:
            self._upstream.give_back(link)
