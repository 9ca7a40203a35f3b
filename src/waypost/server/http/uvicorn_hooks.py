"""The only module that extends classes of uvicorn, for limits that its configuration does not offer.

The hooks are asyncio's protocol callbacks (`connection_made`, `data_received`, …), httptools' parser callbacks
(`on_header`, …), `send_400_response` and the ASGI `send`. pyproject.toml states the versions of uvicorn and websockets
that they fit; scripts/test runs the HTTP and WebSocket tests against the lowest of them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame
from websockets.protocol import OPEN, Event
from websockets.server import ServerProtocol

from waypost import limits
from waypost.errors import HeadTooLarge, InvalidRequest, TooSlow, UriTooLong, WaypostError, error_codes
from waypost.model.json import dump_json
from waypost.rate_limit import TokenBucket
from waypost.server.http.asgi import App, Message, Receive, Scope, Send
from waypost.server.http.conditional_requests import format_http_date
from waypost.server.http.problems import problem_headers, problem_json
from waypost.server.http.tls import tls_extension

IDLE_TIMEOUT_CODE = 4408  # announce.md P-28

_HEADER_OVERHEAD = 4  # colon, space and line end
_INVALID_LENGTH = 1 << 63
_NOT_HTTP = InvalidRequest("This is not an HTTP/1.1 request.", path="request", hint="Send a request of RFC 9112.")
_websocket_log = logging.getLogger("waypost.sockets")
_websocket_log.setLevel(logging.WARNING)


class _UvicornLogFilter(logging.Filter):
    """Drops what clients could fill the log with (H15): handshakes with their query strings, refused upgrades, and a
    traceback for each text that is not UTF-8."""

    _DROPPED = ("WebSocket", "without completing handshake", "Unsupported upgrade request", "Invalid UTF-8 sequence")

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        return not any(text in message for text in self._DROPPED)


logging.getLogger("uvicorn.error").addFilter(_UvicornLogFilter())


class HttpConfig(uvicorn.Config):
    """uvicorn's configuration, and the protocol class of each WebSocket path."""

    def __init__(self, app: App, websockets: Mapping[bytes, type[WebSocketProtocol]] | None = None) -> None:
        super().__init__(
            cast(Any, _with_date(app)),
            http=HttpProtocol,
            ws="none",  # HttpProtocol chooses by path
            ws_per_message_deflate=False,  # W4
            ws_ping_interval=None,  # WebSocketProtocol has its own heartbeat
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # nothing here trusts a forwarded address
            timeout_keep_alive=limits.IDLE_SECONDS,
            timeout_graceful_shutdown=5,
            limit_concurrency=limits.CONNECTIONS,
            backlog=limits.BACKLOG,
        )
        self.websockets = WEBSOCKETS if websockets is None else websockets


# --- HTTP ----------------------------------------------------------------------------------------


