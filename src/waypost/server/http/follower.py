"""Several processes of one service: followers answer reads and forward everything else to the leader, which writes.

A follower forwards over HTTP/1.1, on a Unix socket in the data folder that only this user can open. Headers on that socket
name the client and its certificate; a follower removes headers of the same names that a client sent.
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
from waypost.server.http.app import VIA_SCOPE_KEY, HttpApp
from waypost.server.http.asgi import App, Headers, Message, Receive, Request, Scope, Send, receive_until
from waypost.server.http.freshness import STALE_HEADER, ConfirmReads, ConsistencyTokens, mark_stale
from waypost.server.http.metrics import Metrics

ORIGIN_HEADER = b"waypost-origin"  # scheme, port and address of the client
CERTIFICATE_HEADER = b"waypost-certificate"  # the client certificate, DER in base64
VIA_HEADER = b"waypost-via"  # the transport, if it is not HTTP

_CONFIRM_PATH = b"/confirm"
_REPORT_SECONDS = 1.0
_RETRY_SECONDS = 1

_READ_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_DISCOVER_PATH = b"/profile/v1/discover"  # a read by POST
_FEDERATED = b'"federation"'  # in a search: the leader knows the peers and which of them failed
_LEADER_PATHS = frozenset(
    (b"/metrics", b"/readyz", b"/api/v1/stats", b"/api/v1/doctor", b"/peers")
)  # about the service, not one of its processes

_PEERS_PATH = b"/api/v1/peers"  # the leader follows them

_NOT_FORWARDED = frozenset(
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
_NOT_RETURNED = frozenset((b"connection", b"date", b"keep-alive", b"transfer-encoding"))


# --- Connections to the leader --------------------------------------------------------------------


class UpstreamConnection(asyncio.Protocol):
    """A connection to the leader, for one request at a time. Its response is read only as fast as the client takes it."""

    def __init__(self) -> None:
        self.is_lost = False
        self.is_reusable = True
        self.idle_since = 0.0
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._has_head = False
        self._is_complete = False
        self._parts: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._received = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._received.set()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
        self._received.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- httptools -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_complete:  # nobody asked: it must not be taken for the answer to the next request
            raise StoreUnavailable("The leader process sent a second response.")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200
        self.is_reusable = self._parser.should_keep_alive()
        if not self._has_head:
            self._headers.clear()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._buffered_bytes += len(body)
        if self._buffered_bytes > limits.FORWARD_PART_BYTES:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head

    # --- One request -----------------------------------------------------------------------------

    def reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._has_head = self._is_complete = False
        self._transport.resume_reading()

    async def write(self, data: bytes) -> None:
        await self._writable.wait()
        if not self.is_lost:
            self._transport.write(data)

    async def read_head(self) -> tuple[int, Headers]:
        try:
            async with asyncio.timeout(limits.FORWARD_ANSWER_SECONDS):
                while not self._has_head:
                    await self._wait()
        except TimeoutError:
            raise StoreUnavailable("The leader process does not respond.", retry_after=_RETRY_SECONDS) from None
        return self._parser.get_status_code(), self._headers

    async def read_body(self) -> AsyncIterator[bytes]:
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._buffered_bytes -= len(part)
                yield part
            if self._is_complete:
                return
            if not self.is_lost:
                self._transport.resume_reading()
            await self._wait()

    async def _wait(self) -> None:
        if self.is_lost:
            raise StoreUnavailable(
                "The leader process ended before it responded; the write may have succeeded.",
                hint="Check whether it did, then retry.",
                retry_after=_RETRY_SECONDS,
            )
        self._received.clear()
        await self._received.wait()

    def close(self) -> None:
        self.is_lost = True
        self._transport.abort()

    @property
    def is_closing(self) -> bool:
        """The response has begun and ends the connection: writing more could lose the unread part of it."""
        return self._has_head and not self.is_reusable

    @property
    def is_idle(self) -> bool:
        return self._is_complete and not self._parts and self.is_reusable and not self.is_lost


class UpstreamPool:
    """Keeps idle connections to the leader."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[UpstreamConnection] = []

    async def acquire(self) -> UpstreamConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_lost and time.monotonic() - connection.idle_since < limits.FORWARD_IDLE_SECONDS:
                connection.reset()
                return connection
            if not connection.is_lost:
                connection.close()
        try:
            _, connection = await asyncio.get_running_loop().create_unix_connection(UpstreamConnection, self._path)
        except OSError:
            raise StoreUnavailable(
                "The leader process is restarting.",
                hint="Retry; reads work meanwhile.",
                retry_after=_RETRY_SECONDS,
            ) from None
        return connection

    def release(self, connection: UpstreamConnection) -> None:
        if connection.is_idle and len(self._idle) < limits.FORWARD_IDLE_CONNECTIONS:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        elif not connection.is_lost:
            connection.close()

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()


