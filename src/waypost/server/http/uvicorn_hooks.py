"""The only module that extends classes of uvicorn, for limits that its configuration does not offer.

The hooks are asyncio's protocol callbacks (`connection_made`, `data_received`, …), httptools' parser callbacks
(`on_headers_complete`, …), the application that the protocol runs, and the transport of its responses. pyproject.toml states
the versions of uvicorn and websockets that they fit; scripts/test runs the HTTP and WebSocket tests against the lowest of
them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame
from websockets.protocol import OPEN, Event
from websockets.server import ServerProtocol

from waypost import limits
from waypost.errors import InvalidRequest, TooSlow, Unavailable, WaypostError, error_codes
from waypost.model.json import dump_json
from waypost.rate_limit import TokenBucket
from waypost.server.http.admission import OVERLOAD, AdmissionController, Priority, jittered, priority_of
from waypost.server.http.asgi import HTML, PROBLEM, App, Message, Receive, Scope, Send
from waypost.server.http.conditional_requests import format_http_date
from waypost.server.http.connections import ConnectionTable
from waypost.server.http.content_negotiation import prefers_html
from waypost.server.http.problems import problem_headers, problem_json, problem_page
from waypost.server.http.request_head import (
    find_head_error,
    find_method_error,
    has_body,
    has_short_body,
    head_too_large,
    is_websocket_handshake,
    too_many_headers,
    without_upgrade,
)
from waypost.server.http.request_log import log_refusal, new_request_id
from waypost.server.http.tls import tls_extension

IDLE_TIMEOUT_CODE = 4408  # announce.md P-28

_INVALID_LENGTH = 1 << 63
_QUEUED = "waypost.queued"  # in the scope of an admitted request: its priority and since when it waits
_UNAVAILABLE = 503
_NOT_SHED, _SHED, _SHED_COMPLETE = range(3)  # a refused request: before and after the end of its body
_NOT_HTTP = InvalidRequest("This is not an HTTP/1.1 request.", path="request", hint="Send a request of RFC 9112.")
_websocket_log = logging.getLogger("waypost.sockets")
_websocket_log.setLevel(logging.WARNING)


class _UvicornLogFilter(logging.Filter):
    """Drops what clients could fill the log with (H15): handshakes with their query strings, and a traceback for each text
    that is not UTF-8."""

    _DROPPED = ("WebSocket", "without completing handshake", "Invalid UTF-8 sequence")

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        return not any(text in message for text in self._DROPPED)


logging.getLogger("uvicorn.error").addFilter(_UvicornLogFilter())


class HttpConfig(uvicorn.Config):
    """uvicorn's configuration, and the protocol class of each WebSocket path."""

    def __init__(
        self,
        app: App,
        websockets: Mapping[bytes, type[WebSocketProtocol]] | None = None,
        table: ConnectionTable | None = None,
        admission: AdmissionController | None = None,
    ) -> None:
        self.admission = admission or AdmissionController()
        self.table = table or ConnectionTable()
        self.is_draining = False  # set by a stop signal
        super().__init__(
            cast(Any, app),
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
            timeout_graceful_shutdown=limits.SHUTDOWN_SECONDS,
            backlog=limits.BACKLOG,
        )
        self.websockets = WEBSOCKETS if websockets is None else websockets


def _too_many_unread() -> Unavailable:
    return Unavailable(
        "Too many answers wait for clients that do not read them.",
        hint="Try again later, or ask for a shorter page.",
        retry_after=jittered(limits.RETRY_SECONDS),
    )


def _too_many_pipelined() -> Unavailable:
    return Unavailable(
        "Too many requests were sent before earlier ones on the same connection were answered.",
        hint="Read the answers, and send the requests that have none again.",
        retry_after=jittered(limits.RETRY_SECONDS),
    )


def _stopping() -> Unavailable:
    return Unavailable(
        "The service is stopping, and the request was not done in time; a write may have succeeded.",
        hint="Send it again in a moment.",
        retry_after=jittered(limits.RETRY_SECONDS),
    )


def _content_length(message: Message) -> int:
    for name, value in message.get("headers", ()):
        if name == b"content-length":
            return int(value)
    return 0


# --- HTTP ----------------------------------------------------------------------------------------


