"""A flood on the LAN, 20,000 packets a second: what it does to the answers of HTTP and to the memory of a registry that listens.

Beside it, as long without a flood, half before and half after it; and the same flood sent to a port where nobody listens: what
the machine itself loses to whoever sends it. The packets
are those of `tests/support/flood.py`: signed announcements of strangers, fragments, cut and random ones.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bench.announce.sockets import cpu_seconds, stopped
from bench.measures import quantile

FLOOD = Path(__file__).parents[2] / "tests" / "support" / "flood.py"
RATE = 20_000
ASKED_EVERY_SECONDS = 0.01


def measure(kind: str, seconds: float, rate: int = RATE) -> dict[str, float]:
    """`kind`: udp or mdns."""
    port, elsewhere = _free_udp_port(), _free_udp_port()
    flags = {
        "udp": ["--udp", "--udp-interface", "lo", "--udp-port", str(port)],
        "mdns": ["--mdns", "--mdns-interfaces", "lo"],
    }
    with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
        options = ["--port", "0", "--data", folder, "--embedder", "none", "--trust-mode", "tofu", *flags[kind]]
        words = [sys.executable, "-m", "waypost", "serve", *options, "--log-level", "warning"]
        with stopped(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            token = Path(folder, "admin.token").read_text().strip()
            server = psutil.Process(process.pid)
            _fill(url, token)
            quiet = _taken(url, token, seconds / 2)
            before = server.memory_info().rss
            spent = cpu_seconds(server)
            beside, _ = _flooded("udp", elsewhere, url, token, seconds / 2, rate)
            idle = cpu_seconds(server) - spent
            under, sent = _flooded(kind, port, url, token, seconds, rate)
            flooded = cpu_seconds(server) - spent - idle
            growth = server.memory_info().rss - before
            quiet += _taken(url, token, seconds / 2)
    return {
        "packets_per_second": sent / seconds,
        "quiet_p99_ms": _p99(quiet),
        "elsewhere_p99_ms": beside,
        "flooded_p99_ms": under,
        "elsewhere_cpu_share": idle / (seconds / 2),
        "flooded_cpu_share": flooded / seconds,
        "grown_mib": growth / 2**20,
    }


def _flooded(kind: str, port: int, url: str, token: str, seconds: float, rate: int) -> tuple[float, int]:
    words = [sys.executable, str(FLOOD), kind, str(port), str(seconds), str(rate)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        flood.stdout.readline()  # its packets are made
        slowest = _p99(_taken(url, token, seconds))
        return slowest, int(flood.stdout.readline())


def _p99(taken: list[float]) -> float:
    return 1000 * quantile(taken, 0.99)


def _taken(url: str, token: str, seconds: float) -> list[float]:
    """Seconds that a list of agents took, each time of a hundred in a second."""
    taken: list[float] = []
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.monotonic()
        connection.request("GET", "/api/v1/agents?limit=5", headers={"Authorization": f"Bearer {token}"})
        connection.getresponse().read()
        taken.append(time.monotonic() - began)
        time.sleep(ASKED_EVERY_SECONDS)
    connection.close()
    return taken


def _fill(url: str, token: str) -> None:
    """Some agents to list."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for number in range(20):
        binding = {"protocol": "https", "endpoint": f"https://agents.example.net/{number}"}
        agent = {"id": f"https://agents.example.net/id/{number}", "name": f"Agent {number}", "bindings": [binding]}
        body = json.dumps({**agent, "description": "Answers questions."})
        connection.request("POST", "/api/v1/agents", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 201:
            raise RuntimeError(f"status {answer.status}")
    connection.close()


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.bind(("", 0))
        return int(asked.getsockname()[1])
