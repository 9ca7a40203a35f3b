"""Limits of a WebSocket connection below its messages (THREATS W3, W5, W6, W8).

`websockets` parses the frames and uvicorn runs the ASGI application. This adds a frame rate, a heartbeat, and an end for
peers that do not read. uvicorn's configuration has none of these, so its protocol class is extended. Beyond asyncio's own
callbacks the extension touches three of its members: `conn` (the sans-I/O connection), `app` and `send`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from codecs import getincrementaldecoder
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, Event
from websockets.server import ServerProtocol

from waypost import limits
from waypost.server.http.tls import tls_extension
from waypost.server.http.websockets import WebSocketCount

IDLE_TIMEOUT_CODE = 4408
_NO_LENGTH = 1 << 63
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_Utf8Decoder = getincrementaldecoder("utf-8")
_log = logging.getLogger("waypost.sockets")
_log.setLevel(logging.WARNING)


class _HandshakeRecords(logging.Filter):
    """Drop what uvicorn logs of handshakes: paths with their query, and an error for each refusal by an HTTP response."""

    def filter(self, record: logging.LogRecord) -> bool:
        told = str(record.msg)
        return "WebSocket" not in told and "without completing handshake" not in told


logging.getLogger("uvicorn.error").addFilter(_HandshakeRecords())


class BoundedConnection(ServerProtocol):
    """The connection of `websockets`, with a frame rate and strict UTF-8."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_second: float, burst: float, max_size: int) -> None:
        super().__init__(max_size=max_size, logger=_log)
        self._loop = loop
        self._per_second = per_second
        self._burst = self._left = float(burst)
        self._counted_at = loop.time()
        self._received: list[Event] = []
        self._is_text = False
        self._decoder = _Utf8Decoder()

    def receive_data(self, data: bytes | bytearray) -> None:
        """Parse in slices, so that a flood of tiny frames is noticed before all of them are objects."""
        for start in range(0, len(data), limits.SOCKET_SLICE_BYTES):
            super().receive_data(data[start : start + limits.SOCKET_SLICE_BYTES])
            events = super().events_received()
            self._received += events
            frames = [event for event in events if isinstance(event, Frame)]
            if self.state is OPEN and not self._take(len(frames)):
                self._refuse(CloseCode.POLICY_VIOLATION, f"more than {self._per_second:g} frames a second")
            elif not all(map(self._is_utf8, frames)):
                self._refuse(CloseCode.INVALID_DATA, "the text is not UTF-8")
            if self.parser_exc is not None:
                return

    def events_received(self) -> list[Event]:
        events, self._received = self._received, []
        return events

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """A length with its top bit set is malformed (RFC 6455 §5.2); the parser reports it as too large."""
        fault = sys.exc_info()[1]
        if isinstance(fault, PayloadTooBig) and (fault.size or 0) >= _NO_LENGTH:
            code, reason = CloseCode.PROTOCOL_ERROR, "the length of a frame has its top bit set"
        super().fail(code, reason)

    def _refuse(self, code: CloseCode, reason: str) -> None:
        self.fail(code, reason)
        self._received.clear()
        self.parser_exc = ProtocolError(reason)

    def _take(self, frames: int) -> bool:
        now = self._loop.time()
        filled = self._left + (now - self._counted_at) * self._per_second
        self._left, self._counted_at = min(self._burst, filled) - frames, now
        return self._left >= 0

    def _is_utf8(self, frame: Frame) -> bool:
        if frame.opcode not in _DATA:
            return True
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
            self._decoder.reset()
        try:
            if self._is_text:
                self._decoder.decode(frame.data, frame.fin)
        except UnicodeDecodeError:
            return False
        return True


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """The sockets of `/ws`."""

    ping_seconds: float = limits.SOCKET_PING_SECONDS
    silence_seconds: float = limits.SOCKET_SILENCE_SECONDS
    frames_per_second: float = limits.SOCKET_FRAMES_PER_SECOND
    frames_burst: float = limits.SOCKET_FRAMES_BURST
    message_bytes: int = limits.SOCKET_MESSAGE_BYTES

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._running = asyncio.get_running_loop()
        self.conn = BoundedConnection(
            self._running, self.frames_per_second, self.frames_burst, max_size=self.message_bytes
        )
        self._heard_at = self._running.time()
        self._is_pinged = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        WebSocketCount.count += 1
        self._channel = cast(asyncio.Transport, transport)
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app = _with_tls(self.app, tls_extension(tls))

    def connection_lost(self, exc: Exception | None) -> None:
        WebSocketCount.count -= 1
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._channel.get_write_buffer_size() > limits.SOCKET_QUEUE_BYTES:
            self._channel.abort()  # a peer that sends pings and does not read the pongs
            return
        self._heard_at, self._is_pinged = self._running.time(), False
        super().data_received(data)

    async def send(self, message: Any) -> None:
        """uvicorn's `send`, but a close frame does not wait for a peer that reads nothing, and bounds how long it may take."""
        if message["type"] == "websocket.close":
            self._stop_timer()
            self.resume_writing()
            self._timer = self._running.call_later(limits.SOCKET_CLOSE_SECONDS, self._channel.abort)
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._heard_at = self._running.time()
            self._wait()

    # --- Heartbeat -------------------------------------------------------------------------------

    def _wait(self) -> None:
        due = self._heard_at + (self.silence_seconds if self._is_pinged else self.ping_seconds)
        self._timer = self._running.call_at(due, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._running.time()
        if self._channel.is_closing() or self.conn.state is not OPEN:
            return
        if not self._channel.is_reading():  # the application is busy: silence is no fault of the peer
            self._heard_at = now
        silent = now - self._heard_at
        if self._is_pinged and silent >= self.silence_seconds:
            self.conn.fail(IDLE_TIMEOUT_CODE, f"nothing was heard for {self.silence_seconds:g} seconds")
            self._channel.write(b"".join(self.conn.data_to_send()))
            self._channel.close()
            self._timer = self._running.call_later(limits.SOCKET_CLOSE_SECONDS, self._channel.abort)
            return
        if not self._is_pinged and silent >= self.ping_seconds:
            self._is_pinged = True
            self.conn.send_ping(b"")
            self._channel.write(b"".join(self.conn.data_to_send()))
        self._wait()


class AgpWebSocket(BoundedWebSocket):
    """The sockets of `/agent/chat`: larger messages and more frames, since `agp_socket.py` limits each sender."""

    frames_per_second = limits.AGP_FRAMES_PER_SECOND
    frames_burst = limits.AGP_FRAMES_BURST
    message_bytes = limits.AGP_FRAME_BYTES


def _with_tls(app: Any, extension: dict[str, Any]) -> Any:
    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "extensions": {**scope["extensions"], "tls": extension}}, receive, send)

    return call