class HttpProtocol(HttpToolsProtocol):
    """Bounds that must hold before there is a request: the size and time of its head, one Host header, no body behind an
    upgrade, no trailers. What breaks them is answered with the problem document of every other error."""

    header_seconds: float = limits.HEADER_READ_SECONDS
    config: HttpConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_silent = True  # nothing was received yet
        self._in_head = False
        self._has_progress = False
        self._overhead_bytes = 0  # received since the last complete head or part of a body
        self._deadline: asyncio.TimerHandle | None = None
        self._error: WaypostError = _NOT_HTTP
        self._ignores_input = False

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app = cast(Any, _with_tls(cast(App, self.app), transport))
        # uvicorn's idle timeout starts after the first response.
        self._deadline = self.loop.call_later(self.config.timeout_keep_alive, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        if self._is_silent:
            self._is_silent = False
            self._cancel_deadline()
        self._has_progress = False
        super().data_received(data)
        if self._ignores_input or self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        self._overhead_bytes = 0 if self._has_progress else self._overhead_bytes + len(data)
        if self._overhead_bytes > limits.HEADER_BYTES:
            self._refuse(_head_too_large(self.url))
        elif self._deadline is None and (self._in_head or not self._is_answering()):
            self._deadline = self.loop.call_later(self.header_seconds, self._on_deadline)

    # --- httptools -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers of a chunked body are dropped: they must not count as headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Raising here makes the parser fail, which ends in `send_400_response`."""
        self._in_head = False
        self._has_progress = True
        self._cancel_deadline()
        error = self._find_head_error()
        if error is not None:
            self._error = error
            raise error
        self.ws_protocol_class = self._find_websocket()
        self.limit_concurrency = limits.CONNECTIONS + WebSocketProtocol.open_count  # which have a limit of their own
        super().on_headers_complete()
        if self.parser.should_upgrade() and self.ws_protocol_class is None:
            # httptools stops at the end of this head. The request is answered without the upgrade, then the connection
            # is closed: bytes after it cannot be told apart from another protocol.
            self._ignores_input = True
            self.shutdown()

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._error)

    # --- Checks ----------------------------------------------------------------------------------

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn's annotation leaves the None out
        return cycle is not None and not cycle.response_complete

    def _find_head_error(self) -> WaypostError | None:
        size = len(self.url) + sum(len(name) + len(value) + _HEADER_OVERHEAD for name, value in self.headers)
        if size > limits.HEADER_BYTES:
            return _head_too_large(self.url)
        names = [name for name, _ in self.headers]
        if names.count(b"host") != 1 and self.parser.get_http_version() == "1.1":
            return InvalidRequest(
                f"The request has {names.count(b'host')} Host headers.",
                path="Host",
                hint="Send exactly one (RFC 9112 §3.2).",
            )
        has_body = b"transfer-encoding" in names or any(
            name == b"content-length" and value != b"0" for name, value in self.headers
        )
        if has_body and self.parser.should_upgrade():  # httptools would parse the body as the next request
            return InvalidRequest(
                "A request for an upgrade has a body.",
                path="Upgrade",
                hint="Send the request without Connection: Upgrade.",
            )
        return None

    def _find_websocket(self) -> type[WebSocketProtocol] | None:
        versions = [value for name, value in self.headers if name == b"sec-websocket-version"]
        if versions != [b"13"] or self.parser.get_method() != b"GET":
            return None
        return self.config.websockets.get(self.url.partition(b"?")[0])

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(
                TooSlow(
                    f"The headers did not arrive within {self.header_seconds:g} seconds.",
                    path="headers",
                    hint="Send the request at once.",
                )
            )
        else:
            self.transport.close()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, error: WaypostError) -> None:
        """Answer with the error and close, unless the client would take the answer for that of an earlier request."""
        self._cancel_deadline()
        self._ignores_input = True
        if self._is_answering() and not self.cycle.more_body:
            self.shutdown()  # the error follows a complete request: answer that one first
            return
        if not self._is_answering() or not (self.cycle.response_started or self.pipeline):
            self.transport.write(_error_response(error))
        self.transport.close()


def _head_too_large(url: bytes) -> WaypostError:
    """Names what is too long: a query string has a bound and an error of its own (AF-42)."""
    if len(url.partition(b"?")[2]) > limits.QUERY_STRING_BYTES:
        return UriTooLong(
            f"The query string has more than {limits.QUERY_STRING_BYTES} bytes.", path="request", hint="Shorten it."
        )
    return HeadTooLarge(
        f"The request line and the headers have more than {limits.HEADER_BYTES} bytes.",
        path="headers",
        hint="Send shorter headers; long texts belong in the body.",
    )


def _error_response(error: WaypostError) -> bytes:
    status = HTTPStatus(error_codes(error).http)
    request_id = secrets.token_hex(8)
    body = dump_json(problem_json(error, instance="about:blank", correlation_id=request_id))
    headers = [
        (b"date", format_http_date(time.time())),
        (b"x-request-id", request_id.encode()),
        *problem_headers(error),
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, status.phrase.encode(), lines, body)


# --- WebSockets ----------------------------------------------------------------------------------


