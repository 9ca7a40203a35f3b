"""More requests than the service can answer, from an open loop (THREATS F10). `bench/overload.py` measures it properly."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import psutil
import pytest
from bench import overload
from bench.corpus import documents

from support.server import running_server

pytestmark = pytest.mark.long

SECONDS = 8.0


def test_five_times_the_capacity_is_refused_and_survived(tmp_path: Path) -> None:
    """The bars are far below those of the benchmark: other tests run on the same cores."""
    corpus = list(documents(2000))
    with running_server(data=tmp_path / "data") as server:
        port, process = httpx2.URL(server.url).port, psutil.Process(server.process.pid)
        assert port is not None
        overload.fill(port, process, corpus, server.admin_token)
        mix = overload.Mix(corpus, server.admin_token)
        capacity = overload.measure_capacity(port, process, mix, 3.0)
        before = process.memory_info().rss
        found = overload.summarize(overload.run_open_loop(port, mix, 5 * capacity, SECONDS).answered, SECONDS, capacity)
        assert found["refused"] > 0
        assert (found["refused_without_retry_after"], found["failed"]) == (0, 0)
        assert found["goodput"] >= 0.3
        assert found["health"] >= 0.95
        assert found["admitted"]["renew"] > found["admitted"]["search"]
        assert process.memory_info().rss - before <= 64 * 2**20
        _wait_until_normal(server.url, server.headers)


def _wait_until_normal(url: str, headers: dict[str, str]) -> None:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        answers = [httpx2.get(f"{url}/api/v1/agents", headers=headers, timeout=20) for _ in range(10)]
        if {answer.status_code for answer in answers} == {200}:
            return
    pytest.fail("requests are still refused")
