"""`waypost get --health`, `waypost list` and the SDK against a service with several processes and health checks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.ports import free_port
from support.server import RunningServer, running_server
from support.service import profile
from support.shell import Shell
from support.worker_processes import both, wait_for
from waypost import SyncClient


@contextmanager
def answering() -> Iterator[str]:
    """A healthy endpoint: it answers every request with success."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    flags = ("--workers", "2", "--health-checks", "--health-check-seconds", "3600", "--allow-cidrs", "127.0.0.0/8")
    with running_server(*flags) as running:
        yield running


def test_commands_and_clients_report_endpoint_health_from_every_process(server: RunningServer, tmp_path: Path) -> None:
    shell = Shell(tmp_path, server.environment())
    dead = f"http://127.0.0.1:{free_port()}/"
    with answering() as alive, SyncClient(server.url, server.admin_token) as client:
        for name, endpoint in (("alive", alive), ("dead", dead)):
            client.register(profile(name, name=name, bindings=[{"protocol": "http", "endpoint": endpoint}]))
        wait_for(lambda: _states(client) == {"alive": "healthy", "dead": "suspect"})
        with both(server) as connections:
            for http in connections:
                assert http.get("/api/v1/agents/alive:health").json()["state"] == "healthy"
                assert http.get("/api/v1/agents/dead").headers["waypost-health"] == "suspect"
    told = shell("get", "dead", "--health", "-o", "json").json
    assert (told["state"], told["reason"], told["endpoint"]) == ("suspect", "refused", dead)
    assert "suspect" in shell("get", "dead", "--health").out
    assert [line.split("\t")[-1] for line in shell("list").out.splitlines()] == ["active", "suspect"]
    assert shell("get", "dead", "--health", "--history").code == 64
    refused = shell(
        "register",
        shell.write("agent.json", profile("x", bindings=[{"protocol": "http", "endpoint": "http://10.0.0.7/"}])),
    )
    assert refused.code == 77
    assert "allow_cidrs" in refused.err


def _states(client: SyncClient) -> dict[str, str | None]:
    return {agent.id: agent.health for agent in client.list()}