class _MeteredConnection(ServerProtocol):
    """The sans-I/O connection of `websockets`, with a limit on frames, including pings and fragments (W5)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frames: TokenBucket, max_size: int) -> None:
        super().__init__(max_size=max_size, logger=_websocket_log)
        self._loop = loop
        self._frames = frames
        self.is_flooded = False

    def events_received(self) -> list[Event]:
        events = super().events_received()
        now = self._loop.time()
        for index, event in enumerate(events):
            if self.state is OPEN and isinstance(event, Frame) and not self._frames.take(now):
                self.is_flooded = True
                return events[:index]
        return events

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """A length with its top bit set is malformed (RFC 6455 §5.2); the parser reports it as too large (W3)."""
        error = sys.exc_info()[1]
        if isinstance(error, PayloadTooBig) and (error.size or 0) >= _INVALID_LENGTH:
            code, reason = CloseCode.PROTOCOL_ERROR, "the length of a frame has its top bit set"
        super().fail(code, reason)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """The connections of `/ws`: a frame rate (W5), an end for peers that do not read (W6) and a heartbeat (W8)."""

    open_count: ClassVar[int] = 0

    ping_seconds: float = limits.SOCKET_PING_SECONDS
    silence_seconds: float = limits.SOCKET_SILENCE_SECONDS
    frames_per_second: float = limits.SOCKET_FRAMES_PER_SECOND
    frames_burst: float = limits.SOCKET_FRAMES_BURST
    message_bytes: int = limits.SOCKET_MESSAGE_BYTES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        frames = TokenBucket(self.frames_per_second, self.frames_burst)
        self.conn = self._metered = _MeteredConnection(self.loop, frames, self.message_bytes)
        self._received_at = self.loop.time()
        self._is_pinged = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        WebSocketProtocol.open_count += 1
        super().connection_made(transport)
        self.app = cast(Any, _with_tls(cast(App, self.app), transport))

    def connection_lost(self, exc: Exception | None) -> None:
        WebSocketProtocol.open_count -= 1
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.get_write_buffer_size() > limits.SOCKET_QUEUE_BYTES:
            self.transport.abort()  # a peer that sends pings and does not read the pongs
            return
        self._received_at, self._is_pinged = self.loop.time(), False
        # In slices, so that a flood of tiny frames is noticed before all of them are objects.
        for start in range(0, len(data), limits.SOCKET_SLICE_BYTES):
            super().data_received(data[start : start + limits.SOCKET_SLICE_BYTES])
            if self._metered.is_flooded:
                self._fail(CloseCode.POLICY_VIOLATION, f"more than {self.frames_per_second:g} frames a second")
            if self.transport.is_closing():
                return

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.close":
            self._cancel_timer()
            self.resume_writing()  # the close frame does not wait for a peer that reads nothing
            self._timer = self.loop.call_later(limits.SOCKET_CLOSE_SECONDS, self.transport.abort)
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._received_at = self.loop.time()
            self._schedule_check()

    def _fail(self, code: int, reason: str) -> None:
        self._cancel_timer()
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        self._timer = self.loop.call_later(limits.SOCKET_CLOSE_SECONDS, self.transport.abort)

    # --- Heartbeat -------------------------------------------------------------------------------

    def _schedule_check(self) -> None:
        due = self._received_at + (self.silence_seconds if self._is_pinged else self.ping_seconds)
        self._timer = self.loop.call_at(due, self._check_silence)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self) -> None:
        now = self.loop.time()
        if self.transport.is_closing() or self.conn.state is not OPEN:
            return
        if not self.transport.is_reading():  # back-pressure of the application: silence is not the peer's fault
            self._received_at = now
        silence = now - self._received_at
        if self._is_pinged and silence >= self.silence_seconds:
            self._fail(IDLE_TIMEOUT_CODE, f"nothing was received for {self.silence_seconds:g} seconds")
            return
        if not self._is_pinged and silence >= self.ping_seconds:
            self._is_pinged = True
            self.conn.send_ping(b"")
            self.transport.write(b"".join(self.conn.data_to_send()))
        self._schedule_check()


class AgpWebSocketProtocol(WebSocketProtocol):
    """The connections of `/agent/chat`: larger messages and more frames, since its application limits each sender."""

    frames_per_second = limits.AGP_FRAMES_PER_SECOND
    frames_burst = limits.AGP_FRAMES_BURST
    message_bytes = limits.AGP_FRAME_BYTES


WEBSOCKETS: Mapping[bytes, type[WebSocketProtocol]] = {b"/ws": WebSocketProtocol, b"/agent/chat": AgpWebSocketProtocol}


# --- ASGI middleware -----------------------------------------------------------------------------


def _with_date(app: App) -> App:
    """Adds the Date header. uvicorn's is up to a second old, so that a change could look newer than its response."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_date(message: Message) -> None:
            if message["type"].endswith("http.response.start"):
                date = (b"date", format_http_date(time.time()))
                message = {**message, "headers": [date, *message.get("headers", ())]}
            await send(message)

        await app(scope, receive, send_with_date)

    return call


def _with_tls(app: App, transport: asyncio.BaseTransport) -> App:
    """Adds the ASGI extension `tls`, which names the client certificate, if the connection has TLS."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return app
    extension = tls_extension(tls)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {**scope.get("extensions", {}), "tls": extension}}, receive, send)

    return call
