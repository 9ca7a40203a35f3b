"""Bounds of an HTTP connection below the application: idle time, heads, trailers, upgrades, and errors behind a request."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from uvicorn.server import ServerState

from waypost import limits
from waypost.server.http.admission import AdmissionController, Priority
from waypost.server.http.asgi import App, Receive, Request, Response, Scope, Send
from waypost.server.http.uvicorn_hooks import HttpConfig, HttpProtocol


class Application:
    """Answers with the path, the body and the names of the headers, when its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        await self.gate.wait()
        names = sorted(name.decode() for name, _ in scope["headers"])
        answer = {"path": request.path, "body": body.decode(), "headers": names}
        await Response(200, json.dumps(answer).encode()).send(send)


class HurriedProtocol(HttpProtocol):
    header_seconds = 0.2
    stall_seconds = 0.5


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *parts: bytes) -> None:
        """Each part is received on its own."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0.02)

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            return int(head.split()[1]), await self.reader.readexactly(int(length.partition(b":")[2]))

    async def rest(self) -> bytes:
        """What arrives until the connection is closed."""
        async with asyncio.timeout(20):
            return await self.reader.read()


@asynccontextmanager
async def connected(app: Application | None = None, *, idle_seconds: int = 60) -> AsyncIterator[Connection]:
    config = HttpConfig(app or Application())
    config.timeout_keep_alive = idle_seconds
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: HurriedProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()


def request(start: str = "GET /", *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join((f"{start} HTTP/1.1", "Host: a", *headers, "", "")).encode() + body


# --- Answers --------------------------------------------------------------------------------------


class WritesInMemory(asyncio.Transport):
    """What one call of the transport wrote is one element."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 40_000), "sockname": ("192.0.2.2", 80)})
        self.writes: list[bytes] = []
        self.protocol = asyncio.BaseProtocol()
        self.is_read = True

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.writes.append(data)

    def writelines(self, parts: Iterable[bytes]) -> None:  # type: ignore[override]
        self.writes.append(b"".join(parts))

    def is_closing(self) -> bool:
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def close(self) -> None: ...


def protocol_of(config: HttpConfig, transport: WritesInMemory) -> HttpProtocol:
    config.load()
    protocol = HttpProtocol(config=config, server_state=ServerState(), app_state={})
    transport.protocol = protocol
    protocol.connection_made(transport)
    return protocol


async def writes_of(app: App, wire: bytes) -> list[bytes]:
    """What the protocol writes until it waits for something else."""
    transport = WritesInMemory()
    protocol = protocol_of(HttpConfig(app), transport)
    protocol.data_received(wire)
    for _ in range(20):
        await asyncio.sleep(0)
    written = list(transport.writes)
    protocol.connection_lost(None)
    return written


async def test_an_answer_is_written_at_once() -> None:
    (written,) = await writes_of(Application(), request("GET /short"))
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(written.partition(b"\r\n\r\n")[2])["path"] == "/short"


async def test_the_head_of_a_stream_does_not_wait_for_its_first_part() -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    (written,) = await writes_of(stream, request("GET /stream"))
    assert written.endswith(b"\r\n\r\n")


async def test_an_answer_without_its_body_is_written_as_well() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(200, b"{}").send(send, head=True)

    written = await writes_of(answer, request("HEAD /short") * 2)
    assert b"".join(written).count(b"content-length: 2\r\n") == 2


# --- Time -----------------------------------------------------------------------------------------


async def test_a_silent_connection_is_closed() -> None:
    async with connected(idle_seconds=0) as connection:
        assert await connection.rest() == b""


async def test_a_slow_answer_is_not_idle_time() -> None:
    app = Application()
    app.gate.clear()
    async with connected(app, idle_seconds=1) as connection:
        await connection.send(request("GET /slow"))
        await asyncio.sleep(1.5)
        app.gate.set()
        assert (await connection.answer())[0] == 200
        assert await connection.rest() == b""


async def test_requests_in_time_keep_the_connection() -> None:
    async with connected(idle_seconds=1) as connection:
        for _ in range(4):
            await connection.send(request())
            assert (await connection.answer())[0] == 200
            await asyncio.sleep(0.4)


