"""How fast the registry is, over HTTP, at three sizes, beside two references in the same run.

    python -m bench.registry [--sizes 1000,10000,100000] [--out bench/results/registry.json]

Every figure is a ratio: to the server that a user would write in an afternoon (bench/afternoon.py), or to the processor
time of a bare handler that returns as many bytes (bench/bare.py). Absolute numbers are kept too, but they belong to the
machine. Goals are those of the project; the report says which were met.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from bench.corpus import documents
from bench.load import Measured, measure, request_bytes

HERE = Path(__file__).parent
QUERIES = (
    "translate an invoice into German",
    "resize images in bulk",
    "query a postgres database",
    "weather forecast for a city",
    "review a pull request",
    "send a message to a slack channel",
    "search academic papers",
    "manage kubernetes deployments",
    "convert speech to text",
    "track cryptocurrency prices",
    "book a flight",
    "summarise a long document",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError("the server ended before it was ready")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("the server did not open its port")


@contextmanager
def running(command: list[str], port: int) -> Iterator[psutil.Process]:
    process = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.DEVNULL)
    try:
        wait_until_open(port, process)
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def waypost(data: Path) -> Iterator[tuple[int, psutil.Process, str, float]]:
    """The service on a data folder: port, process, token, and the seconds from start to the first answer."""
    command = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data", str(data), "--log-level", "warning"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.match(r"waypost ready http://127\.0\.0\.1:(\d+)", line)
        if not found:
            raise RuntimeError(f"not ready: {line!r}")
        port = int(found[1])
        token = (data / "admin.token").read_text().strip()
        _first_answer(port, token)
        yield port, psutil.Process(process.pid), token, time.perf_counter() - started
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _first_answer(port: int, token: str) -> None:
    body = json.dumps({"query": QUERIES[0]}).encode()
    wire = request_bytes(
        "POST", "/profile/v1/discover", body, {"Authorization": f"Bearer {token}", "Connection": "close"}
    )
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(wire)
        if not client.recv(64).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("the first answer was not 200")


class Run:
    """One size: the same corpus in our service and in the afternoon server, the same questions to both."""

    def __init__(self, size: int, folder: Path, seed: int = 7) -> None:
        self.size = size
        self.folder = folder
        self.random = random.Random(seed)
        self.corpus = [json.dumps(document).encode() for document in documents(size + 4000)]
        self.ids = [json.loads(document)["id"] for document in self.corpus[:size]]
        self.figures: dict[str, Any] = {"agents": size}

    def go(self) -> dict[str, Any]:
        count = 4000
        with self.afternoon() as (port, process):
            fresh = [request_bytes("POST", "/agents", body) for body in self.corpus[self.size : self.size + 2000]]
            self.note("afternoon", "register", measure(port, process, fresh))
            self.note("afternoon", "get", measure(port, process, self._gets("/agents/", count)))
            pages = [request_bytes("GET", f"/agents?limit=50&offset={self._offset()}") for _ in range(400)]
            self.note("afternoon", "list", measure(port, process, pages))
        self.ours(count)
        self.restart()
        self.bare()
        return self.figures

    @contextmanager
    def afternoon(self) -> Iterator[tuple[int, psutil.Process]]:
        file, port = self.folder / "afternoon.sqlite3", free_port()
        _fill_afternoon(file, self.corpus[: self.size])
        with running([sys.executable, str(HERE / "afternoon.py"), str(port), str(file)], port) as process:
            measure(port, process, self._gets("/agents/", 200))
            yield port, process

    def ours(self, count: int) -> None:
        with waypost(self.folder / "waypost") as (port, process, token, _):
            auth = {"Authorization": f"Bearer {token}"}
            empty = process.memory_info().rss
            loaded = measure(port, process, self._batches(auth, self.corpus[: self.size]), clients=1)
            self.figures["load_rate"] = self.size / loaded.seconds
            self._settle(port, auth)
            self.figures["memory_bytes_per_agent"] = (process.memory_info().rss - empty) / self.size
            extra = self.corpus[self.size :]
            fresh = [request_bytes("POST", "/api/v1/agents", body, auth) for body in extra[:2000]]
            self.note("waypost", "register", measure(port, process, fresh))
            batch = measure(port, process, self._batches(auth, extra[2000:4000], lines=250), clients=8)
            self.figures["waypost_register_many_rate"] = 2000 / batch.seconds
            self.figures["waypost_register_many_failed"] = batch.failed
            self._settle(port, auth)
            self.note("waypost", "get", measure(port, process, self._gets("/api/v1/agents/", count, auth)))
            last = max(1, self.size // 50)
            base = "/.well-known/agentframework/v1/agents?per_page=50&page="
            pages = [request_bytes("GET", base + str(self.random.randint(1, last)), b"", auth) for _ in range(2000)]
            self.note("waypost", "list", measure(port, process, pages))
            self.note("waypost", "discover", measure(port, process, self._discovers(auth, 2000)))

    def restart(self) -> None:
        taken = []
        for _ in range(3):
            with waypost(self.folder / "waypost") as (_, _, _, seconds):
                taken.append(seconds)
        self.figures["restart_seconds"] = sorted(taken)[1]

    def bare(self) -> None:
        """The bare handler answers as many bytes as ours did, and takes in as many."""
        port = free_port()
        with running([sys.executable, str(HERE / "bare.py"), str(port)], port) as process:
            measure(port, process, [request_bytes("GET", "/100")] * 500)
            for name in ("get", "list", "discover"):
                size = int(self.figures[f"waypost_{name}_bytes"])
                body = json.dumps({"query": QUERIES[0], "limit": 10}).encode() if name == "discover" else b""
                method = "POST" if body else "GET"
                wire = [request_bytes(method, f"/{size}", body, {"Authorization": "Bearer " + "x" * 46})] * 4000
                self.note("bare", name, measure(port, process, wire))

    def note(self, who: str, what: str, measured: Measured) -> None:
        print(
            f"  {self.size:>7} {who:<10} {what:<9} {measured.rate:8.0f}/s {measured.cpu_us:7.0f} µs cpu "
            f"p50 {measured.p50_ms:6.2f} ms p99 {measured.p99_ms:6.2f} ms failed {measured.failed}",
            flush=True,
        )
        key = f"{who}_{what}"
        self.figures[f"{key}_rate"] = measured.rate
        self.figures[f"{key}_cpu_us"] = measured.cpu_us
        self.figures[f"{key}_p99_ms"] = measured.p99_ms
        self.figures[f"{key}_failed"] = measured.failed
        self.figures[f"{key}_bytes"] = measured.body_bytes / measured.requests

    def _offset(self) -> int:
        return 50 * self.random.randint(0, max(0, self.size // 50 - 1))

    def _gets(self, prefix: str, count: int, headers: dict[str, str] | None = None) -> list[bytes]:
        chosen = (self.random.choice(self.ids) for _ in range(count))
        return [request_bytes("GET", prefix + quote(agent_id, safe=""), b"", headers) for agent_id in chosen]

    def _discovers(self, auth: dict[str, str], count: int) -> list[bytes]:
        bodies = [json.dumps({"query": query, "limit": 10}).encode() for query in QUERIES]
        return [request_bytes("POST", "/profile/v1/discover", self.random.choice(bodies), auth) for _ in range(count)]

    def _batches(self, auth: dict[str, str], bodies: list[bytes], lines: int = 2000) -> list[bytes]:
        headers = {**auth, "Content-Type": "application/x-ndjson"}
        groups = (bodies[start : start + lines] for start in range(0, len(bodies), lines))
        return [request_bytes("POST", "/api/v1/agents:batch", b"\n".join(group), headers) for group in groups]

    def _settle(self, port: int, auth: dict[str, str]) -> None:
        """Wait until the index has folded everything in, so that no figure is helped or hurt by what went before."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            wire = request_bytes("GET", "/api/v1/stats", b"", {**auth, "Connection": "close"})
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(wire)
                answer = b""
                while chunk := client.recv(65536):
                    answer += chunk
            if json.loads(answer.split(b"\r\n\r\n", 1)[1]).get("indexing_pending") == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("the index did not settle")