class _ResponseTransport:
    """The part of a transport that uvicorn writes responses to. It sends a head together with its body: at each system call
    another thread may take the interpreter, and the second call alone is a tenth of the time of a short answer."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._holds_next = False
        self._held: bytes | None = None

    def hold_next(self) -> None:
        """Keep what is written next until something follows it."""
        self._holds_next = True

    def write(self, data: bytes) -> None:
        if self._holds_next:
            self._held, self._holds_next = data, False
        elif self._held is not None:
            head, self._held = self._held, None
            self._transport.writelines((head, data))
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


class _ResponseSender:
    """The ASGI `send` of one request. It answers 503 instead of a long answer while other clients leave too many of theirs
    unread."""

    __slots__ = ("_is_head", "_is_refused", "_protocol", "_send", "has_started")

    def __init__(self, protocol: HttpProtocol, scope: Scope, send: Send) -> None:
        self._protocol = protocol
        self._send = send
        self._is_head = scope["method"] == "HEAD"
        self._is_refused = False
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            size = _content_length(message)
            if size > limits.BUFFERED_BYTES and not self._protocol.has_room(size):
                self._is_refused = True
                await self.send_error(_too_many_unread())
                return
            message = self._protocol.begin_response(message, 0 if self._is_head else size)
        elif self._is_refused:
            return
        await self._send(message)

    async def send_error(self, error: WaypostError, *, is_page: bool = False) -> None:
        """The error as the whole response. It ends the connection."""
        self.has_started = True
        status, headers, body = _error_parts(error, is_page=is_page)
        start = {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]}
        await self._send(self._protocol.begin_response(start, 0))
        await self._send({"type": "http.response.body", "body": body})


class HttpProtocol(HttpToolsProtocol):
    """Bounds that must hold before there is a request, and after its response: connections of an address, the size and time
    of a head, one reading of it, no trailers, and the time that a client may leave its answer unread. What breaks them is
    answered with the problem document of every other error."""

    header_seconds: float = limits.HEADER_READ_SECONDS
    stall_seconds: float = limits.WRITE_STALL_SECONDS
    config: HttpConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._application = cast(App, self.app)
        self.app = cast(Any, self._answer)
        self.headers = []
        self._tls: Any = None  # the ASGI extension of a connection with TLS
        self._is_silent = True  # nothing was received yet
        self._is_counted = False
        self._is_refused_connection = False
        self._in_head = False
        self._in_body = False  # of a request that the application got
        self._has_progress = False
        self._overhead_bytes = 0  # received since the last complete head or part of a body
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        self._is_unavailable = False  # the last response was 503
        self._answer_bytes = 0  # of the answer that is being written, whose memory is free when all of it was read
        self._cycles: deque[RequestResponseCycle] = deque()  # requests without a complete response
        self._waiting_bytes = 0  # of requests that were received before the answer to an earlier one
        self._error: WaypostError = _NOT_HTTP
        self._later_error: WaypostError | None = None  # sent after the responses to earlier requests
        self._ignored_upgrade: bytes | None = None
        self._ignores_input = False
        self._shed_state = _NOT_SHED
        self._ignored_bytes = 0
        self.used_at = self.loop.time()  # the time of the last response, or of the connection

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._responses = _ResponseTransport(transport)
        self._tls = _find_tls_extension(transport)
        refusal = self.config.table.find_refusal(self._address())
        if refusal is not None:
            self._refuse_connection(refusal)
            return
        self._is_counted = True
        self.config.table.add(self._address())
        # uvicorn's idle timeout starts after the first response.
        self._deadline = self.loop.call_later(self.config.timeout_keep_alive, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._end_stall()
        if self._is_counted:
            self.config.table.remove(self._address())
        if self._is_refused_connection:
            self.config.table.refused -= 1
        self._end_waiting()
        for cycle in self._cycles:  # uvicorn tells the last one only
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """In slices, so that what is neither head nor body is noticed before much of it was parsed."""
        if len(data) <= limits.HEADER_BYTES:
            self._receive(data)
            return
        for start in range(0, len(data), limits.HEADER_BYTES):
            self._receive(data[start : start + limits.HEADER_BYTES])
            if self._has_ended():
                return

    def _receive(self, data: bytes) -> None:
        if self._ignores_input:
            self._ignore(data)
            return
        if self._is_silent:
            self._is_silent = False
            self._cancel_deadline()
        self._has_progress = False
        self._cancel_idle_timeout()
        is_start = not self._in_head and not self._in_body
        try:
            self._parse(data)
        except httptools.HttpParserError:  # also if a callback raised
            is_first_line = is_start and not self._has_progress
            self._refuse((find_method_error(data) if is_first_line else None) or self._error)
        if self._ignores_input or self._has_ended():
            return
        self._overhead_bytes = 0 if self._has_progress else self._overhead_bytes + len(data)
        if self._overhead_bytes > limits.HEADER_BYTES:
            self._refuse(head_too_large(self.url))
        elif len(self.headers) > limits.HEADERS:  # of a head that is not complete, or trailers
            self._refuse(too_many_headers())
        elif self._shed_state == _SHED_COMPLETE:  # the connection is idle
            self._is_unavailable = True
            self.on_response_complete()  # starts the idle timeout, once for all that was received together
        elif self._deadline is None and not self._is_answering():
            self._deadline = self.loop.call_later(self.header_seconds, self._on_deadline)

    def _parse(self, data: bytes) -> None:
        """httptools leaves a request with an offer to change the protocol after its head. Unless the offer is taken, another
        parser goes on with the same request."""
        rest: bytes | memoryview = data
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._ignored_upgrade is None:
                    self.handle_websocket_upgrade()
                    return
                rest = memoryview(rest)[upgrade.args[0] :]
                head, self._ignored_upgrade = self._ignored_upgrade, None
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(head)

    def _ignore(self, data: bytes) -> None:
        self._ignored_bytes += len(data)
        if self._ignored_bytes > limits.LINGER_BYTES:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.config.table.stall(self, self.loop.time())
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.stall_seconds, self._check_stall)

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    # --- httptools -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_head = True
        # What was received together with a refused request that ends the connection gets no answer.
        self._shed_state = _SHED if self._ignores_input else _NOT_SHED
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Raising here makes the parser fail, and the request is refused."""
        self._in_head = False
        self._has_progress = True
        if self._ignores_input:
            return
        self._cancel_deadline()
        method, version = self.parser.get_method(), self.parser.get_http_version()
        error = find_head_error(method, self.url, version, self.headers)
        is_upgrade = self.parser.should_upgrade()
        self.ws_protocol_class = self._find_websocket(method) if is_upgrade else None
        if error is None and self.ws_protocol_class is not None and (has_body(self.headers) or self._is_answering()):
            error = InvalidRequest(
                "The handshake of a WebSocket has a body, or follows a request that was not answered yet.",
                path="Upgrade",
                hint="Send it alone, without a body.",
            )
        if error is not None:
            self._error = error
            raise error
        if is_upgrade and self.ws_protocol_class is None:
            # httptools would take the body for another protocol, so the request is parsed again without the offer.
            self._ignored_upgrade = without_upgrade(method, self.url, version, self.headers)
            return
        if self._is_answering():
            self._add_waiting(limits.PIPELINED_REQUEST_BYTES + limits.PIPELINED_HEADER_BYTES * len(self.headers))
        elif not is_upgrade and self._shed_if_full(method):
            return
        super().on_headers_complete()
        if self.ws_protocol_class is None:
            self._in_body = True
            self.cycle.transport = self._responses  # type: ignore[assignment]
            self._cycles.append(self.cycle)
            self.headers = []  # for trailers, which must not count as headers of the request

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        if self._shed_state != _NOT_SHED:
            return
        if self.pipeline:
            self._add_waiting(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._shed_state != _NOT_SHED:
            self._shed_state = _SHED_COMPLETE
        elif self._ignored_upgrade is None:
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._is_counted = False  # the WebSocket is
        self.config.table.upgrade()
        super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        self.used_at = self.loop.time()
        if self._cycles:
            self._cycles.popleft()
        was_unavailable, self._is_unavailable = self._is_unavailable, False
        self.timeout_keep_alive = limits.REFUSED_IDLE_SECONDS if was_unavailable else self.config.timeout_keep_alive
        has_next = bool(self.pipeline)
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # uvicorn reads on after each response, however many requests wait
        elif has_next:
            self._end_waiting()
        if has_next or self.transport.is_closing():
            return
        if self._later_error is not None:
            self._end_with(self._later_error)
        elif self._in_head and self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._on_deadline)

    # --- Checks ----------------------------------------------------------------------------------

    def _has_ended(self) -> bool:
        """Whether the connection is closed, or a WebSocket now."""
        return self.transport.is_closing() or self.transport.get_protocol() is not self

    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn's annotation leaves the None out
        return cycle is not None and not cycle.response_complete

    def _find_websocket(self, method: bytes) -> type[WebSocketProtocol] | None:
        if not is_websocket_handshake(method, self.headers):
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

    def _cancel_idle_timeout(self) -> None:
        """The one that uvicorn starts after a response."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- Requests and responses ------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application that uvicorn runs. Pipelined requests, which waited for an earlier answer, are admitted or
        refused here."""
        sender, admission = _ResponseSender(self, scope, send), self.config.admission
        priority, queued_at = scope.pop(_QUEUED, (None, None))
        if priority is None:
            priority = priority_of(scope["method"].encode(), scope["raw_path"] + b"?" + scope["query_string"])
            queued_at = admission.admit(priority)
        if queued_at is not None and admission.must_wait(priority):
            queued_at = await _wait_for_turn(admission, priority, queued_at)
        if queued_at is None:
            await OVERLOAD.send(sender, is_page=_is_browser(scope["headers"]))
            return
        if admission.start(priority, queued_at):
            self.loop.call_soon(admission.end_round)
        if self._tls is not None:
            scope["extensions"] = {"tls": self._tls}
        try:
            await self._application(scope, receive, sender)
        except asyncio.CancelledError:
            if not self.config.is_draining:
                raise
            await self._end_undone(scope, sender)

    async def _end_undone(self, scope: Scope, sender: _ResponseSender) -> None:
        """The time to stop is over, and uvicorn has cancelled the request. A response that has begun is cut off: its client
        notices by its length."""
        if not sender.has_started:
            await sender.send_error(_stopping(), is_page=_is_browser(scope["headers"]))
        elif self._cycles:
            self._cycles[0].disconnected = True
            self.transport.close()

    def begin_response(self, message: Message, size: int) -> Message:
        """The start of a response with the headers of its connection. `size` bytes follow at once; 0: perhaps nothing.

        uvicorn's Date is up to a second old, so that a change could look newer than its response. After a stop signal no
        client shall send another request on a connection that ends."""
        self._is_unavailable = message["status"] == _UNAVAILABLE
        # An answer that waits for the one before it takes memory as well.
        self._answer_bytes = size + (self._answer_bytes if self.flow.write_paused else 0)
        headers = [(b"date", format_http_date(time.time())), *message.get("headers", ())]
        if self.config.is_draining and (b"connection", b"close") not in headers:
            headers.append((b"connection", b"close"))
        if size:
            self._responses.hold_next()
        return {"type": "http.response.start", "status": message["status"], "headers": headers}

    # --- Overload --------------------------------------------------------------------------------

    def _shed_if_full(self, method: bytes) -> bool:
        """Refuse the request if the queue is too long; returns whether it was refused. That is before there is a task, and
        without its body. The connection stays usable, unless much of a body would have to be read first.

        A request behind one that is being answered is decided when its turn comes (`_answer`)."""
        priority = priority_of(method, self.url)
        queued_at = self.config.admission.admit(priority)
        if queued_at is not None:
            self.scope[_QUEUED] = (priority, queued_at)  # type: ignore[literal-required]
            return False
        is_kept = (
            self.parser.should_keep_alive()
            and not self.config.is_draining
            and not self.flow.write_paused  # a client that does not read its refusals gets no more of them
            and has_short_body(self.headers)
        )
        self.transport.write(
            OVERLOAD.render(is_head=method == b"HEAD", is_kept=is_kept, is_page=_is_browser(self.headers))
        )
        self._shed_state = _SHED
        if not is_kept:
            self.close_gently()
        return True

    # --- Refusals --------------------------------------------------------------------------------

    def _refuse(self, error: WaypostError) -> None:
        """Answer with the error and close, after the responses to earlier requests."""
        self._cancel_deadline()
        self._ignores_input = True
        if self._is_answering() and self.cycle.more_body:
            if self.pipeline:  # the broken request has not been started
                self.pipeline.popleft()
                self._cycles.pop()
                self._later_error = error
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        elif self._is_answering():
            self._later_error = error
            return
        elif self._in_body:  # its response was complete before its body: a second would be taken for the next request's
            self.close_gently()
            return
        self._end_with(error)

    def _refuse_connection(self, error: WaypostError) -> None:
        self._ignores_input = True
        self._is_refused_connection = True
        self.config.table.refused += 1
        if self.config.table.refused > limits.REFUSED_CONNECTIONS:
            self.transport.write(_error_response(error))
            self.transport.close()
        else:
            self._end_with(error)

    def _end_with(self, error: WaypostError) -> None:
        """Send the error, then read for a moment what the client still sends: a connection that is closed with unread data
        is reset, and the client loses the error (RFC 9112 §9.6)."""
        self._ignores_input = True
        self.transport.write(_error_response(error, is_page=_is_browser(self.scope["headers"] if self.scope else ())))
        self.close_gently()

    def close_gently(self) -> None:
        self._ignores_input = True
        self._cancel_deadline()
        if self._in_head:
            self.headers.clear()
        else:  # those of its request belong to the application
            self.headers = []
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        self.transport.write_eof()
        self._deadline = self.loop.call_later(limits.LINGER_SECONDS, self.transport.close)

    # --- Clients that do not wait for their answers ----------------------------------------------

    def _add_waiting(self, size: int) -> None:
        """Count what waits for the answer to an earlier request. Raises if that is too much on all connections together."""
        self._waiting_bytes += size
        self.config.table.waiting_bytes += size
        if self.config.table.waiting_bytes > limits.PIPELINED_BYTES:
            self._error = _too_many_pipelined()
            raise self._error

    def _end_waiting(self) -> None:
        self.config.table.waiting_bytes -= self._waiting_bytes
        self._waiting_bytes = 0

    # --- Clients that do not read ----------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether an answer of this size may be buffered."""
        return self.config.table.has_room(size, self.loop.time())

    def unread_bytes(self) -> int:
        """The memory that the unread part of an answer keeps."""
        return max(self._answer_bytes, self.transport.get_write_buffer_size())

    def abort(self) -> None:
        self.transport.abort()

    def _check_stall(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread > self._unread_bytes - limits.WRITE_PROGRESS_BYTES:
            self.transport.abort()
            return
        self._unread_bytes = unread
        self._stall = self.loop.call_later(self.stall_seconds, self._check_stall)

    def _end_stall(self) -> None:
        self.config.table.flow(self)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # --- Shutdown --------------------------------------------------------------------------------

    def is_in_use(self, now: float) -> bool:
        """Whether its client is likely to send another request at this moment."""
        return self._is_answering() or self._in_head or now - self.used_at < limits.DRAIN_SECONDS

    def shutdown(self) -> None:
        if self.is_in_use(self.loop.time()) and not self._is_answering() and not self.transport.is_closing():
            self.close_gently()  # a request may be on its way: without a reset its client knows that it was not handled
        else:
            super().shutdown()


async def _wait_for_turn(admission: AdmissionController, priority: Priority, queued_at: float) -> float | None:
    """None if the request is refused after all."""
    while admission.must_wait(priority):  # noqa: ASYNC110 - for one round of the loop
        await asyncio.sleep(0)
    if admission.is_late(priority, queued_at):
        admission.abandon(priority)
        return None
    return queued_at


def _is_browser(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """By the headers that were read; on a connection that is refused there are none."""
    accept = next((value for name, value in headers if name == b"accept"), b"")
    return prefers_html(accept.decode("latin-1"))


def _error_parts(error: WaypostError, *, is_page: bool = False) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    request_id = new_request_id()
    log_refusal(error_codes(error).http, request_id)
    if is_page:
        body = problem_page(error, correlation_id=request_id)
    else:
        body = dump_json(problem_json(error, instance="about:blank", correlation_id=request_id))
    headers = [
        (b"x-request-id", request_id.encode()),
        *problem_headers(error),
        (b"content-type", HTML if is_page else PROBLEM),
        (b"x-content-type-options", b"nosniff"),
        (b"content-length", str(len(body)).encode()),
    ]
    return error_codes(error).http, headers, body


def _error_response(error: WaypostError, *, is_page: bool = False) -> bytes:
    code, headers, body = _error_parts(error, is_page=is_page)
    headers += [(b"date", format_http_date(time.time())), (b"connection", b"close")]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (code, HTTPStatus(code).phrase.encode(), lines, body)


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

    config: HttpConfig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        tls = _find_tls_extension(transport)
        if tls is not None:
            self.app = cast(Any, _with_tls(cast(App, self.app), tls))

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.table.remove(self.client[0] if self.client else "", is_websocket=True)
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
        elif message["type"] == "websocket.http.response.start":  # the handshake is refused
            message = {**message, "headers": [(b"date", format_http_date(time.time())), *message.get("headers", ())]}
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._received_at = self.loop.time()
            self._schedule_check()

    def shutdown(self) -> None:
        """The service ends: 1001 tells clients to connect again (RFC 6455 §7.4.1)."""
        if self.conn.state is OPEN and not self.close_sent:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.GOING_AWAY})
            self._fail(CloseCode.GOING_AWAY, "the service is stopping")
        else:
            super().shutdown()

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


# --- TLS -----------------------------------------------------------------------------------------


def _find_tls_extension(transport: asyncio.BaseTransport) -> Any:
    """The ASGI extension `tls`, which names the client certificate; None if the connection has no TLS."""
    tls = transport.get_extra_info("ssl_object")
    return None if tls is None else tls_extension(tls)


def _with_tls(app: App, extension: Any) -> App:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {**scope.get("extensions", {}), "tls": extension}}, receive, send)

    return call
