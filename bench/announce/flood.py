"""A flood of 20,000 packets a second on the LAN: its effect on HTTP latency and memory of a listening registry.

In rounds, so that a bad moment of the machine falls on all alike: without a flood; with one that is sent to a port where
nobody listens, which is what the machine itself loses to whoever sends it; then by UDP and by mDNS. Each flood of a round
is a new one, of other agents, and must be found out anew. One client asks all the time, at the same pace. The packets
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
KINDS = ("udp", "mdns")
ELSEWHERE_PART = 0.5  # of the time of a flood
FORGOTTEN_AFTER_SECONDS = 1.5  # a flood, once it has ended


class Seen:
    """The measurements under one condition, of all rounds."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.seconds = self.cpu_seconds = 0.0
        self.grown_bytes = self.sent = 0

    def milliseconds(self, share: float) -> float:
        return 1000 * quantile(self.taken, share)


class Bench:
    """A registry that listens on UDP and mDNS, and one client."""

    def __init__(self, url: str, token: str, server: psutil.Process, port: int) -> None:
        self._url, self._token, self._server = url, token, server
        self._port, self._elsewhere = port, _free_udp_port()
        self.seen = {name: Seen() for name in ("quiet", "elsewhere", *KINDS)}

    def round(self, seconds: float, rate: int) -> None:
        self._watch("quiet", seconds)
        self._flood("elsewhere", "udp", self._elsewhere, seconds * ELSEWHERE_PART, rate)
        for kind in KINDS:
            self._flood(kind, kind, self._port, seconds, rate)
        time.sleep(FORGOTTEN_AFTER_SECONDS)

    def _flood(self, name: str, kind: str, port: int, seconds: float, rate: int) -> None:
        words = [sys.executable, str(FLOOD), kind, str(port), str(seconds), str(rate)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as flood:
            assert flood.stdout is not None
            flood.stdout.readline()  # its packets are made
            self._watch(name, seconds)
            self.seen[name].sent += int(flood.stdout.readline())

    def _watch(self, name: str, seconds: float) -> None:
        seen, spent, held = self.seen[name], cpu_seconds(self._server), self._server.memory_info().rss
        seen.taken += _taken(self._url, self._token, seconds)
        seen.cpu_seconds += cpu_seconds(self._server) - spent
        seen.grown_bytes += self._server.memory_info().rss - held
        seen.seconds += seconds


def measure(seconds: float, rounds: int, rate: int = RATE) -> dict[str, dict[str, float]]:
    """Measure by kind of flood, udp and mdns. `seconds`: the length of each flood."""
    port = _free_udp_port()
    flags = ["--udp", "--udp-interface", "lo", "--udp-port", str(port), "--mdns", "--mdns-interfaces", "lo"]
    with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
        options = ["--port", "0", "--data", folder, "--embedder", "none", "--trust-mode", "tofu", *flags]
        words = [sys.executable, "-m", "waypost", "serve", *options, "--log-level", "warning"]
        with stopped(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            token = Path(folder, "admin.token").read_text().strip()
            _fill(url, token)
            bench = Bench(url, token, psutil.Process(process.pid), port)
            for _ in range(rounds):
                bench.round(seconds, rate)
    return {kind: _told(bench.seen, kind) for kind in KINDS}


def _told(seen: dict[str, Seen], kind: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, each in (("quiet", seen["quiet"]), ("elsewhere", seen["elsewhere"]), ("flooded", seen[kind])):
        figures[f"{name}_p50_ms"], figures[f"{name}_p99_ms"] = each.milliseconds(0.5), each.milliseconds(0.99)
        figures[f"{name}_asked"] = len(each.taken)
        figures[f"{name}_cpu_share"] = each.cpu_seconds / each.seconds
    flooded = seen[kind]
    figures["packets_per_second"] = flooded.sent / flooded.seconds
    figures["grown_mib"] = flooded.grown_bytes / 2**20
    return figures


def _taken(url: str, token: str, seconds: float) -> list[float]:
    """Latencies of listing agents, at a hundred requests per second."""
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
    """Register some agents to list."""
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
