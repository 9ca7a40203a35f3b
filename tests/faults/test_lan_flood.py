"""A flood on the LAN leaves the registry standing: memory, answers, and those that announce as they should (THREATS L3).

How long answers take under it is measured by `python -m bench.announce`; here are the facts that hold on every machine.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import httpx
import psutil

from support.places import Place, place
from support.ports import free_port
from support.server import RunningServer, running_server

FLOOD = Path(__file__).parents[1] / "support" / "flood.py"
SECONDS, RATE = 10.0, 20_000
GROWTH_BYTES = 64 * 1024 * 1024


def test_twenty_thousand_packets_a_second_leave_memory_and_answers_within_bounds() -> None:
    """L3. By UDP and mDNS at once, half of them each; on a host of its own, so that no other test is flooded."""
    with place(1) as where:
        flooded(where)


def flooded(where: Place) -> None:
    port = free_port()
    flags = ("--udp", "--udp-interface", "lo", "--udp-port", str(port), "--mdns", "--mdns-interfaces", "lo")
    with running_server(*flags, "--trust-mode", "tofu", before=where.command(0)) as server:
        before = memory(server)
        floods = [
            subprocess.Popen(
                where.python(0, str(FLOOD), kind, str(port), str(SECONDS), str(RATE // 2)),
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in ("udp", "mdns")
        ]
        with where.entered(0), httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            while any(flood.poll() is None for flood in floods):
                assert client.get("/api/v1/agents", params={"limit": 5}).status_code == 200
                time.sleep(0.1)
            sent = sum(int(flood.communicate(timeout=60)[0].split()[-1]) for flood in floods)
            growth = memory(server) - before
            assert growth < GROWTH_BYTES, f"{growth / 2**20:.0f} MiB more"
            read = client.get("/metrics").text
            dropped = float(
                next(line for line in read.splitlines() if line.startswith("waypost_lan_dropped ")).split()[1]
            )
            assert dropped > 1000, f"{dropped:.0f} of {sent} were dropped unread; the system dropped others"
            assert client.get("/healthz").status_code == 200


def memory(server: RunningServer) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)
