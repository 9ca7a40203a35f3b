"""WebSocket frames of a conversation by the short way: whole text frames are read and written here, all others by `websockets`.

Nearly every frame of a conversation is a text that came whole. Such a frame needs no parser that can stop anywhere. Whatever
else comes (controls, fragments, binary frames, lengths that are too long, bits that mean nothing) goes to the library as it
came, frame by frame, so that its rules judge it; so does everything before and after the open state. Both hand over to the
queue of the library, so that the order stays, and its bounds.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from waypost import limits

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform for which the library has no compiled part
    from websockets.utils import apply_mask

_FIN, _MASKED, _OPCODE, _LENGTH = 0x80, 0x80, 0x0F, 0x7F
_WHOLE_TEXT = _FIN | Opcode.TEXT
_TWO, _EIGHT = 126, 127  # bytes of a length that follow
_unpack_two, _unpack_eight = Struct("!H").unpack_from, Struct("!Q").unpack_from
_pack_short, _pack_two, _pack_eight = Struct("!BB").pack, Struct("!BBH").pack, Struct("!BBQ").pack
_END_OF_HEAD = b"\r\n\r\n"
_MASKS = 64  # that are drawn at once


class TextFrames(Connection):
    """What a connection of either side does by the short way."""

    is_server: bool

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_short = self._is_met = self._is_fragmented = False
        self._begun = bytearray()  # of a frame that is not here as a whole
        self._needed = 0
        self._masks, self._mask_at = b"", 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    # --- What comes in ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._is_short or self.protocol.state is not OPEN:
            self._leave(data)
            return
        if not self._begun:
            self._take(data)
            return
        missing = self._needed - len(self._begun)
        if missing <= 0:  # its length is not known yet
            missing = len(data)
        self._begun += data[:missing]
        if len(self._begun) < self._needed:
            return
        begun = bytes(self._begun)
        self._begun.clear()
        self._take(begun)
        if missing >= len(data):
            return
        if self._is_short and self.protocol.state is OPEN:
            self._take(data, missing)
        else:
            self._leave(data[missing:])

    def _leave(self, data: bytes) -> None:
        """To the library, from now on. The short way begins behind the head of the handshake, if that ends what came."""
        if self._begun:
            data = bytes(self._begun) + data
            self._begun.clear()
        self._is_short = False
        super().data_received(data)
        if not self._is_met and (self.request if self.is_server else self.response) is not None:
            self._is_met = True
            self._is_short = data.find(_END_OF_HEAD) == len(data) - len(_END_OF_HEAD)

    def _take(self, data: bytes, at: int = 0) -> None:
        """Every frame that is here as a whole, from there on; the rest waits for more."""
        end, put = len(data), self.recv_messages.put
        masked = _MASKED if self.is_server else 0
        while end - at >= 2:
            first, second = data[at], data[at + 1]
            head, size = _sizes(data, at, second & _LENGTH)
            if size > limits.AGP_FRAME_BYTES:
                break
            begins = at + head + (4 if second & _MASKED else 0)
            ends = begins + size
            if ends > end or not head:
                self._begun += data[at:] if at else data
                self._needed = ends - at if head else 0
                return
            if first == _WHOLE_TEXT and second & _MASKED == masked and not self._is_fragmented:
                text = data[begins:ends]
                put(Frame(Opcode.TEXT, apply_mask(text, data[begins - 4 : begins]) if masked else text))
            else:
                self._pass_on(first, data[at:ends])
                if self.protocol.state is not OPEN:
                    at = ends
                    break
            at = ends
        if at < end:
            if end - at == 1:
                self._begun += data[at:]
                self._needed = 0
            else:
                self._leave(data[at:])

    def _pass_on(self, first: int, frame: bytes) -> None:
        opcode = first & _OPCODE
        if opcode < Opcode.CLOSE:
            self._is_fragmented = not first & _FIN
        super().data_received(frame)

    def find_text(self) -> str | None:
        """The next message, if it is here and came in one frame of text; any other is left to `recv`."""
        messages = self.recv_messages
        queue = messages.frames.queue
        if not queue or messages.get_in_progress:
            return None
        frame = queue[0]
        if not frame.fin or frame.opcode is not Opcode.TEXT:
            return None
        try:
            text = str(frame.data, "utf-8")
        except UnicodeDecodeError:
            return None
        queue.popleft()
        messages.maybe_resume()
        return text

    # --- What goes out ---------------------------------------------------------------------------

    def write_text(self, text: str) -> bool:
        """Whether it could be sent: the connection is open, and the other side takes what it is sent. Frames of one turn of
        the loop leave together, since the system takes longer for a call than for the bytes."""
        if self.protocol.state is not OPEN:
            return False
        if self._unsent_bytes >= limits.SOCKET_UNSENT_BYTES:
            self._write()
        if self.transport.get_write_buffer_size() >= limits.SOCKET_UNSENT_BYTES:
            return False
        if not self._unsent:
            self.loop.call_soon(self._write)
        frame = frame_text(text, None if self.is_server else self._mask())
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        return True

    def _write(self) -> None:
        if self._unsent:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            if not self.transport.is_closing():  # else it is lost, and that is told in a moment
                self.transport.write(data)

    def send_data(self) -> None:
        """Whatever the library sends follows what was written before it."""
        self._write()
        super().send_data()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unsent.clear()
        super().connection_lost(exc)

    def _mask(self) -> bytes:
        """Four bytes that nobody can foresee (RFC 6455 §5.3). The system is asked for many at once."""
        at = self._mask_at
        if at >= len(self._masks):
            self._masks, at = os.urandom(4 * _MASKS), 0
        self._mask_at = at + 4
        return self._masks[at : at + 4]


class ServerFrames(TextFrames, ServerConnection):
    is_server = True


class ClientFrames(TextFrames, ClientConnection):
    is_server = False


def _sizes(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Of the head without its mask, and of what follows; no head when that is not here yet."""
    if length < _TWO:
        return 2, length
    head = 4 if length == _TWO else 10
    if len(data) - at < head:
        return 0, 0
    return head, (_unpack_two if length == _TWO else _unpack_eight)(data, at + 2)[0]


def plain_frame_text(text: str, mask: bytes | None) -> bytes:
    """A whole text in one frame: the twin of the kernel."""
    data = text.encode()
    return _head(len(data), 0) + data if mask is None else _head(len(data), _MASKED) + mask + apply_mask(data, mask)


def _head(size: int, masked: int) -> bytes:
    if size < _TWO:
        return _pack_short(_WHOLE_TEXT, masked | size)
    if size < 1 << 16:
        return _pack_two(_WHOLE_TEXT, masked | _TWO, size)
    return _pack_eight(_WHOLE_TEXT, masked | _EIGHT, size)


try:
    from waypost.compiled.frames import frame_text
except ImportError:
    frame_text = plain_frame_text
