"""The memory of a running service under attack (THREATS E2, E12): what strangers send or hold costs little, and others are
answered meanwhile. Slow readers (E5) are in `test_connections.py`."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from support.raw_http import RawConnection
from support.server import RunningServer, running_server
from waypost import limits
from waypost.app import mint_locally
from waypost.settings import Settings

OTHER_ADDRESS = "127.0.0.2"  # of this machine as well
TRAILERS_BYTES = 10 << 20
BOUND_BYTES = 64 << 20
POLL = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--rate-limit-reads", "0") as running:
        httpx2.get(f"{running.url}/api/v1/agents", headers=running.headers)  # modules that the first request loads
        yield running


def rss(server: RunningServer) -> int:
    return psutil.Process(server.process.pid).memory_info().rss


def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


def ask(server: RunningServer, address: str, sent: bytes = POLL) -> socket.socket:
    """A connection from this address that has sent a request."""
    port = int(server.url.rpartition(":")[2])
    connection = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0))
    connection.sendall(sent)
    return connection


def status_of(connection: socket.socket) -> int:
    with contextlib.closing(connection):
        return int(connection.recv(65536).split()[1])


# --- Trailers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trailer",
    [b"X-1: " + b"x" * 4000 + b"\r\n", b"Authorization: Bearer x\r\n", b"a:\r\n"],
    ids=["of 4 KB", "with a token", "of one letter"],
)
def test_trailers_without_end_cost_no_memory(server: RunningServer, trailer: bytes) -> None:
    before = rss(server)
    part = trailer * (65536 // len(trailer))
    head = b"POST /rtfs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    for _ in range(20):
        with RawConnection(server.url) as attacker:
            attacker.send(head)
            assert attacker.send_until_refused(part, 80 << 20) < 80 << 20
    assert rss(server) - before < TRAILERS_BYTES
    assert status_of(ask(server, OTHER_ADDRESS)) == 200


def test_thousands_of_short_headers_cost_no_memory(server: RunningServer) -> None:
    """On every connection that one address may have, in heads that never end."""
    before = rss(server)
    head = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"%x:\r\n" % number for number in range(2200))
    assert len(head) < limits.HEADER_BYTES
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(ask(server, "127.0.0.1", head))) for _ in range(900)]
        assert rss(server) - before < BOUND_BYTES
        assert {int(connection.recv(65536).split()[1]) for connection in held[-20:]} == {431}
        assert status_of(ask(server, OTHER_ADDRESS)) == 200
        assert rss(server) - before < BOUND_BYTES


# --- Requests without end -------------------------------------------------------------------------


@pytest.mark.parametrize("connections", [1, 300])
def test_requests_without_end_cost_no_memory(server: RunningServer, connections: int) -> None:
    """Sent as fast as the service takes them, whether or not it answers, by clients that read nothing."""
    before = rss(server)
    part = b"GET /.well-known/agent.json HTTP/1.1\r\nHost: x\r\n\r\n" * 4000
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(ask(server, "127.0.0.1", POLL))) for _ in range(connections)]
        for connection in held:
            connection.setblocking(False)
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            for connection in held:
                with contextlib.suppress(OSError):
                    connection.send(part)
            assert rss(server) - before < BOUND_BYTES
            time.sleep(0.02)
        until(lambda: status_of(ask(server, OTHER_ADDRESS)) == 200)
    assert rss(server) - before < BOUND_BYTES


# --- Bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/agent/webhook", "/agent/swarm/s:broadcast"])
def test_long_bodies_of_strangers_cost_little_memory(server: RunningServer, path: str) -> None:
    """Of requests that claim a signature: it covers the body, so it is verified when all of that was received."""
    before = rss(server)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nADP-Signature: x\r\nContent-Length: 2000000\r\n\r\n".encode()
    part = b"x" * 65536
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(ask(server, "127.0.0.1", head))) for _ in range(400)]
        for connection in held:
            connection.setblocking(False)
        sent = [0] * len(held)
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            for index, connection in enumerate(held):
                if sent[index] < 1_900_000:
                    with contextlib.suppress(OSError):
                        sent[index] += connection.send(part)
            assert rss(server) - before < 2 * BOUND_BYTES  # a second copy is in the buffers of connections
            time.sleep(0.02)
        until(lambda: status_of(ask(server, OTHER_ADDRESS)) == 200)


# --- Connections and watchers ---------------------------------------------------------------------


def test_idle_connections_of_one_address_lock_nobody_out(server: RunningServer) -> None:
    before = rss(server)
    with contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(limits.CONNECTIONS_PER_ADDRESS + 200):
            connection = stack.enter_context(contextlib.closing(ask(server, "127.0.0.1")))
            statuses.append(int(connection.recv(65536).split()[1]))
        assert statuses[:1000] == [200] * 1000
        assert statuses[-200:] == [503] * 200
        assert status_of(ask(server, OTHER_ADDRESS)) == 200
        assert rss(server) - before < BOUND_BYTES
    until(lambda: status_of(ask(server, "127.0.0.1")) == 200)


def test_watchers_of_one_address_lock_nobody_out(server: RunningServer) -> None:
    tokens = [_mint(server.data, f"watcher-{number}") for number in range(4)]
    before = rss(server)
    with contextlib.ExitStack() as stack:
        statuses = []
        for number in range(limits.WATCHERS_PER_ADDRESS + 20):
            connection = ask(server, "127.0.0.1", _watch(tokens[number % 4]))
            statuses.append(int(stack.enter_context(contextlib.closing(connection)).recv(65536).split()[1]))
        assert statuses[: limits.WATCHERS_PER_ADDRESS] == [200] * limits.WATCHERS_PER_ADDRESS
        assert set(statuses[limits.WATCHERS_PER_ADDRESS :]) <= {429, 503}
        assert status_of(ask(server, OTHER_ADDRESS, _watch(tokens[0]))) == 200
        assert rss(server) - before < BOUND_BYTES


def test_watchers_of_one_subject_lock_no_other_subject_out(server: RunningServer) -> None:
    greedy, other = (_mint(server.data, subject) for subject in ("greedy", "other"))
    with contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(limits.WATCHERS_PER_SUBJECT + 5):
            connection = ask(server, "127.0.0.1", _watch(greedy))
            statuses.append(int(stack.enter_context(contextlib.closing(connection)).recv(65536).split()[1]))
        assert set(statuses[-5:]) <= {429, 503}
        assert status_of(ask(server, "127.0.0.1", _watch(other))) == 200


def _mint(data: Path, subject: str) -> str:
    return mint_locally(Settings(data=data), subject, ("discover:read",), 3600)[0]


def _watch(token: str) -> bytes:
    return f"GET /api/v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


# --- WebSockets -----------------------------------------------------------------------------------


def test_web_sockets_of_one_subject_lock_no_other_subject_out(server: RunningServer) -> None:
    greedy, other = (_mint(server.data, subject) for subject in ("ws-greedy", "ws-other"))
    before = rss(server)
    with contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(limits.SOCKETS_PER_PRINCIPAL + 5):
            connection = ask(server, "127.0.0.1", _upgrade(server, "/ws", "agent-discovery", greedy))
            statuses.append(int(stack.enter_context(contextlib.closing(connection)).recv(65536).split()[1]))
        assert statuses == [101] * limits.SOCKETS_PER_PRINCIPAL + [429] * 5
        assert status_of(ask(server, "127.0.0.1", _upgrade(server, "/ws", "agent-discovery", other))) == 101
        assert rss(server) - before < BOUND_BYTES


def test_unfinished_conversations_of_one_address_lock_nobody_out(server: RunningServer) -> None:
    """A conversation begins without a credential."""
    with contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(limits.AGP_PENDING_HANDSHAKES + 5):
            connection = ask(server, "127.0.0.1", _upgrade(server, "/agent/chat", "adp-v1"))
            statuses.append(int(stack.enter_context(contextlib.closing(connection)).recv(65536).split()[1]))
        assert statuses == [101] * limits.AGP_PENDING_HANDSHAKES + [429] * 5
        assert status_of(ask(server, OTHER_ADDRESS, _upgrade(server, "/agent/chat", "adp-v1"))) == 101


def _upgrade(server: RunningServer, path: str, subprotocol: str, token: str | None = None) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {server.url.removeprefix('http://')}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Sec-WebSocket-Protocol: {subprotocol}",
        *([f"Authorization: Bearer {token}"] if token is not None else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
