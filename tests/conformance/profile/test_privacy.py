"""Queries are not stored or logged."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from support.certificates import Authority
from support.files import content
from support.server import RunningServer, running_server
from support.service import profile

SECRET = "qxzvkjw"  # in every query below and nowhere else
RPC = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover"}


def _ask(server: RunningServer) -> list[int]:
    """Send the word as a valid and as an invalid query to every API."""
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
        answers = [
            http.post("/profile/v1/discover", json={"query": f"translate {SECRET}", "include_evidence": True}),
            http.post("/profile/v1/discover", json={"query": f"translate {SECRET}", "limit": "many"}),
            http.post("/profile/v1/discover", content=f'{{"query": "{SECRET}"'.encode()),
            http.get("/api/v1/agents", params={"tag": SECRET}),
            http.get("/api/v1/facets", params={"tag": SECRET}),
            http.get("/.well-known/agentframework/v1/agents", params={"q": SECRET}),
            http.get("/.well-known/agentframework/v1/agents", params={"q": SECRET, "limit": "x"}),
            http.post("/rtfs", json={**RPC, "params": {"query": {"text": SECRET}}}),
            http.post("/rtfs", json={**RPC, "params": {"query": SECRET}}),
            http.get(f"/api/v1/agents/{SECRET}"),
            http.get(f"/nowhere/{SECRET}?q={SECRET}"),
        ]
        return [answer.status_code for answer in answers]


def _traces(server: RunningServer) -> list[Path]:
    """Files of the service, including its log, that contain the word."""
    files = [server.log, *(path for path in server.data.rglob("*") if path.is_file())]
    return [path for path in files if SECRET.encode() in content(path)]


@pytest.mark.req("PRO-61", "PRO-63")
@pytest.mark.parametrize(
    "flags",
    [(), ("--workers", "2"), ("--access-log", "--log-level", "debug")],
    ids=["one process", "several", "logging all"],
)
def test_no_query_is_written_anywhere(flags: tuple[str, ...], tmp_path: Path) -> None:
    with running_server(*flags, data=tmp_path / "data") as server:
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
            assert http.post("/api/v1/agents", json=profile("urn:agent:1")).status_code == 201
        statuses = _ask(server)
        assert all(status < 500 for status in statuses)
        assert statuses.count(200) >= 5
        assert _traces(server) == []
        server.process.terminate()
        server.process.wait(60)
        assert _traces(server) == []


@contextmanager
def _wire(server: RunningServer) -> Iterator[tuple[int, list[bytes]]]:
    """A proxy between client and service that records the traffic: its port and the recorded bytes."""
    address = urlsplit(server.url)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def pump(source: socket.socket, sink: socket.socket) -> None:
            while data := source.recv(65536):
                heard.append(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

        def serve() -> None:
            near, _ = listening.accept()
            with near, socket.create_connection((address.hostname, address.port), timeout=60) as far:
                back = threading.Thread(target=pump, args=(far, near))
                back.start()
                pump(near, far)
                back.join(60)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], heard
        thread.join(60)


@pytest.mark.req("PRO-61")
def test_a_query_cannot_be_read_on_its_way(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.server().files
    trusted = ssl.create_default_context(cafile=str(authority.certificate))
    with running_server("--tls-cert", certificate, "--tls-key", key, data=tmp_path / "data") as server:
        with (
            _wire(server) as (port, heard),
            httpx2.Client(
                base_url=f"https://127.0.0.1:{port}", headers=server.headers, verify=trusted, timeout=60
            ) as http,
        ):
            answer = http.post("/profile/v1/discover", json={"query": f"translate {SECRET}"})
            assert answer.status_code == 200
            http.close()
        on_the_wire = b"".join(heard)
        assert len(on_the_wire) > 1000
        assert SECRET.encode() not in on_the_wire
        assert server.admin_token.encode() not in on_the_wire
