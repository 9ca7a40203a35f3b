"""Text frames by the short way: what arrives is what the library alone would hand over, wherever the bytes are cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from waypost import limits
from waypost.client.text_frames import ClientFrames, ServerFrames, TextFrames

WAIT_SECONDS = 60.0
T, B, C, PING, PONG, CLOSE = Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG, Opcode.CLOSE


def frame(opcode: Opcode, data: bytes = b"", fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def head(first: int, *more: int) -> bytes:
    return bytes((first, *more))


def long_head(size: int) -> bytes:
    return head(0x81, 0xFF) + size.to_bytes(8, "big") + b"mask"


CUT_OFF = "an end without a word"
BYE = frame(CLOSE, b"\x03\xe8bye")
STREAMS: dict[str, Sequence[bytes]] = {
    "texts": (
        frame(T, b"one"),
        frame(T),
        frame(T, "zwölf 😀".encode()),
        frame(T, b"x" * 125),
        frame(T, b"y" * 126),
        BYE,
    ),
    "long texts": (frame(T, b"x" * 65_535), frame(T, b"y" * 65_536), frame(T, b"z"), BYE),
    "pings between": (frame(T, b"a"), frame(PING, b"p"), frame(T, b"b"), frame(PONG, b"q"), frame(T, b"c"), BYE),
    "fragments": (
        frame(T, b"a"),
        frame(T, b"b", False),
        frame(PING),
        frame(C, b"c", False),
        frame(C, b"d"),
        frame(T, b"e"),
        BYE,
    ),
    "half a character": (frame(T, b"\xc3", False), frame(C, b"\xa9"), frame(T, b"e"), BYE),
    "binary": (frame(T, b"a"), frame(B, b"b"), frame(T, b"c"), BYE),
    "a text in a text": (frame(T, b"a", False), frame(T, b"b"), frame(T, b"c")),
    "a continuation of nothing": (frame(T, b"a"), frame(C, b"b"), frame(T, b"c")),
    "no UTF-8": (frame(T, b"a"), frame(T, b"\xff\xfe"), frame(T, b"c")),
    "no mask": (frame(T, b"a"), Frame(T, b"b").serialize(mask=False), frame(T, b"c")),
    "a bit that means nothing": (frame(T, b"a"), head(0xC1, 0x80) + b"mask", frame(T, b"c")),
    "an opcode that is none": (frame(T, b"a"), head(0x83, 0x80) + b"mask", frame(T, b"c")),
    "a long ping": (frame(T, b"a"), head(0x89, 0xFE, 0, 126) + b"mask" + b"x" * 126, frame(T, b"c")),
    "a ping in parts": (frame(T, b"a"), head(0x09, 0x80) + b"mask", frame(T, b"c")),
    "longer than it may be": (frame(T, b"a"), long_head(limits.AGP_FRAME_BYTES + 1), b"x" * 100),
    "longer than anything": (frame(T, b"a"), long_head(1 << 63), b"x" * 100),
    "after the end": (frame(T, b"a"), BYE, frame(T, b"b")),
    CUT_OFF: (frame(T, b"a"), frame(T, b"b")[:5]),
}


async def heard(connection: Connection, by_hand: bool) -> list[Any]:
    """All messages, then how it ended."""
    found: list[Any] = []
    try:
        while True:
            text = connection.find_text() if by_hand and isinstance(connection, TextFrames) else None
            found.append(text if text is not None else await connection.recv())
    except ConnectionClosed as error:
        sent, received = error.sent, error.rcvd
        return [*found, sent and (sent.code, sent.reason), received and (received.code, received.reason)]


class Ears:
    """A server that tells what each connection heard."""

    def __init__(self, create: type[ServerConnection]) -> None:
        self.heard: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._create = create
        self._server: Server | None = None

    async def _hear(self, connection: ServerConnection) -> None:
        self.heard.put_nowait(await heard(connection, by_hand=True))

    async def port(self) -> int:
        self._server = await serve(
            self._hear,
            "127.0.0.1",
            0,
            compression=None,
            max_size=limits.AGP_FRAME_BYTES,
            create_connection=self._create,
        )
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


async def tell(port: int, chunks: Sequence[bytes], *, cut_off: bool) -> None:
    """A handshake, the bytes as they are cut, and the end: ours, or that of the other side, which has heard enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}/"))
    protocol.send_request(protocol.connect())
    writer.write(b"".join(protocol.data_to_send()))
    await reader.readuntil(b"\r\n\r\n")
    for chunk in chunks:
        writer.write(chunk)
        await writer.drain()
        await asyncio.sleep(0)
    if cut_off:
        writer.write_eof()
    while await reader.read(65_536):
        pass
    writer.close()


def cuts(data: bytes) -> list[Sequence[bytes]]:
    """As a whole, byte by byte (what is short), and at places that chance chose once."""
    chance = random.Random(7)
    ways: list[Sequence[bytes]] = [(data,)]
    if len(data) < 2000:
        ways.append([data[at : at + 1] for at in range(len(data))])
    for _ in range(3):
        at = sorted(chance.randrange(len(data)) for _ in range(6))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways


@pytest.mark.parametrize("name", STREAMS)
async def test_what_is_heard_is_what_the_library_alone_hears(name: str) -> None:
    ears = {create: Ears(create) for create in (ServerConnection, ServerFrames)}
    told: dict[type, list[list[Any]]] = {create: [] for create in ears}
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            for create, server in ears.items():
                port = await server.port()
                for chunks in cuts(b"".join(STREAMS[name])):
                    await tell(port, chunks, cut_off=name == CUT_OFF)
                    told[create].append(await server.heard.get())
    finally:
        for server in ears.values():
            await server.close()
    assert told[ServerFrames] == told[ServerConnection]
    assert told[ServerFrames][0][0] in ("a", "one", "é", "x" * 65_535) or name == "a text in a text"


async def test_what_is_written_in_one_turn_arrives_in_its_order_and_before_the_end() -> None:
    texts = ["one", "zwölf 😀", "x" * 200, "y" * 20_000, "last"]
    came: asyncio.Queue[list[Any]] = asyncio.Queue()

    async def say(connection: ServerConnection) -> None:
        assert isinstance(connection, ServerFrames)
        assert all(connection.write_text(text) for text in texts)
        came.put_nowait(await heard(connection, by_hand=True))

    async with asyncio.timeout(WAIT_SECONDS):
        async with serve(say, "127.0.0.1", 0, compression=None, create_connection=ServerFrames) as server:
            port = int(next(iter(server.sockets)).getsockname()[1])
            async with connect(
                f"ws://127.0.0.1:{port}", compression=None, create_connection=ClientFrames
            ) as connection:
                assert isinstance(connection, ClientFrames)
                assert [await connection.recv() for _ in texts] == texts
                assert all(connection.write_text(text) for text in texts)
                await connection.close(1000, "bye")
                assert not connection.write_text("too late")
            assert await came.get() == [*texts, (1000, "bye"), (1000, "bye")]
