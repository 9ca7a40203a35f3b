"""Connections of a running service: how many one address may have, clients that do not read, and the end of the service."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psutil
import pytest
from websockets.asyncio.client import connect

from support.raw_http import RawConnection, parse_answer
from support.server import RunningServer, running_server, start_server, stop_server
from support.service import profile
from waypost import limits

READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


# --- How many -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningServer]:
    with running_server("--max-connections-per-address", "20") as server:
        yield server


def test_one_connection_beyond_the_limit_is_told_so_and_closed(narrow: RunningServer) -> None:
    """Never by a reset, although the client has sent a request."""
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(RawConnection(narrow.url)) for _ in range(20)]
        kept[-1].send(READY)
        kept[-1].read_until(b"ready")
        for _ in range(3):
            with RawConnection(narrow.url) as beyond:
                beyond.send(READY)
                received = b""
                while part := beyond.socket.recv(65536):  # a reset would raise
                    received += part
                answer = parse_answer(received)
                assert answer.status == 503
                assert int(answer.headers["retry-after"]) > 0
                assert answer.headers["connection"] == "close"
                assert "max_connections_per_address" in answer.problem["hint"]
        kept[0].send(READY)
        kept[0].read_until(b'"ready"')
    until(lambda: _is_ready(narrow))


def _is_ready(server: RunningServer) -> bool:
    with RawConnection(server.url) as connection:
        connection.send(READY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return connection.answer().status == 200


def test_a_trusted_proxy_has_no_limit() -> None:
    with (
        running_server("--max-connections-per-address", "5", "--trusted-proxies", "127.0.0.1") as server,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(30):
            connection = stack.enter_context(RawConnection(server.url))
            connection.send(READY)
            connection.read_until(b'"ready"')


def test_connections_leave_descriptors_for_files() -> None:
    """The first search opens the index, however many connections there are."""
    flags = ("--max-connections-per-address", "100000")
    with running_server(*flags, before=("prlimit", "--nofile=256:256")) as server, contextlib.ExitStack() as stack:
        assert "256 file descriptors" in server.log.read_text()
        asking = stack.enter_context(RawConnection(server.url))
        for _ in range(400):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(RawConnection(server.url))
        time.sleep(1)  # until all of them are accepted or refused: a burst may take the last descriptors for a moment
        body = b'{"query": "anything"}'
        head = f"POST /profile/v1/discover HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin_token}\r\n"
        asking.send(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert asking.answer().status == 200


# --- What they ask --------------------------------------------------------------------------------


def test_a_cached_token_counts_with_the_scheme_bearer_only(narrow: RunningServer) -> None:
    def status(scheme: str) -> int:
        headers = {"Authorization": f"{scheme} {narrow.admin_token}"}
        return httpx2.get(f"{narrow.url}/api/v1/stats", headers=headers).status_code

    assert [status(scheme) for scheme in ("Bearer", "Basic", "Digest", "bearer")] == [200, 401, 401, 200]


def test_a_request_id_does_not_count_requests(narrow: RunningServer) -> None:
    with httpx2.Client(base_url=narrow.url) as client:
        made = [client.get("/healthz").headers["x-request-id"] for _ in range(20)]
    numbers = [int(request_id.rpartition("-")[2], 16) for request_id in made]
    assert len({number >> 16 for number in numbers}) == 20
    assert numbers != sorted(numbers)


def test_broken_requests_do_not_fill_the_log(narrow: RunningServer) -> None:
    started_at = time.monotonic()
    for _ in range(2 * limits.LOGGED_ERRORS_PER_MINUTE):
        with RawConnection(narrow.url) as connection:
            connection.send(b"\xff\xfe\r\n\r\n")
            assert connection.answer().status == 400
    minutes = 1 + (time.monotonic() - started_at) / 60
    lines = narrow.log.read_text().splitlines()
    assert 0 < len(lines) <= limits.LOGGED_ERRORS_PER_MINUTE * minutes + 20  # and what other tests logged


# --- Clients that do not read ---------------------------------------------------------------------


@pytest.mark.long
def test_five_hundred_slow_readers_are_released_and_cost_little_memory() -> None:
    with running_server() as server, httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as admin:
        padding = {"com.example.padding": "x" * 200_000}
        for number in range(40):
            assert admin.post("/api/v1/agents", json=profile(f"large-{number}", **padding)).status_code == 201
        admin.get("/profile/v1/agents?limit=200")
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        slow: list[socket.socket] = []
        try:
            for _ in range(500):
                reader = socket.socket()
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                reader.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
                head = f"GET /profile/v1/agents?limit=200 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin_token}"
                reader.sendall((head + "\r\n\r\n").encode() * 8)
                slow.append(reader)
            assert admin.get("/readyz").status_code == 200
            until(lambda: _is_released(process, before), 25)
        finally:
            for reader in slow:
                reader.close()
        assert admin.get("/profile/v1/agents?limit=1").status_code == 200
        assert "Traceback" not in server.log.read_text()


def _is_released(process: psutil.Process, before: int) -> bool:
    """Whether the slow readers are gone; the memory is within its bound all the time."""
    assert process.memory_info().rss - before < 64 << 20
    return len(process.net_connections(kind="tcp")) < 4


# --- The end --------------------------------------------------------------------------------------


class Load:
    """Requests on kept connections, until the service refuses new ones."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answered = 0
        self.failed = 0
        self.not_ready = 0

    async def run(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                return
            try:
                await self._use(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.failed += 1
                return
            finally:
                writer.close()
            await asyncio.sleep(0.1)

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(READY)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            self.answered += 1
            self.not_ready += b" 503 " in head.split(b"\r\n")[0]
            if b"connection: close" in head:
                return
            await asyncio.sleep(0.1)


async def test_a_stop_signal_loses_no_request_and_closes_websockets(tmp_path: Path) -> None:
    """Twenty kept connections send 200 requests a second."""
    server = start_server(folder=tmp_path)
    try:
        load = Load(int(server.url.rpartition(":")[2]))
        asking = [asyncio.create_task(load.run()) for _ in range(20)]
        address = server.url.replace("http", "ws") + "/ws"
        headers = {"Authorization": f"Bearer {server.admin_token}"}
        async with connect(address, subprotocols=["agent-discovery"], additional_headers=headers) as session:  # type: ignore[list-item]
            await asyncio.sleep(1)
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                await session.wait_closed()
            assert session.close_code == 1001
        async with asyncio.timeout(20):
            await asyncio.gather(*asking)
        assert await asyncio.to_thread(server.process.wait, 20) == 0
        assert load.answered > 100
        assert load.not_ready > 0
        assert load.failed == 0
    finally:
        stop_server(server)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_that_is_not_done_when_the_service_ends_is_told_so(tmp_path: Path, workers: int) -> None:
    """Never 500 or a reset, whichever process has the request, and whichever reads its body."""
    server = start_server("--workers", str(workers), folder=tmp_path)
    try:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(RawConnection(server.url)) for _ in range(16)]
            for number, connection in enumerate(connections):  # so many never end up in one process
                path = ("/api/v1/agents", "/api/v1/agents:batch", "/rtfs", "/profile/v1/discover")[number % 4]
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin_token}\r\n"
                head += "Content-Type: application/json\r\n"
                accept = "Accept: text/html\r\n" if number == 0 else ""
                connection.send(f"{head}{accept}Content-Length: 1000\r\n\r\n{{".encode())
            with RawConnection(server.url) as last:  # earlier requests are being handled now
                last.send(READY)
                last.read_until(b"ready")
            server.process.send_signal(signal.SIGTERM)
            answers = [connection.answer() for connection in connections]
        assert [answer.status for answer in answers] == [503] * 16
        for answer in answers:
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["connection"] == "close"
        assert answers[0].headers["content-type"].startswith("text/html")
        assert "stopping" in answers[1].problem["message"]
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.log.read_text()
    finally:
        stop_server(server)


def test_the_second_stop_signal_ends_the_service_at_once(tmp_path: Path) -> None:
    server = start_server(folder=tmp_path)
    try:
        with RawConnection(server.url) as half:
            head = f"POST /api/v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin_token}"
            half.send(f"{head}\r\nContent-Length: 10\r\n\r\n{{".encode())
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(0.3)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(20)
    finally:
        stop_server(server)
