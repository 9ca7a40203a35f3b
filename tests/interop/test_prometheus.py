"""promtool of Prometheus finds nothing to complain about in `/metrics`."""

from __future__ import annotations

import subprocess

import httpx
import pytest

from support.real_dns_servers import program
from support.server import running_server


@pytest.mark.judge("promtool", "Debian", "`promtool check metrics` accepts `/metrics`")
def test_promtool_accepts_the_metrics() -> None:
    with running_server() as server:
        httpx.get(f"{server.url}/healthz")
        metrics = httpx.get(f"{server.url}/metrics", headers=server.headers)
    assert "waypost_http_request_duration_seconds" in metrics.text
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=metrics.text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
