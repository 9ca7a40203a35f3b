"""Bytes of an HTTP connection. The same bytes, cut into different reads, are the same requests, and h11 reads the first one
as we do: otherwise a proxy and the service could disagree where a request ends."""

from __future__ import annotations

import asyncio
import atexit
import logging
import re
from typing import Any, NamedTuple

import h11
from uvicorn.server import ServerState

from waypost import limits
from waypost.server.http.asgi import Receive, Request, Response, Scope, Send
from waypost.server.http.uvicorn_hooks import HttpConfig, HttpProtocol


class SeenRequest(NamedTuple):
    method: str
    target: bytes
    body: bytes


class Connection(asyncio.Transport):
    """A transport in memory that never fills up."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 40_000), "sockname": ("192.0.2.2", 80)})
        self.written = bytearray()
        self._closing = False
        self._protocol: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, parts: Any) -> None:
        self.written += b"".join(parts)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def run_connection(*reads: bytes) -> tuple[list[SeenRequest], bytes]:
    """Return the requests that were received completely, and what was answered."""
    seen: list[SeenRequest] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        request = Request(scope, receive)
        body = await request.body()
        query = scope["query_string"]
        seen.append(SeenRequest(scope["method"], scope["raw_path"] + (b"?" + query if query else b""), body))
        await Response(200, b"{}").send(send)

    config = HttpConfig(app, websockets={})
    config.load()
    transport, protocol = Connection(), HttpProtocol(config=config, server_state=ServerState(), app_state={})
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    try:
        for data in reads:
            if not transport.is_closing():
                protocol.data_received(data)
            await _settle()
    finally:
        protocol.connection_lost(None)
        await _settle()
    return seen, bytes(transport.written)


async def _settle() -> None:
    for _ in range(24):  # more steps than a request and its answer take
        await asyncio.sleep(0)


LOOP = asyncio.new_event_loop()
atexit.register(LOOP.close)
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would log every broken request


def fuzz(data: bytes) -> None:
    if not 2 <= len(data) <= limits.HEADER_BYTES:
        return
    cut, data = 1 + data[0] * (len(data) - 1) // 256, data[1:]
    whole, answers = LOOP.run_until_complete(run_connection(data))
    parts, _ = LOOP.run_until_complete(run_connection(data[:cut], data[cut:]))
    shorter, longer = sorted((whole, parts), key=len)
    assert longer[: len(shorter)] == shorter, (whole, parts)  # a connection may close before the rest arrived
    assert len(re.findall(rb"HTTP/1\.1 [2-5]\d\d [A-Z]", answers)) <= len(whole) + 1  # and one error
    other = _first_request_by_h11(data)
    if whole and other is not None:
        assert (whole[0].method, whole[0].body) == (other.method, other.body), (whole[0], other)


def _first_request_by_h11(data: bytes) -> SeenRequest | None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.HEADER_BYTES)
    connection.receive_data(data)
    method, target, body = "", b"", b""
    try:
        while True:
            match connection.next_event():
                case h11.Request() as request:
                    method, target = request.method.decode(), request.target
                case h11.Data() as part:
                    body += part.data
                case h11.EndOfMessage():
                    return SeenRequest(method, target, body)
                case _:
                    return None
    except h11.RemoteProtocolError:
        return None
