"""One HTTP connection: bounds that have to hold before there is a request.

uvicorn reads the bytes; this adds how long and how large the head of a request may be, that it names one host, and that
what cannot be read is refused in the words of every other error. It knows no path and no operation.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from waypost import limits
from waypost.errors import HeadTooLarge, InvalidRequest, TooSlow, UriTooLong, WaypostError, error_codes
from waypost.model.json import dump_json
from waypost.server.http.conditional_requests import format_http_date
from waypost.server.http.problems import problem_headers, problem_json
from waypost.server.http.tls import tls_extension
from waypost.server.http.websockets import WEBSOCKET_PROTOCOLS, WebSocketCount, announce_protocol

_HEADER_OVERHEAD = 4  # colon, space and line end
_NOT_HTTP = InvalidRequest("This is not an HTTP/1.1 request.", path="request", hint="Send a request of RFC 9112.")


class HttpConnection(HttpToolsProtocol):
    _deadline: asyncio.TimerHandle | None = None
    _refusal: WaypostError = _NOT_HTTP
    _in_head = False
    _head_bytes = 0
    _tls: dict[str, Any] | None = None
    _idle_since: float | None = None  # None: a request is on its way or being answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._tls = {"tls": tls_extension(tls)}
        # Whoever connects and says nothing is treated as one who has nothing more to say.
        self._is_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        self._head_is_over()
        super().connection_lost(exc)

    def _is_idle(self) -> None:
        """From now on the time of a connection on which nothing is asked is counted. One clock runs for as long as it is open,
        and looks when it rings whether it is time: to set one for each request would cost as much as answering some."""
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since is None or self.transport.is_closing():
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """As uvicorn's, with the clock of `_is_idle`."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._idle_since = None
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._is_idle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._wait_for_more_of_the_head(len(data))

    def _wait_for_more_of_the_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > limits.HEADER_BYTES:
            self._refuse(_head_too_large(self.url))
        elif self._deadline is None:
            self._deadline = self.loop.call_later(limits.HEADER_READ_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self._refuse(
                TooSlow(
                    f"The headers did not arrive within {limits.HEADER_READ_SECONDS} seconds.",
                    path="headers",
                    hint="Send the request at once.",
                )
            )

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        if self._tls is not None:
            self.scope["extensions"] = self._tls

    def on_headers_complete(self) -> None:
        self._head_is_over()
        self._check_head()
        self.limit_concurrency: int = limits.CONNECTIONS + WebSocketCount.count
        self._set_date()
        super().on_headers_complete()

    def _set_date(self) -> None:
        """uvicorn looks at the clock once a second: a change would then look newer than the answer that tells it."""
        date = (b"date", format_http_date(time.time()))
        kept = self.server_state.default_headers
        if not kept or kept[0] != date:
            self.server_state.default_headers = [date, *(pair for pair in kept if pair[0] != b"date")]

    def _head_is_over(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _check_head(self) -> None:
        """Raising here makes the parser give up, which ends in `send_400_response`."""
        size = len(self.url)
        hosts = 0
        for name, value in self.headers:
            size += len(name) + len(value) + _HEADER_OVERHEAD
            hosts += name == b"host"
        if size > limits.HEADER_BYTES:
            self._refusal = _head_too_large(self.url)
            raise self._refusal
        if hosts != 1 and self.parser.get_http_version() == "1.1":
            self._refusal = InvalidRequest(
                f"The request has {hosts} Host headers.", path="Host", hint="Name the host once (RFC 9112 §3.2)."
            )
            raise self._refusal

    def _should_upgrade_to_ws(self) -> bool:
        """Only where a WebSocket is, in the one version that there is; else it is answered as a request."""
        versions = [value for name, value in self.headers if name == b"sec-websocket-version"]
        protocol = WEBSOCKET_PROTOCOLS.get(self.url.partition(b"?")[0])
        if protocol is None or versions != [b"13"] or self.scope["method"] != "GET":
            return False
        # What the server was made with counts for its own path: another pace of silence, in tests.
        self.ws_protocol_class = self.config.ws_protocol_class if protocol is announce_protocol else protocol  # type: ignore[assignment]
        return super()._should_upgrade_to_ws()

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade that is not offered is answered as the plain request that it is, and is no news."""

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _refuse(self, error: WaypostError) -> None:
        """Answer and close. An answer that would be taken for that of a whole request before it is not sent."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started):
            self.transport.write(_refusal_bytes(error))
        self.transport.close()


def _head_too_large(url: bytes) -> WaypostError:
    """What is too long is named: a query string of its own is told as it is where the head has room for it (AF-42)."""
    if len(url.partition(b"?")[2]) > limits.QUERY_STRING_BYTES:
        return UriTooLong(
            f"The query string has more than {limits.QUERY_STRING_BYTES} bytes.", path="request", hint="Shorten it."
        )
    return HeadTooLarge(
        f"The request line and the headers have more than {limits.HEADER_BYTES} bytes.",
        path="headers",
        hint="Send shorter headers; long texts belong in the body.",
    )


def _refusal_bytes(error: WaypostError) -> bytes:
    request_id = secrets.token_hex(8)
    body = dump_json(problem_json(error, instance="about:blank", correlation_id=request_id))
    headers = [
        (b"x-request-id", request_id.encode()),
        *problem_headers(error),
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
    return STATUS_LINE[error_codes(error).http] + lines + b"\r\n" + body
