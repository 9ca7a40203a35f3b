"""TLS and client certificates on real sockets (THREATS J11, ANN-60)."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from support.certificates import Authority, Issued
from support.server import RunningServer, running_server
from support.service import profile
from waypost import Client, SyncClient

AGENT = "6b7f2c1e-9a3d-4f5e-8b1a-2c3d4e5f6a7b"
WAIT_SECONDS = 60.0  # a minute is promised; a file is looked at every five seconds


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def flags(authority: Authority, server: Issued, *more: str) -> tuple[str, ...]:
    certificate, key = server.files
    ca = str(authority.certificate)
    return ("--tls-cert", certificate, "--tls-key", key, "--client-ca", ca, *more)


@contextmanager
def client(server: RunningServer, authority: Authority, shown: Issued | None = None) -> Iterator[httpx2.Client]:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if shown is not None:
        context.load_cert_chain(*shown.files)
    with httpx2.Client(base_url=server.url, verify=context, timeout=60) as made:
        yield made


def document(agent_id: str = AGENT, **members: Any) -> dict[str, Any]:
    return profile(f"urn:uuid:{agent_id}", **members)


def eventually(check: Callable[[], bool]) -> None:
    """True before the time is over. The waiting is the service's own, which looks at its files from time to time."""
    ends = datetime.datetime.now() + datetime.timedelta(seconds=WAIT_SECONDS)
    pause = threading.Event()
    while not check():
        assert datetime.datetime.now() < ends, "it did not come about in time"
        pause.wait(0.2)


@pytest.mark.req("ANN-60")
def test_the_service_accepts_tls_1_3_only(authority: Authority) -> None:
    with running_server(*flags(authority, authority.server())) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with client(server, authority) as anybody:
            assert anybody.get("/healthz").status_code == 200
            card = anybody.get("/.well-known/agent-card.json").text
            assert server.url in card, "what it says of itself is true"
        address = (urlsplit(server.url).hostname or "", urlsplit(server.url).port or 0)
        old = ssl.create_default_context(cafile=str(authority.certificate))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(address, timeout=60) as plain,
            pytest.raises(ssl.SSLError),
            old.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            pass
        with socket.create_connection(address, timeout=60) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP/"), "without TLS nothing is said"


@pytest.mark.req("ANN-60")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_certificate_is_a_credential_for_the_one_agent_that_it_names(authority: Authority, workers: str) -> None:
    holder = authority.client("agent", f"urn:uuid:{AGENT.upper()}")
    other = authority.client("other", "urn:uuid:00000000-0000-4000-8000-000000000001")
    with running_server(*flags(authority, authority.server(), "--workers", workers)) as server:
        with client(server, authority) as nobody:
            assert nobody.get("/api/v1/agents").status_code == 401
            assert (
                nobody.get("/api/v1/agents", headers={"X-Client-Cert": "x", "waypost-certificate": "x"}).status_code
                == 401
            )
        for _ in range(4):  # connections are dealt out to the processes
            with client(server, authority, holder) as agent:
                assert agent.get("/api/v1/agents").status_code == 200
                assert agent.post("/api/v1/agents", json=document()).status_code in (200, 201)
                assert agent.post("/api/v1/agents", json=profile("another")).status_code == 403
                assert agent.put("/profile/v1/agents/x", json=profile("x")).status_code == 403
                assert agent.post("/api/v1/tokens", json={"sub": "x", "scopes": ["admin"]}).status_code == 403
        with client(server, authority, other) as stranger:
            assert stranger.delete(f"/api/v1/agents/urn:uuid:{AGENT}").status_code == 403
            assert stranger.post("/api/v1/agents", json=document(name="Mine")).status_code == 403
        with client(server, authority, holder) as agent:
            assert agent.delete(f"/api/v1/agents/urn:uuid:{AGENT}").status_code == 204


def test_a_token_wins_over_a_certificate(authority: Authority) -> None:
    holder = authority.client("agent", f"urn:uuid:{AGENT}")
    with (
        running_server(*flags(authority, authority.server())) as server,
        client(server, authority, holder) as agent,
    ):
        assert agent.post("/api/v1/agents", json=profile("any"), headers=server.headers).status_code == 201
        assert agent.get("/api/v1/agents", headers={"Authorization": "Bearer x"}).status_code == 401


def test_the_operator_maps_names_and_fingerprints_to_subjects(authority: Authority, tmp_path: Path) -> None:
    by_name = authority.client("by-name", dns=("build.example.net",))
    by_print = authority.client("by-print")
    unknown = authority.client("unknown", dns=("nobody.example.net",))
    both = authority.client("both", "urn:uuid:" + AGENT, "urn:uuid:00000000-0000-4000-8000-000000000001")
    config = tmp_path / "my.toml"
    config.write_text(
        f'[[client_subjects]]\nsubject = "build"\nsan = "DNS:Build.example.net"\n'
        f'[[client_subjects]]\nsubject = "reader"\nfingerprint = "sha256:{by_print.fingerprint}"\n'
        'scopes = ["discover:read"]\n'
    )
    with running_server(*flags(authority, authority.server(), "--config", str(config))) as server:
        with client(server, authority, by_name) as build:
            assert build.post("/api/v1/agents", json=profile("a")).status_code == 201
            assert build.post("/api/v1/agents", json=profile("b")).status_code == 201
        with client(server, authority, by_print) as reader:
            assert reader.get("/api/v1/agents").status_code == 200
            assert reader.post("/api/v1/agents", json=profile("c")).status_code == 403
        for shown in (unknown, both):
            with client(server, authority, shown) as nobody:
                refused = nobody.get("/api/v1/agents")
                assert (refused.status_code, "names no known subject" in refused.text) == (401, True)