# --- Follower -------------------------------------------------------------------------------------


class FollowerApp:
    """The ASGI application of a follower: reads are answered here once the follower has caught up, the rest forwarded."""

    def __init__(
        self,
        service: HttpApp,
        follower: Follower,
        upstream: UpstreamPool,
        tokens: ConsistencyTokens,
        confirm: ConfirmReads | None = None,
    ) -> None:
        """`confirm`: in a node of a cluster, waits until the leader has what other nodes have acknowledged."""
        self._tokens = tokens
        self._service = service
        self._follower = follower
        self._upstream = upstream
        self._confirm = confirm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_read(scope):
            await self._forward(scope, receive, send)
            return
        if scope["type"] == "http" and scope["method"] == "POST":
            try:
                first = await _receive_first(receive)
            except WaypostError as error:
                await self._refuse_unread(scope, receive, send, error)
                return
            receive = _replay(first, receive)
            if _FEDERATED in first.get("body", b""):
                await self._forward(scope, receive, send)
                return
        if scope["type"] == "http" and (self._confirm is not None or self._follower.is_behind):
            try:
                position = self._tokens.find_position(scope["headers"])
                age_seconds = None if self._confirm is None else await self._confirm(position)
                if age_seconds is not None:
                    send = mark_stale(send, age_seconds)
                await self._follower.catch_up()
            except WaypostError as error:
                await self._service.refuse(Request(scope, receive, self._service.bodies), send, error)
                return
        await self._service(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        forwarding = _Forwarding(scope, receive, send)
        try:
            if not await forwarding.begin():
                return
            connection = await self._upstream.acquire()
            try:
                await forwarding.run(connection)
            finally:
                self._upstream.release(connection)
        except WaypostError as error:
            if forwarding.has_responded:
                return  # the server closes the connection, so that the client notices the incomplete response
            await self._refuse_unread(scope, receive, send, error)

    async def _refuse_unread(self, scope: Scope, receive: Receive, send: Send, error: WaypostError) -> None:
        request = Request(scope, receive, self._service.bodies)
        request.has_unread_body = True
        await self._service.refuse(request, send, error)


class _Forwarding:
    """One request on its way to the leader, and the response on its way back."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        self._first: Message = {"type": "http.request"}  # the first part of the body
        self.has_responded = False

    async def begin(self) -> bool:
        """Wait for the first part of the body. False if the client left before: a head without its body would make the leader
        take the next request for the body."""
        if self._has_body():
            self._first = await _receive_first(self._receive)
        return bool(self._first["type"] != "http.disconnect")

    async def run(self, connection: UpstreamConnection) -> None:
        await connection.write(self._head() + self._frame(self._first))
        if not self._first.get("more_body"):
            await self._relay_response(connection)
            return
        sender = asyncio.create_task(self._relay_body(connection))
        try:
            await self._relay_response(connection)
        finally:
            if not sender.done():  # the response came first: the rest of the body would be taken for a request
                connection.is_reusable = False
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def _has_body(self) -> bool:
        return self._is_chunked or any(
            name == b"content-length" and value != b"0" for name, value in self._scope["headers"]
        )

    def _head(self) -> bytes:
        scope = self._scope
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        target: bytes = scope.get("raw_path") or scope["path"].encode()
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_FORWARDED]
        if self._is_chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        headers.append((ORIGIN_HEADER, origin_header(scope)))
        if VIA_SCOPE_KEY in scope:
            headers.append((VIA_HEADER, scope[VIA_SCOPE_KEY].encode()))
        certificate = peer_certificate(scope)
        if certificate is not None:
            headers.append((CERTIFICATE_HEADER, base64.b64encode(ssl.PEM_cert_to_DER_cert(certificate))))
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        return b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode(), target, lines)

    def _frame(self, message: Message) -> bytes:
        body: bytes = message.get("body", b"")
        if not self._is_chunked:
            return body
        chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        return chunk if message.get("more_body") else chunk + b"0\r\n\r\n"

    async def _relay_body(self, connection: UpstreamConnection) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                connection.close()  # tells the leader that the client is gone
                return
            if connection.is_closing:
                return
            await connection.write(self._frame(message))
            if not message.get("more_body"):
                return

    async def _relay_response(self, connection: UpstreamConnection) -> None:
        status, received = await connection.read_head()
        headers = [pair for pair in received if pair[0] not in _NOT_RETURNED]
        if not connection.is_reusable:
            headers.append((b"connection", b"close"))
        self.has_responded = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        async for part in connection.read_body():
            if self._scope["method"] != "HEAD":
                await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})


async def _receive_first(receive: Receive) -> Message:
    """The first part of a body. For the others there is the time limit of the process that reads them."""
    return await receive_until(asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS, receive)


def _replay(first: Message, receive: Receive) -> Receive:
    """`receive` with a message before the others."""
    waiting = [first]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def _is_read(scope: Scope) -> bool:
    path = scope.get("raw_path")
    if scope["method"] in _READ_METHODS:
        return path not in _LEADER_PATHS and not (path or b"").startswith(_PEERS_PATH) and not _is_sign_in(scope)
    return path == _DISCOVER_PATH and scope["method"] == "POST"


def _is_sign_in(scope: Scope) -> bool:
    """A sign-in code is valid once in the whole service, so the leader redeems them all."""
    return scope.get("raw_path") == b"/" and b"token=" in scope.get("query_string", b"")


def origin_header(scope: Scope) -> bytes:
    host, port = scope.get("client") or ("", 0)
    return f"{scope.get('scheme', 'http')} {port} {host}".encode("latin-1", "replace")


class MetricsReporter:
    """Sends the metrics of a follower to the leader, which shows those of all processes."""

    def __init__(self, metrics: Metrics, upstream: UpstreamPool, slot: int) -> None:
        self._metrics = metrics
        self._upstream = upstream
        self._slot = slot
        self._last_report = b""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            try:
                await self.report()
            except WaypostError:
                continue  # the leader is restarting

    async def report(self) -> None:
        report = self._metrics.report(self._slot, os.getpid())
        if report == self._last_report:
            return
        connection = await self._upstream.acquire()
        try:
            head = b"POST /report HTTP/1.1\r\nhost: worker\r\ncontent-length: %d\r\n\r\n" % len(report)
            await connection.write(head + report)
            await connection.read_head()
            async for _ in connection.read_body():
                pass
            self._last_report = report
        finally:
            self._upstream.release(connection)


class LeaderCheck:
    """Asks the leader to compare itself with the other nodes of the cluster. One question answers all reads that waited when
    it was sent."""

    def __init__(self, upstream: UpstreamPool) -> None:
        self._upstream = upstream
        self._next: asyncio.Future[float | None] | None = None
        self._position = 0  # the highest one that the next question is for
        self._asking: asyncio.Task[None] | None = None

    async def confirm(self, position: int) -> float | None:
        self._position = max(self._position, position)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        waiting = self._next
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(waiting)

    async def _ask(self) -> None:
        while self._next is not None:
            waiting, self._next = self._next, None
            position, self._position = self._position, 0
            try:
                waiting.set_result(await self._ask_once(position))
            except WaypostError as error:
                waiting.set_exception(error)
                waiting.exception()  # retrieved: perhaps nobody waits any more

    async def _ask_once(self, position: int) -> float | None:
        connection = await self._upstream.acquire()
        try:
            await connection.write(b"GET %s?%d HTTP/1.1\r\nhost: worker\r\n\r\n" % (_CONFIRM_PATH, position))
            _, headers = await connection.read_head()
            async for _ in connection.read_body():
                pass
        finally:
            self._upstream.release(connection)
        age = dict(headers).get(STALE_HEADER)
        return None if age is None else float(age)


# --- Leader ---------------------------------------------------------------------------------------


class LeaderApp:
    """The ASGI application behind the internal socket: the service, with the client that the follower names."""

    def __init__(self, service: App, metrics: Metrics, confirm: ConfirmReads | None = None) -> None:
        self._service = service
        self._metrics = metrics
        self._confirm = confirm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = []
        is_forwarded = False
        for name, value in scope["headers"]:
            if name == ORIGIN_HEADER:
                is_forwarded = True
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
        if is_forwarded:
            await self._service(scope, receive, send)
        elif scope["method"] == "GET":
            age_seconds = None if self._confirm is None else await self._confirm(int(scope["query_string"]))
            if age_seconds is not None:
                send = mark_stale(send, age_seconds)
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:  # a follower's own request: forwarded ones always have the origin header
            self._metrics.merge_report(await Request(scope, receive).body())
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
