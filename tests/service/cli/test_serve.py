"""`serve` and `demo`: the ready line, the data folder, shutdown."""

from __future__ import annotations

import stat
import subprocess
import sys

import httpx2

from support.server import clean_environment, running_server, stop_server
from support.shell import Shell


def test_a_service_prints_the_ready_line_and_stops_on_a_signal() -> None:
    with running_server() as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert httpx2.get(f"{server.url}/readyz", timeout=60).status_code == 200
        token = server.data / "admin.token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stop_server(server) == 0


def test_registered_agents_survive_a_restart_of_the_service(shell: Shell) -> None:
    with running_server() as server:
        document = {"id": "kept", "name": "Kept", "description": "d", "bindings": []}
        document["bindings"] = [{"protocol": "https", "endpoint": "https://a.example"}]  # type: ignore[assignment]
        name = shell.write("kept.json", document)
        shell.environment = server.environment()
        assert shell("register", name).code == 0
        token = server.admin_token
        stop_server(server)
        with running_server(data=server.data) as again:
            assert again.admin_token == token
            shell.environment = again.environment()
            assert shell("get", "kept", "-o", "json").json == document


def test_a_demo_is_open_has_samples_and_prints_suggestions() -> None:
    with running_server(command="demo") as server:
        answer = httpx2.get(f"{server.url}/api/v1/agents", timeout=60)
        assert answer.status_code == 200
        assert len(answer.json()["agents"]) >= 20
        assert server.process.stdout is not None
        told = [server.process.stdout.readline() for _ in range(6)]
        assert any(line.strip().startswith("waypost find") for line in told)
        assert any(server.url in line for line in told)


def test_a_port_that_is_taken_ends_with_78() -> None:
    with running_server() as server:
        port = server.url.rsplit(":", 1)[1]
        ran = subprocess.run(
            [sys.executable, "-m", "waypost", "serve", "--port", port, "--data", str(server.data / "other")],
            capture_output=True,
            text=True,
            env=clean_environment(),
            timeout=300,
            check=False,
        )
        assert (ran.returncode, ran.stdout) == (78, "")
        assert port in ran.stderr
        assert "hint:" in ran.stderr
