"""A suspended process and a clock that jumps (F09): nothing acknowledged is lost, and no lease ends early."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import httpx2
import pytest

from support.kill_clients import CLIENTS, PLAIN, Client, listed, run_clients, steps_of
from support.server import running_server
from support.service import profile

FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
PAUSES = 4


def test_a_suspended_process_loses_no_answered_write() -> None:
    clients, answered = [Client(number) for number in range(CLIENTS)], threading.Event()
    with running_server() as server:
        threads = run_clients(clients, server.url, server.headers, answered)
        assert answered.wait(120)
        for _ in range(PAUSES):
            os.kill(server.process.pid, signal.SIGSTOP)
            threading.Event().wait(0.5)
            os.kill(server.process.pid, signal.SIGCONT)
            threading.Event().wait(0.2)
        for client in clients:
            client.complaints.append("stop")
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as http:
            assert http.get("/readyz").status_code == 200
            steps = steps_of(listed(http))
        for client in clients:
            client.complaints.remove("stop")
            client.settle({agent: steps[agent] for agent in client.agents if agent in steps})
        assert sum(client.answers for client in clients) > CLIENTS


@pytest.mark.skipif(FAKETIME is None and "CI" not in os.environ, reason="libfaketime is not installed")
@pytest.mark.parametrize("jump", ["+1d", "-1d"])
def test_a_jump_of_the_clock_ends_no_lease(tmp_path: Path, jump: str) -> None:
    at = tmp_path / "time"
    at.write_text("+0")
    environment = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(at),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    assert shutil.which("env")
    before = ["env", *(f"{name}={value}" for name, value in environment.items())]
    with (
        running_server(before=before) as server,
        httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as http,
    ):
        for number in range(20):
            made = http.post("/api/v1/agents", params={"ttl_seconds": 600}, json=profile(f"urn:agent:{number}"))
            assert made.status_code == 201, made.text
        at.write_text(jump)
        threading.Event().wait(2.5)  # more than a round of the job that ends leases
        assert http.get("/api/v1/stats").json()["agents"] == 20
        renewed = http.post("/api/v1/agents/urn:agent:1:renew", json={"ttl_seconds": 600})
        assert renewed.status_code == 200, renewed.text
        assert http.post("/api/v1/agents", json=profile("urn:agent:later")).status_code == 201
