"""WebSocket clients for tests: raw frames, and sessions of the announce protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from support.service import Bench, service
from waypost.server.api.announce.websocket import AnnounceWebSocket
from waypost.server.http.server import HttpServer, bind_socket
from waypost.server.http.uvicorn_hooks import WebSocketProtocol

ANSWER_SECONDS = 60.0
OPCODE_CLOSE, OPCODE_PING, OPCODE_PONG, OPCODE_BINARY = 8, 9, 10, 2


# --- Raw ------------------------------------------------------------------------------------------


@dataclass
class RawFrame:
    opcode: int
    data: bytes

    @property
    def close_code(self) -> int:
        assert self.opcode == OPCODE_CLOSE, self
        return int(struct.unpack(">H", self.data[:2])[0])


class RawSocket:
    """A manual handshake, then raw bytes."""

    def __init__(self, url: str, headers: Mapping[str, str | None], path: str = "/ws") -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=ANSWER_SECONDS)
        told: dict[str, str | None] = {
            "Host": parts.netloc,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(b"sixteen bytes...").decode(),
            "Sec-WebSocket-Protocol": "agent-discovery",
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value is not None)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        self._buffer = b""
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def message(self, data: bytes) -> None:
        """One masked binary frame."""
        length = bytes((0x80 | len(data),)) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.send(b"\x82" + length + bytes(4) + data)

    def frame(self) -> RawFrame | None:
        """The next frame; None when the connection is closed."""
        head = self._bytes(2)
        if head is None:
            return None
        size = head[1] & 0x7F
        if size == 126:
            size = struct.unpack(">H", self._bytes(2) or b"\0\0")[0]
        elif size == 127:
            size = struct.unpack(">Q", self._bytes(8) or bytes(8))[0]
        return RawFrame(head[0] & 0x0F, (self._bytes(size) or b"") if size else b"")

    def status_message(self) -> dict[str, Any]:
        frame = self.frame()
        assert frame is not None
        assert (frame.opcode, frame.data[0]) == (OPCODE_BINARY, 4), frame
        value: dict[str, Any] = json.loads(frame.data[1:])
        return value

    def body(self) -> dict[str, Any]:
        """The status of a refused handshake."""
        value: dict[str, Any] = json.loads(self._bytes(int(self.headers["content-length"])) or b"{}")
        return value

    def _bytes(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            try:
                got = self.socket.recv(65536)
            except ConnectionResetError:
                got = b""
            if not got:
                return None
            self._buffer += got
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            got = self.socket.recv(65536)
            assert got, f"the connection was closed after {self._buffer!r}"
            self._buffer += got
        found, _, self._buffer = self._buffer.partition(end)
        return found


# --- Sessions -------------------------------------------------------------------------------------


class Session:
    """Frames of the announce protocol over a real WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: int, message: Mapping[str, Any]) -> None:
        await self.connection.send(bytes((kind,)) + json.dumps(message).encode())

    async def next(self, seconds: float = ANSWER_SECONDS) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(seconds):
            data = await self.connection.recv()
        assert isinstance(data, bytes)
        return data[0], json.loads(data[1:])

    async def status(self) -> dict[str, Any]:
        kind, message = await self.next()
        assert kind == 4, message
        return message

    async def announce(self, message: Mapping[str, Any], ttl: int = 120) -> dict[str, Any]:
        await self.send(1, {**message, "ttl": ttl})
        return await self.status()

    async def query(self, capability: str = "*", **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The responses and the final STATUS."""
        await self.send(2, {"protocol_version": "v1.0", "query": {"capability": capability}, **more})
        answers: list[dict[str, Any]] = []
        while True:
            kind, message = await self.next()
            if kind == 4:
                return answers, message
            answers.append(message)

    async def subscribe(self, capability: str = "*", **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return await self.query(capability, subscribe=True, **more)

    async def closed(self, seconds: float = ANSWER_SECONDS) -> tuple[int | None, str | None]:
        """The close code and reason, once the other side has closed."""
        async with asyncio.timeout(seconds):
            await self.connection.wait_closed()
        return self.connection.close_code, self.connection.close_reason


@dataclass
class SocketBench:
    """A service in this process, on a real socket and a manual clock."""

    bench: Bench
    sockets: AnnounceWebSocket
    url: str
    opened: list[ClientConnection] = field(default_factory=list)

    async def session(self, subject: str = "alice", *scopes: str, token: str | None = None, **more: Any) -> Session:
        return await self.session_with(token or self.bench.token(subject, *scopes), **more)

    async def session_with(self, token: str | None, **more: Any) -> Session:
        connection = await open_session(self.url, token, **more)
        self.opened.append(connection)
        return Session(connection)


async def open_session(url: str, token: str | None, **more: Any) -> ClientConnection:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return await connect(
        url.replace("http", "ws", 1) + "/ws",
        subprotocols=[Subprotocol("agent-discovery")],
        additional_headers={**headers, **more.pop("headers", {})},
        compression=None,
        proxy=None,
        **more,
    )


@asynccontextmanager
async def socket_service(
    data: Path,
    *,
    protocol: type[WebSocketProtocol] = WebSocketProtocol,
    recheck_seconds: float | None = None,
    stall_seconds: float | None = None,
    **settings: Any,
) -> AsyncIterator[SocketBench]:
    bound = bind_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    async with service(data, **{"trust_mode": "tofu", "port": port, **settings}) as bench:
        sockets = bench.application.app.websockets["/ws"]
        assert isinstance(sockets, AnnounceWebSocket)
        for name, value in (("recheck_seconds", recheck_seconds), ("stall_seconds", stall_seconds)):
            if value is not None:
                setattr(sockets, name, value)
        started = asyncio.Event()
        server = HttpServer(
            bench.application.app,
            on_start=started.set,
            on_exit=bench.application.make_exit_handler(),
            signals=(),
            websockets={b"/ws": protocol},
        )
        serving = asyncio.ensure_future(server.serve(sockets=[bound]))
        await started.wait()
        made = SocketBench(bench, sockets, bench.application.base_url)
        try:
            yield made
        finally:
            for connection in made.opened:
                await connection.close()
            bench.application.make_exit_handler()()
            server.should_exit = True
            await serving
