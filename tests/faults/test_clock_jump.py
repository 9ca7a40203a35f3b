"""The wall clock of a running service jumps (libfaketime); its monotonic clock goes on (THREATS E13, T2)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx2
import pytest

from support.server import running_server
from support.service import profile

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
AGENTS = 30


@pytest.mark.skipif(not LIBRARIES and "CI" not in os.environ, reason="faketime is not installed")
@pytest.mark.parametrize(("jump", "reason"), [("+1d", "it has expired"), ("-1d", "it is not valid yet")])
def test_a_jump_of_a_day_ends_tokens_and_no_lease(tmp_path: Path, jump: str, reason: str) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    faked = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with (
        running_server(environment=faked, before=("env",), data=tmp_path / "data") as server,
        httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as admin,
    ):
        for number in range(AGENTS):
            made = admin.post("/api/v1/agents?ttl_seconds=300", json=profile(f"agent-{number}"))
            assert made.status_code == 201
        wanted = {"sub": "bob", "scopes": ["discover:read"], "ttl_seconds": 3600}
        token = admin.post("/api/v1/tokens", json=wanted).json()["token"]
        bob = {"Authorization": f"Bearer {token}"}
        assert admin.get("/api/v1/agents", headers=bob).status_code == 200
        clock.write_text(f"{jump}\n")
        refused = admin.get("/api/v1/agents", headers=bob)
        assert refused.status_code == 401
        assert reason in refused.json()["message"]
        assert "the clock here says" in refused.json()["message"]
        until = time.monotonic() + 4  # several rounds of the job that ends leases
        while time.monotonic() < until:
            assert len(admin.get("/api/v1/agents?limit=200").json()["agents"]) == AGENTS
            time.sleep(0.5)
        fresh = admin.post("/api/v1/tokens", json=wanted).json()["token"]
        assert admin.get("/api/v1/agents", headers={"Authorization": f"Bearer {fresh}"}).status_code == 200
        assert admin.post("/api/v1/agents/agent-0:renew").status_code == 200
        assert "expired" not in admin.get("/api/v1/audit?action=expire").text