def _fill_afternoon(file: Path, corpus: list[bytes]) -> None:
    """Fill the afternoon server's table directly: its own loading is not what is measured."""
    import sqlite3

    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE agents (id TEXT PRIMARY KEY, name TEXT, document TEXT)")
    connection.execute("CREATE INDEX by_name ON agents (name, id)")
    rows = ((document["id"], document["name"], json.dumps(document)) for document in map(json.loads, corpus))
    connection.executemany("INSERT INTO agents VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


Goal = tuple[str, Callable[[dict[str, Any]], float], float, bool]  # text, figure, bound, at least?
GOALS: tuple[Goal, ...] = (
    (
        "durable registrations ÷ afternoon",
        lambda f: f["waypost_register_rate"] / f["afternoon_register_rate"],
        1.5,
        True,
    ),
    (
        "batched registrations ÷ afternoon",
        lambda f: f["waypost_register_many_rate"] / f["afternoon_register_rate"],
        1.5,
        True,
    ),
    ("one agent ÷ afternoon", lambda f: f["waypost_get_rate"] / f["afternoon_get_rate"], 4.0, True),
    ("one agent, CPU ÷ bare", lambda f: f["waypost_get_cpu_us"] / f["bare_get_cpu_us"], 2.0, False),
    ("list page of 50 ÷ afternoon", lambda f: f["waypost_list_rate"] / f["afternoon_list_rate"], 5.0, True),
    ("discover, CPU ÷ bare", lambda f: f["waypost_discover_cpu_us"] / f["bare_discover_cpu_us"], 6.0, False),
    ("restart to first answer, s", lambda f: f["restart_seconds"], 1.0, False),
)


def report(results: list[dict[str, Any]]) -> str:
    sizes = [f"{result['agents']:,}" for result in results]
    lines = [f"| figure | goal | {' | '.join(sizes)} |", "|---|---|" + "---|" * len(sizes)]
    for text, figure, bound, at_least in GOALS:
        values = [figure(result) for result in results]
        met = [value >= bound if at_least else value <= bound for value in values]
        shown = [f"{value:.2f}{'' if good else ' ✗'}" for value, good in zip(values, met, strict=True)]
        lines.append(f"| {text} | {'≥' if at_least else '≤'} {bound:g} | {' | '.join(shown)} |")
    memory = [f"{result['memory_bytes_per_agent'] / 1024:.1f} KiB" for result in results]
    lines.append(f"| memory per agent | – | {' | '.join(memory)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = []
    for size in map(int, asked.sizes.split(",")):
        with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
            results.append(Run(size, Path(folder)).go())
    print(report(results))
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        machine = {"python": platform.python_version(), "cores": os.cpu_count()}
        asked.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
