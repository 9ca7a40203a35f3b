"""One WebSocket connection below its messages: bounds that hold whatever the frames carry (THREATS W3, W5, W6, W8).

uvicorn and `websockets` read the frames; this adds how many there may be, that silence ends, and that a close frame goes out
even when nobody reads. It knows no path, no credential and no message.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState, PayloadTooBig
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Request

from waypost import limits
from waypost.server.socket_protocols import OpenSockets
from waypost.server.tls import tls_extension

_log = logging.getLogger("waypost.frames")
_log.setLevel(logging.WARNING)  # below it every path would be told with its query

NOT_A_FRAME = 1002
NOT_UTF8 = 1007
FLOOD = 1008
SILENT = 4408
_NO_LENGTH = 1 << 63


class SocketProtocol(WebSocketsSansIOProtocol):
    ping_seconds: float = limits.SOCKET_PING_SECONDS
    silence_seconds: float = limits.SOCKET_SILENCE_SECONDS
    frames_per_second: float = limits.SOCKET_FRAMES_PER_SECOND
    frames_burst: float = limits.SOCKET_FRAMES_BURST
    message_bytes: int = limits.SOCKET_MESSAGE_BYTES

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = self.conn.logger = _log
        self._heard_at = self._counted_at = self.loop.time()
        self._pinged = False
        self._left = float(self.frames_burst)
        self.conn.max_message_size = self.message_bytes
        self._beat: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        tls = self.transport.get_extra_info("ssl_object")
        if tls is not None and hasattr(self, "scope"):  # a handshake that is none has no scope
            extensions: dict[Any, Any] = tls_extension(tls)
            self.scope["extensions"]["tls"] = extensions

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        OpenSockets.count += 1
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        OpenSockets.count -= 1
        super().connection_lost(exc)

    # --- What comes in ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.get_write_buffer_size() > limits.SOCKET_QUEUE_BYTES:
            self.transport.abort()  # somebody who asks for pongs and never reads them
            return
        for start in range(0, len(data), limits.SOCKET_SLICE_BYTES):
            if self.transport.is_closing() or self.conn.parser_exc is not None:
                return
            super().data_received(data[start : start + limits.SOCKET_SLICE_BYTES])

    def handle_events(self) -> None:
        frames = sum(isinstance(event, Frame) for event in self.conn.events)
        if frames:
            self._heard_at, self._pinged = self.loop.time(), False
            if not self.close_sent and not self._take(frames):
                self.conn.events_received()
                self.end(FLOOD, f"more than {self.frames_per_second:g} frames a second")
                return
        super().handle_events()

    def _take(self, frames: int) -> bool:
        now = self.loop.time()
        filled = self._left + (now - self._counted_at) * self.frames_per_second
        self._left, self._counted_at = min(float(self.frames_burst), filled) - frames, now
        return self._left >= 0

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            self.end(NOT_UTF8, "the text is not UTF-8")
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """A length with its top bit set is no length (RFC 6455 §5.2); the parser takes it for a very large one."""
        fault = self.conn.parser_exc
        if isinstance(fault, PayloadTooBig) and (fault.size or 0) >= _NO_LENGTH:
            self.conn.data_to_send()
            told = Frame(Opcode.CLOSE, Close(NOT_A_FRAME, "the length of a frame has its top bit set").serialize())
            self.transport.write(told.serialize(mask=False))
        super().handle_parser_exception()

    # --- The heartbeat ---------------------------------------------------------------------------

    def start_keepalive(self) -> None:
        self._heard_at = self.loop.time()
        self._listen()

    def stop_keepalive(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _listen(self) -> None:
        due = self._heard_at + (self.silence_seconds if self._pinged else self.ping_seconds)
        self._beat = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        now = self.loop.time()
        if self.close_sent or self.transport.is_closing():
            return
        if self.read_paused:  # it is we who do not listen
            self._heard_at = now
        silent = now - self._heard_at
        if self._pinged and silent >= self.silence_seconds:
            self.end(SILENT, f"nothing was heard for {self.silence_seconds:g} seconds")
            return
        if not self._pinged and silent >= self.ping_seconds:
            self._pinged = True
            self.conn.send_ping(b"")
            self.transport.write(b"".join(self.conn.data_to_send()))
        self._listen()

    # --- The end ---------------------------------------------------------------------------------

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.close" and self.handshake_complete:
            self.end(message.get("code", 1000), message.get("reason") or "")
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # answered, by a refusal: uvicorn would write an error for each one

    def end(self, code: int, reason: str) -> None:
        """Close with a word, also when the other side takes nothing: then it is cut off a little later."""
        if self.close_sent or self.transport.is_closing():
            return
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        try:
            self.conn.send_close(code, reason)
        except InvalidState:  # the other side was first
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(limits.SOCKET_CLOSE_SECONDS, self.transport.abort)


class ConversationProtocol(SocketProtocol):
    """The frames of `/agent/chat`: larger ones, and more, since they are told apart by who sends them (`agp_socket.py`)."""

    frames_per_second = limits.AGP_FRAMES_PER_SECOND
    frames_burst = limits.AGP_FRAMES_BURST
    message_bytes = limits.AGP_FRAME_BYTES


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