async def test_half_a_head_is_refused_in_time() -> None:
    async with connected() as connection:
        await connection.send(request()[:10])
        status, body = await connection.answer()
        assert (status, json.loads(body)["path"]) == (408, "headers")
        assert await connection.rest() == b""


async def test_a_head_that_comes_byte_by_byte_is_refused_in_time() -> None:
    """The time is for the whole head, however often a part of it comes."""
    head = request("GET /" + "a" * 200)

    async def send_slowly(connection: Connection) -> None:
        for byte in head:
            await connection.send(bytes((byte,)))
            await asyncio.sleep(0.02)

    async with connected() as connection:
        sending = asyncio.create_task(send_slowly(connection))
        assert (await connection.answer())[0] == 408
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_empty_lines_do_not_keep_a_connection() -> None:
    async with connected() as connection:
        await connection.send(b"\r\n", b"\r\n")
        assert await connection.rest() == b""


# --- Upgrades (THREATS E1) ------------------------------------------------------------------------

SECOND = request("GET /second")
BODIES = {
    "length": ((f"Content-Length: {len(SECOND)}",), SECOND),
    "chunks": (("Transfer-Encoding: chunked",), b"%x\r\n%s\r\n0\r\n\r\n" % (len(SECOND), SECOND)),
}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("protocol", ["h2c", "websocket", "other"])
@pytest.mark.parametrize("body", BODIES)
async def test_a_body_behind_an_upgrade_is_not_the_next_request(method: str, protocol: str, body: str) -> None:
    framing, sent = BODIES[body]
    head = request(f"{method} /first", "Connection: Upgrade", f"Upgrade: {protocol}", *framing)
    for parts in ((head + sent,), (head, sent)):
        async with connected() as connection:
            await connection.send(*parts, request("GET /third"))
            status, answer = await connection.answer()
            assert (status, json.loads(answer)["path"], json.loads(answer)["body"]) == (200, "/first", SECOND.decode())
            assert json.loads((await connection.answer())[1])["path"] == "/third"


