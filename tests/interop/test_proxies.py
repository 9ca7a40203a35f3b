"""Two callers behind one proxy that reuses its connection to the service: no caller receives the other's answer, and no body
becomes a request (THREATS E1). nginx and HAProxy run the configurations of `deploy/`."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from bench.http_servers import running
from websockets.sync.client import connect

from support.http_corpus import Case, corpus
from support.proxies import haproxy, nginx, plain_proxy
from support.recorder import read_record
from support.server import RunningServer, running_server
from support.service import profile
from waypost.app import mint_locally
from waypost.settings import Settings

SECONDS = 30.0
ATTACKS = [case for case in corpus() if len(case.requests) <= 1 and not case.is_slow]
SINGLE = [case for case in ATTACKS if len(case.requests) == 1]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--trusted-proxies", "127.0.0.1", "--rate-limit-reads", "0") as running:
        token = mint(running, "alice")
        answer = httpx2.post(
            f"{running.url}/api/v1/agents",
            json=profile("alice-private", description="Alice's secret."),
            headers={"Authorization": f"Bearer {token}", "Waypost-Visibility": "private"},
        )
        assert answer.status_code == 201
        yield running


def mint(server: RunningServer, subject: str) -> str:
    scopes = ("discover:read", "discover:write")
    return mint_locally(Settings(data=server.data), subject, scopes, 3600)[0]


def port_of(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])


def get_private(token: str, request_id: str) -> bytes:
    lines = [
        "GET /api/v1/agents/alice-private HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {token}",
        f"X-Request-Id: {request_id}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def with_token(case: Case, token: str) -> bytes:
    """The attack, sent by a caller with a token of its own."""
    token_header = f"Host: x\r\nAuthorization: Bearer {token}\r\n".encode()
    return case.sent.replace(b"/first", b"/healthz").replace(b"Host: x\r\n", token_header, 1)


def check_victim(response: bytes, request_id: str, case: Case) -> None:
    """The victim received its own document under its own request id."""
    head, _, body = response.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], (case.name, response[:300])
    assert f"x-request-id: {request_id}".encode() in head.lower(), (case.name, response[:300])
    assert b"Alice's secret." in body, case.name


def read_response(connection: socket.socket) -> bytes:
    """One response with a Content-Length, or what arrives until the end."""
    received = b""
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if end and length is not None and len(body) >= int(length[1]):
            return received
        try:
            part = connection.recv(65536)
        except (ConnectionError, TimeoutError):
            return received
        if not part:
            return received
        received += part


# --- A plain proxy --------------------------------------------------------------------------------


@pytest.fixture
def plain(server: RunningServer) -> Iterator[Callable[[bytes], bytes]]:
    """Sends one message through the plain proxy, on a connection of its own."""
    with plain_proxy(port_of(server)) as port:
        yield partial(exchange_plainly, port)


def exchange_plainly(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(len(sent).to_bytes(8, "big") + sent)
        size = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
        return connection.recv(size, socket.MSG_WAITALL) if size else b""


def test_behind_a_plain_proxy_nobody_receives_the_answer_of_another(
    server: RunningServer, plain: Callable[[bytes], bytes]
) -> None:
    alice, mallory = mint(server, "alice"), mint(server, "mallory")
    for case in ATTACKS:
        attack = plain(with_token(case, mallory))
        assert b"Alice's secret." not in attack, case.name
        request_id = secrets.token_hex(8)
        check_victim(plain(get_private(alice, request_id)), request_id, case)
        again = plain(get_private(mallory, "mallory"))
        assert b" 404 " in again.split(b"\r\n")[0], (case.name, again[:300])
        assert b"x-request-id: mallory" in again, case.name


# --- nginx and HAProxy ----------------------------------------------------------------------------

PROXIES = {"nginx": nginx, "haproxy": haproxy}


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest, server: RunningServer, tmp_path: Path) -> Iterator[int]:
    with PROXIES[request.param](tmp_path, port_of(server)) as port:
        yield port


def exchange(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.settimeout(3.0)
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        return read_response(connection)


def test_behind_a_real_proxy_nobody_receives_the_answer_of_another(server: RunningServer, proxy: int) -> None:
    alice, mallory = mint(server, "alice"), mint(server, "mallory")
    with socket.create_connection(("127.0.0.1", proxy), SECONDS) as victim:
        for case in ATTACKS:
            attack = exchange(proxy, with_token(case, mallory))
            assert b"Alice's secret." not in attack, case.name
            request_id = secrets.token_hex(8)
            victim.sendall(get_private(alice, request_id))
            check_victim(read_response(victim), request_id, case)


@pytest.mark.parametrize("name", [*PROXIES, "plain"])
def test_no_body_becomes_a_request(tmp_path: Path, name: str) -> None:
    """What the application receives behind each proxy is the request that was sent, with its body. nginx and HAProxy read some
    malformed messages as two requests, and pass on both: they get the messages that are one request."""
    with running("waypost", tmp_path) as upstream:
        if name == "plain":
            with plain_proxy(upstream) as port:
                for case in ATTACKS:
                    exchange_plainly(port, case.sent)
        else:
            with PROXIES[name](tmp_path, upstream) as port:
                for case in SINGLE:
                    exchange(port, case.sent)
    seen = [request for requests in read_record(tmp_path / "record.jsonl").values() for request in requests]
    assert len([request for request in seen if request.path != "/ready"]) > 20
    assert not [request for request in seen if "smuggled" in request.path]


def test_a_proxy_passes_on_events_as_they_happen(server: RunningServer, proxy: int) -> None:
    headers = {"Authorization": f"Bearer {mint(server, 'alice')}"}
    with socket.create_connection(("127.0.0.1", proxy), SECONDS) as watcher:
        lines = ["GET /api/v1/watch HTTP/1.1", "Host: x", f"Authorization: {headers['Authorization']}", "", ""]
        watcher.sendall("\r\n".join(lines).encode())
        received = b""
        while b"watching" not in received:
            received += watcher.recv(65536)
        direct = httpx2.post(f"{server.url}/api/v1/agents", json=profile(f"seen-{proxy}"), headers=headers)
        assert direct.status_code == 201
        while f"seen-{proxy}".encode() not in received:
            part = watcher.recv(65536)
            assert part
            received += part


def test_a_proxy_passes_on_websockets(server: RunningServer, proxy: int) -> None:
    with connect(
        f"ws://127.0.0.1:{proxy}/ws",
        subprotocols=["agent-discovery"],  # type: ignore[list-item]
        additional_headers={"Authorization": f"Bearer {mint(server, 'alice')}"},
        open_timeout=SECONDS,
    ) as session:
        assert session.subprotocol == "agent-discovery"


def test_the_forwarded_address_is_that_of_the_client(server: RunningServer, proxy: int) -> None:
    """What the client itself says is replaced."""
    headers = {"Authorization": f"Bearer {mint(server, 'alice')}", "X-Forwarded-For": "203.0.113.9"}
    url = f"http://127.0.0.1:{proxy}/api/v1/agents"
    assert httpx2.post(url, json=profile(f"forwarded-{proxy}"), headers=headers).status_code == 201
    trail: dict[str, Any] = httpx2.get(f"{server.url}/api/v1/audit?limit=1000", headers=server.headers).json()
    assert "203.0.113.9" not in json.dumps(trail)


def test_a_body_beyond_the_bound_is_refused_by_the_proxy(proxy: int) -> None:
    sent = b"POST /api/v1/agents:batch HTTP/1.1\r\nHost: x\r\nContent-Length: 67108865\r\n\r\n"
    assert b" 413 " in exchange(proxy, sent).split(b"\r\n")[0]