def test_certificates_for_servers_or_of_another_authority_are_refused(authority: Authority, tmp_path: Path) -> None:
    elsewhere = Authority(tmp_path / "elsewhere", "Another authority")
    name = f"urn:uuid:{AGENT}"
    foreign = elsewhere.client("foreign", name)
    for_servers = authority.server("for-servers")
    for_anything = authority.issue("for-anything", [], None)
    with running_server(*flags(authority, authority.server())) as server:
        for shown in (foreign, for_servers):
            with client(server, authority, shown) as refused, pytest.raises(httpx2.HTTPError):
                refused.get("/api/v1/agents")
        with client(server, authority, for_anything) as refused:
            answer = refused.get("/api/v1/agents")
            assert (answer.status_code, "clientAuth" in answer.text) == (401, True)


@pytest.mark.req("ANN-60")
def test_a_revoked_certificate_ends_within_a_minute_also_on_a_connection_that_is_open(authority: Authority) -> None:
    holder, other = (authority.client(name, f"urn:uuid:{AGENT}") for name in ("lost", "kept"))
    crl = str(authority.revoke())
    with (
        running_server(*flags(authority, authority.server(), "--crl", crl)) as server,
        client(server, authority, holder) as lost,
        client(server, authority, other) as kept,
    ):
        assert lost.get("/api/v1/agents").status_code == 200
        authority.revoke(holder)
        eventually(lambda: lost.get("/api/v1/agents").status_code == 401)
        assert kept.get("/api/v1/agents").status_code == 200
        authority.revoke(ends=datetime.timedelta(seconds=-1))
        eventually(lambda: kept.get("/api/v1/agents").status_code == 401)
        assert "out of date" in kept.get("/api/v1/agents").text


def test_an_unfinished_handshake_is_cut_off(authority: Authority) -> None:
    """H3, before there is a request."""
    with running_server(*flags(authority, authority.server())) as server:
        address = (urlsplit(server.url).hostname or "", urlsplit(server.url).port or 0)
        with socket.create_connection(address, timeout=60) as silent:
            silent.sendall(b"\x16\x03\x01")
            assert silent.recv(100) == b""
        with client(server, authority) as anybody:
            assert anybody.get("/healthz").status_code == 200


def test_unfinished_handshakes_of_one_address_are_bounded(authority: Authority) -> None:
    """E12, before there is a request: each takes as much memory as a connection."""
    with (
        running_server(*flags(authority, authority.server(), "--max-connections-per-address", "20")) as server,
        ExitStack() as stack,
    ):
        address = (urlsplit(server.url).hostname or "", urlsplit(server.url).port or 0)
        for _ in range(300):
            silent = stack.enter_context(socket.create_connection(address, timeout=60))
            silent.sendall(b"\x16\x03\x01")
        elsewhere = httpx2.HTTPTransport(
            verify=ssl.create_default_context(cafile=str(authority.certificate)), local_address="127.0.0.2"
        )
        with httpx2.Client(base_url=server.url, transport=elsewhere, timeout=60) as other:
            assert other.get("/healthz").status_code == 200
            assert len(psutil.Process(server.process.pid).net_connections(kind="tcp")) < 20 + 64 + 10
        stack.close()
        with client(server, authority) as again:
            eventually(lambda: again.get("/healthz").status_code == 200)


def test_a_new_certificate_is_taken_without_a_restart(authority: Authority) -> None:
    first = authority.server()
    with running_server(*flags(authority, first)) as server:

        def fingerprint() -> str:
            host, port = urlsplit(server.url).hostname or "", urlsplit(server.url).port or 0
            return ssl.get_server_certificate((host, port), ca_certs=str(authority.certificate))

        before = fingerprint()
        first.certificate.write_text("half a file")
        authority.server()
        eventually(lambda: fingerprint() != before)


async def test_clients_and_command_take_authority_and_certificate(authority: Authority, tmp_path: Path) -> None:
    holder = authority.client("agent", f"urn:uuid:{AGENT}")
    files = {"ca": authority.certificate, "cert": holder.certificate, "cert_key": holder.key, "data": tmp_path / "none"}
    with running_server(*flags(authority, authority.server())) as server:
        async with Client(server.url, **files) as wp:  # type: ignore[arg-type]
            assert (await wp.register(document())).outcome == "created"
        with SyncClient(server.url, **files) as wp:  # type: ignore[arg-type]
            assert [agent.id for agent in wp.list()] == [f"urn:uuid:{AGENT}"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--tls-cert", "nowhere.pem"),
        ("--tls-key", "nowhere.pem"),
        ("--client-ca", "nowhere.pem"),
        ("--crl", "nowhere.crl"),
    ],
)
def test_files_that_cannot_be_used_end_the_start(tmp_path: Path, wrong: tuple[str, str]) -> None:
    with pytest.raises(AssertionError, match=wrong[0].removeprefix("--").replace("-", "_")), running_server(*wrong):
        pass