@pytest.mark.parametrize("option", ["Upgrade", "Upgrade, close", "keep-alive, Upgrade"])
async def test_an_upgrade_that_is_not_offered_is_ignored(option: str) -> None:
    upgrade = request("GET /first", f"Connection: {option}, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    for parts in ((upgrade + SECOND,), (upgrade, SECOND)):
        async with connected() as connection:
            await connection.send(*parts)
            status, answer = await connection.answer()
            assert (status, json.loads(answer)["path"]) == (200, "/first")
            assert json.loads(answer)["headers"] == ["connection", "host"]
            if "close" in option:
                assert await connection.rest() == b""
            else:
                assert json.loads((await connection.answer())[1])["path"] == "/second"


async def test_the_handshake_of_a_websocket_has_no_body() -> None:
    headers = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    async with connected() as connection:
        await connection.send(request("GET /ws", *headers, f"Content-Length: {len(SECOND)}", body=SECOND))
        status, answer = await connection.answer()
        assert (status, json.loads(answer)["path"]) == (400, "Upgrade")
        assert await connection.rest() == b""


# --- Trailers (THREATS E2) ------------------------------------------------------------------------

CHUNKED = request("POST /", "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n")


async def test_trailers_are_not_headers() -> None:
    async with connected() as connection:
        await connection.send(CHUNKED + b"Authorization: Bearer x\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
        status, answer = await connection.answer()
        assert status == 200
        assert json.loads(answer) == {"path": "/", "body": "{}", "headers": ["host", "transfer-encoding"]}


@pytest.mark.parametrize("trailer", [b"a" * 4096, b"X-A: b\r\n" * 512], ids=["one that is long", "many"])
async def test_trailers_are_bounded(trailer: bytes) -> None:
    async with connected() as connection:
        await connection.send(CHUNKED, b"X-Trailer: ", *[trailer] * (limits.HEADER_BYTES // 4096 + 1))
        assert (await connection.answer())[0] == 431
        assert await connection.rest() == b""


# --- Errors behind a request ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "error"),
    [(b"\xff\xfe\r\n\r\n", 400), (b"GET /half HTTP/1.1\r\nHost:", 408)],
    ids=["no request", "half a head"],
)
async def test_an_error_behind_a_request_does_not_lose_its_answer(garbage: bytes, error: int) -> None:
    app = Application()
    app.gate.clear()
    async with connected(app) as connection:
        await connection.send(request("POST /", "Content-Length: 2", body=b"{}" + garbage))
        await asyncio.sleep(0.5)
        app.gate.set()
        status, answer = await connection.answer()
        assert (status, json.loads(answer)["body"]) == (200, "{}")
        assert (await connection.answer())[0] == error
        assert await connection.rest() == b""


async def test_a_broken_body_of_a_later_request_does_not_lose_earlier_answers() -> None:
    app = Application()
    app.gate.clear()
    async with connected(app) as connection:
        broken = request("POST /third", "Transfer-Encoding: chunked", body=b"zz\r\n")
        await connection.send(request("POST /first", "Content-Length: 2", body=b"{}") + SECOND + broken)
        await asyncio.sleep(0.1)
        app.gate.set()
        for path in ("/first", "/second"):
            status, answer = await connection.answer()
            assert (status, json.loads(answer)["path"]) == (200, path)
        assert (await connection.answer())[0] == 400
        assert await connection.rest() == b""


async def test_a_body_that_breaks_after_its_answer_is_not_answered_again() -> None:
    """The second answer would be taken for that of the next request."""
    async with slow_clients(1, buffer_bytes=65536) as (client,):
        await client.send(request("POST /5", "Transfer-Encoding: chunked"))
        assert await client.answer() == (200, b"xxxxx")
        await client.send(b"zz\r\n" + SECOND)
        assert await client.rest() == b""


async def test_a_refused_request_is_told_so_although_it_is_still_sent() -> None:
    """A connection that is closed with unread data is reset, which takes the answer along."""
    async with connected() as connection:
        await connection.send(b"\xff\xfe\r\n\r\n", *[b"a" * 65536] * 8)
        assert (await connection.answer())[0] == 400


async def test_requests_in_a_row_are_answered_in_their_order() -> None:
    async with connected() as connection:
        await connection.send(b"".join(request(f"GET /{number}") for number in range(50)))
        answers = [json.loads((await connection.answer())[1])["path"] for _ in range(50)]
        assert answers == [f"/{number}" for number in range(50)]


# --- Clients that do not wait for their answers ----------------------------------------------------


async def test_requests_behind_one_that_is_being_answered_are_bounded() -> None:
    """Those that waited are answered; then the client is told why the rest is not."""
    app = Application()
    app.gate.clear()
    many = limits.PIPELINED_BYTES // limits.PIPELINED_REQUEST_BYTES + 100
    async with connected(app) as connection:
        await connection.send(request() * many)
        app.gate.set()
        statuses = []
        while not statuses or statuses[-1] == 200:
            status, body = await connection.answer()
            statuses.append(status)
        assert 1000 < len(statuses) < many
        assert (statuses[-1], json.loads(body)["code"]) == (503, "unavailable")
        assert await connection.rest() == b""


async def test_headers_and_bodies_of_waiting_requests_count() -> None:
    app = Application()
    app.gate.clear()
    config, transport = HttpConfig(app), WritesInMemory()
    protocol = protocol_of(config, transport)
    protocol.data_received(request())
    protocol.data_received(request("GET /", *(f"X-{number}: 1" for number in range(99))))
    assert config.table.waiting_bytes == limits.PIPELINED_REQUEST_BYTES + 100 * limits.PIPELINED_HEADER_BYTES
    before = config.table.waiting_bytes
    protocol.data_received(request("POST /", "Content-Length: 5000", body=b"x" * 5000))
    assert config.table.waiting_bytes - before > 5000
    protocol.connection_lost(None)
    assert config.table.waiting_bytes == 0


async def test_nothing_is_read_until_waiting_requests_were_answered() -> None:
    app = Application()
    app.gate.clear()
    config, transport = HttpConfig(app), WritesInMemory()
    protocol = protocol_of(config, transport)
    protocol.data_received(request() * 3)
    read = []
    app.gate.set()
    while len(transport.writes) < 3:
        await asyncio.sleep(0)
        read.append((len(transport.writes), transport.is_read))
    assert (1, False) in read
    assert (1, True) not in read, "one was answered, one is being answered, one waits"
    assert transport.is_read
    assert config.table.waiting_bytes == 0
    protocol.connection_lost(None)


class AlwaysFull(AdmissionController):
    def admit(self, priority: Priority) -> float | None:
        return None


class UnreadWrites(WritesInMemory):
    """Nobody reads what is written to it."""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        super().write(data)
        if sum(map(len, self.writes)) > limits.BUFFERED_BYTES and isinstance(self.protocol, HttpProtocol):
            self.protocol.pause_writing()


async def test_refusals_that_nobody_reads_are_bounded() -> None:
    transport = UnreadWrites()
    protocol = protocol_of(HttpConfig(Application(), admission=AlwaysFull()), transport)
    for _ in range(20):
        protocol.data_received(request() * 500)
    assert sum(map(len, transport.writes)) < 2 * limits.BUFFERED_BYTES
    assert b"".join(transport.writes).count(b"connection: close") == 1
    protocol.connection_lost(None)


async def test_refusals_of_requests_in_a_row_start_one_idle_timeout() -> None:
    """A timer for each took more memory than the requests, until the loop had its next round."""
    transport = WritesInMemory()
    protocol = protocol_of(HttpConfig(Application(), admission=AlwaysFull()), transport)
    protocol.data_received(request() * 100)
    assert len(transport.writes) == 100
    assert protocol.server_state.total_requests == 1  # uvicorn starts the timeout where it counts
    assert protocol.timeout_keep_alive_task is not None
    protocol.connection_lost(None)


# --- Clients that do not read (THREATS E5) ---------------------------------------------------------


class LongAnswers:
    """Every answer has the size that the path names."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(200, b"x" * int(scope["path"][1:])).send(send)


@asynccontextmanager
async def slow_clients(count: int, *, buffer_bytes: int = 4096) -> AsyncIterator[list[Connection]]:
    """Clients with small buffers."""
    config = HttpConfig(LongAnswers())
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: HurriedProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    clients: list[Connection] = []
    async with server:
        for _ in range(count):
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, server.sockets[0].getsockname())
            clients.append(Connection(*await asyncio.open_connection(sock=raw, limit=buffer_bytes)))
        try:
            yield clients
        finally:
            for client in clients:
                client.writer.close()


LONG = 16 * limits.MIB  # more than the buffers of the system take


async def test_a_client_that_reads_nothing_is_released() -> None:
    async with slow_clients(1) as (client,):
        await client.send(request(f"GET /{LONG}") * 4)
        await asyncio.sleep(HurriedProtocol.stall_seconds * 3)
        with pytest.raises((ConnectionError, AssertionError)):
            assert len(await client.rest()) >= LONG


async def test_a_client_that_reads_slowly_gets_the_whole_answer() -> None:
    """It takes longer than a stall may."""
    async with slow_clients(1, buffer_bytes=65536) as (client,):
        await client.send(request(f"GET /{LONG}"))
        await client.reader.readuntil(b"\r\n\r\n")
        left = LONG
        while left:
            part = await client.reader.read(65536)
            assert part
            left -= len(part)
            await asyncio.sleep(0.004)


async def test_long_answers_are_refused_while_others_are_not_read() -> None:
    async with slow_clients(6) as clients:
        for client in clients:
            await client.send(request(f"GET /{LONG}"))
        heads = [await client.reader.readuntil(b"\r\n\r\n") for client in clients]
        statuses = [int(head.split()[1]) for head in heads]
        assert statuses == [200, 503, 503, 503, 503, 503]  # UNREAD_BYTES are one of them
        assert all(b"retry-after:" in head for head in heads[1:])
        await clients[2].rest()
        await asyncio.sleep(HurriedProtocol.stall_seconds * 3)
