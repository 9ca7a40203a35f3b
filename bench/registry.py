"""The speed of the registry over HTTP at three sizes, beside two baselines in the same run.

    python -m bench.registry [--sizes 1000,10000,100000] [--keep]

Every figure is a ratio: to the server that a user would write in an afternoon (bench/baseline_registry.py), or to the processor
time of a bare handler that returns as many bytes (bench/baseline_http.py). Absolute numbers are kept too, but they belong to the
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
import sqlite3
import statistics
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

from bench.corpus import documents, questions
from bench.load import Measured, measure, request_bytes
from waypost.trust.document_signatures import sign_profile
from waypost.trust.keys.private_key import PrivateKey, new_private_key

HERE = Path(__file__).parent
ROUNDS = 5
SIGNED_DOMAIN = "signed.example.net"
FRESH = 400  # new agents a round, for each kind of registration
Server = tuple[int, psutil.Process]
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


# The registry and its lexical search. Vectors are measured by bench.search: while they are made for 100,000 agents, in the
# background and for minutes, every other figure would be one of a busy machine.
_LEXICAL = ("--embedder", "none")
_KILLS = 3
_KILLED_CHANGES = 500


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
def waypost(data: Path, *options: str) -> Iterator[tuple[int, psutil.Process, str, float]]:
    """The service on a data folder: port, process, token, and the seconds from start to the first answer."""
    command = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data", str(data), "--log-level", "warning"]
    command += options
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment())
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


def _environment() -> dict[str, str]:
    """The service with cached bytecode, as after an installation: a restart does not compile it again."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "WAYPOST_HEALTH_CHECKS": "false"}  # no traffic to the endpoints of test data


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
    """One size: the same corpus in our service and in the baseline, the same requests to both, alternately.

    The three servers run side by side and are asked in rounds, one after the other; a ratio is the median over the rounds.
    So whatever else the machine does in between falls on all of them alike.
    """

    def __init__(self, size: int, folder: Path, seed: int = 7) -> None:
        self.size = size
        self.folder = folder
        self.random = random.Random(seed)
        self.corpus = [json.dumps(document).encode() for document in documents(size + 3 * ROUNDS * FRESH)]
        self.ids = [json.loads(document)["id"] for document in self.corpus[:size]]
        self.fresh = self.corpus[size:]
        self.distinct = questions(seed)
        self.figures: dict[str, Any] = {"agents": size}

    def go(self) -> dict[str, Any]:
        file, afternoon_port, bare_port = self.folder / "afternoon.sqlite3", free_port(), free_port()
        _fill_afternoon(file, self.corpus[: self.size])
        afternoon_command = [sys.executable, str(HERE / "baseline_registry.py"), str(afternoon_port), str(file)]
        bare_command = [sys.executable, str(HERE / "baseline_http.py"), str(bare_port)]
        with (
            running(afternoon_command, afternoon_port) as afternoon,
            running(bare_command, bare_port) as bare,
            waypost(self.folder / "waypost", *_LEXICAL) as (port, process, token, _),
        ):
            self.auth = {"Authorization": f"Bearer {token}"}
            self._load(port, process)
            ours, theirs, nothing = (port, process), (afternoon_port, afternoon), (bare_port, bare)
            self._reads(ours, theirs, nothing)
            self._writes(ours, theirs)
        self._restart()
        self._kill()
        return self.figures

    def _load(self, port: int, process: psutil.Process) -> None:
        empty = process.memory_info().rss
        loaded = measure(port, process, self._batches(self.corpus[: self.size]), clients=1)
        self._settle(port)
        self.figures["load_rate"] = self.size / loaded.seconds
        self.figures["memory_bytes_per_agent"] = (process.memory_info().rss - empty) / self.size

    def _reads(self, ours: Server, theirs: Server, nothing: Server) -> None:
        """Warm up both sides, then measure alternately. Reads pick random agents."""
        for server, wires in ((ours, self._our_reads(200)), (theirs, self._their_reads(200))):
            for wire in wires.values():
                measure(*server, wire)
        rounds: dict[str, list[Measured]] = {}
        for _ in range(ROUNDS):
            for name, wire in self._their_reads(600).items():
                rounds.setdefault(f"afternoon_{name}", []).append(measure(*theirs, wire))
            for name, wire in self._our_reads(1500).items():
                measured = measure(*ours, wire)
                rounds.setdefault(f"waypost_{name}", []).append(measured)
                size = round(measured.body_bytes / measured.requests)
                rounds.setdefault(f"bare_{name}", []).append(measure(*nothing, self._bare(name, size, 1500)))
        self._note(rounds)

    def _writes(self, ours: Server, theirs: Server) -> None:
        rounds: dict[str, list[Measured]] = {}
        fresh = iter(self.fresh)
        key = new_private_key("ed25519", bytes(self.random.randrange(256) for _ in range(32)))
        asked = {"agent_id": SIGNED_DOMAIN, "public_key": key.public.pem()}
        measure(*ours, [request_bytes("POST", "/api/v1/keys", json.dumps(asked).encode(), self.auth)], clients=1)

        def take(count: int) -> list[bytes]:
            return [next(fresh) for _ in range(count)]

        for _ in range(ROUNDS):
            bodies = take(FRESH)
            wire = [request_bytes("POST", "/agents", body) for body in bodies]
            rounds.setdefault("afternoon_register", []).append(measure(*theirs, wire))
            wire = [request_bytes("POST", "/api/v1/agents", body, self.auth) for body in bodies]
            rounds.setdefault("waypost_register", []).append(measure(*ours, wire))
            wire = [request_bytes("POST", "/api/v1/agents", signed(body, key), self.auth) for body in bodies]
            rounds.setdefault("waypost_register_signed", []).append(measure(*ours, wire))
            batches = self._batches(take(2 * FRESH), lines=250)
            rounds.setdefault("waypost_register_many", []).append(measure(*ours, batches))
        self._note(rounds, documents_per_request={"waypost_register_many": 250})

    def _restart(self) -> None:
        taken = []
        for _ in range(3):
            with waypost(self.folder / "waypost", *_LEXICAL) as (_, _, _, seconds):
                taken.append(seconds)
        self.figures["restart_seconds"] = statistics.median(taken)

    def _kill(self) -> None:
        """The same after a kill, with changes acknowledged just before."""
        taken = []
        for number in range(_KILLS + 1):
            with waypost(self.folder / "waypost", *_LEXICAL) as (port, process, _, seconds):
                taken.append(seconds)
                measure(port, process, self._batches(self._changed(number)), clients=1)
                process.kill()
                process.wait(60)
        self.figures["killed_seconds"] = statistics.median(taken[1:])

    def _changed(self, number: int) -> list[bytes]:
        chosen = map(json.loads, self.corpus[:_KILLED_CHANGES])
        return [json.dumps({**found, "description": f"{found['description']} {number}."}).encode() for found in chosen]

    def _note(self, rounds: dict[str, list[Measured]], documents_per_request: dict[str, int] | None = None) -> None:
        for key, found in rounds.items():
            each = (documents_per_request or {}).get(key, 1)
            rate = statistics.median(measured.rate * each for measured in found)
            cpu = statistics.median(measured.cpu_us / each for measured in found)
            failed = sum(measured.failed for measured in found)
            p99 = statistics.median(measured.p99_ms for measured in found)
            print(
                f"  {self.size:>7} {key:<26} {rate:8.0f}/s {cpu:7.0f} µs cpu  p99 {p99:6.2f} ms  failed {failed}",
                flush=True,
            )
            self.figures[f"{key}_rate"] = [measured.rate * each for measured in found]
            self.figures[f"{key}_cpu_us"] = [measured.cpu_us / each for measured in found]
            self.figures[f"{key}_p99_ms"] = [measured.p99_ms for measured in found]
            self.figures[f"{key}_failed"] = failed

    # --- Requests --------------------------------------------------------------------------------

    def _our_reads(self, count: int) -> dict[str, list[bytes]]:
        last = max(1, self.size // 50)
        base = "/.well-known/agentframework/v1/agents?per_page=50&page="
        pages = [request_bytes("GET", base + str(self.random.randint(1, last)), b"", self.auth) for _ in range(count)]
        return {
            "get": self._gets("/api/v1/agents/", count, self.auth),
            "list": pages,
            "discover": self._discovers("/profile/v1/discover", self._question, count),
            "discover_distinct": self._discovers("/profile/v1/discover", self._distinct_question, count),
        }

    def _discovers(self, path: str, question: Callable[[], bytes], count: int) -> list[bytes]:
        return [request_bytes("POST", path, question(), self.auth) for _ in range(count)]

    def _their_reads(self, count: int) -> dict[str, list[bytes]]:
        offsets = (50 * self.random.randint(0, max(0, self.size // 50 - 1)) for _ in range(count // 6))
        pages = [request_bytes("GET", f"/agents?limit=50&offset={offset}") for offset in offsets]
        return {"get": self._gets("/agents/", count), "list": pages}

    def _bare(self, name: str, size: int, count: int) -> list[bytes]:
        if name.startswith("discover"):
            return self._discovers(f"/{size}", self._question, count)
        return [request_bytes("GET", f"/{size}", b"", self.auth)] * count

    def _question(self) -> bytes:
        """One of a dozen repeated queries, which may be answered from a cache."""
        return json.dumps({"query": self.random.choice(QUERIES), "limit": 10}).encode()

    def _distinct_question(self) -> bytes:
        """A query that was not sent before."""
        return json.dumps({"query": next(self.distinct), "limit": 10}).encode()

    def _gets(self, prefix: str, count: int, headers: dict[str, str] | None = None) -> list[bytes]:
        chosen = (self.random.choice(self.ids) for _ in range(count))
        return [request_bytes("GET", prefix + quote(agent_id, safe=""), b"", headers) for agent_id in chosen]

    def _batches(self, bodies: list[bytes], lines: int = 2000) -> list[bytes]:
        headers = {**self.auth, "Content-Type": "application/x-ndjson"}
        groups = (bodies[start : start + lines] for start in range(0, len(bodies), lines))
        return [request_bytes("POST", "/api/v1/agents:batch", b"\n".join(group), headers) for group in groups]

    def _settle(self, port: int) -> None:
        """Wait until the index is compacted, so that earlier writes affect no figure."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            wire = request_bytes("GET", "/api/v1/stats", b"", {**self.auth, "Connection": "close"})
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(wire)
                answer = b""
                while chunk := client.recv(65536):
                    answer += chunk
            if json.loads(answer.split(b"\r\n\r\n", 1)[1]).get("indexing_pending") == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("the index did not settle")


def signed(body: bytes, key: PrivateKey) -> bytes:
    """The same document under an id of a domain whose key is pinned, signed with that key."""
    document = json.loads(body)
    document["id"] = f"https://{SIGNED_DOMAIN}/{quote(document['id'], safe='')}"
    return json.dumps(sign_profile(document, key)).encode()


def _fill_afternoon(file: Path, corpus: list[bytes]) -> None:
    """Fill the table of the baseline directly: its loading is not measured."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE agents (id TEXT PRIMARY KEY, name TEXT, document TEXT)")
    connection.execute("CREATE INDEX by_name ON agents (name, id)")
    rows = ((document["id"], document["name"], json.dumps(document)) for document in map(json.loads, corpus))
    connection.executemany("INSERT INTO agents VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


def ratio(figures: dict[str, Any], ours: str, theirs: str) -> float:
    """The median over the rounds of the ratio to the baseline."""
    return statistics.median(a / b for a, b in zip(figures[ours], figures[theirs], strict=True))


Goal = tuple[str, Callable[[dict[str, Any]], float], float, bool]  # text, figure, bound, at least?
GOALS: tuple[Goal, ...] = (
    (
        "durable registrations ÷ afternoon",
        lambda f: ratio(f, "waypost_register_rate", "afternoon_register_rate"),
        1.5,
        True,
    ),
    (
        "batched registrations ÷ afternoon",
        lambda f: ratio(f, "waypost_register_many_rate", "afternoon_register_rate"),
        2.0,
        True,
    ),
    (
        "signed registrations ÷ unsigned",
        lambda f: ratio(f, "waypost_register_signed_rate", "waypost_register_rate"),
        0.6,
        True,
    ),
    ("one agent ÷ afternoon", lambda f: ratio(f, "waypost_get_rate", "afternoon_get_rate"), 3.0, True),
    ("one agent, CPU ÷ bare", lambda f: ratio(f, "waypost_get_cpu_us", "bare_get_cpu_us"), 2.5, False),
    ("list page of 50 ÷ afternoon", lambda f: ratio(f, "waypost_list_rate", "afternoon_list_rate"), 5.0, True),
    (
        "discover, repeated, CPU ÷ bare",
        lambda f: ratio(f, "waypost_discover_cpu_us", "bare_discover_cpu_us"),
        6.0,
        False,
    ),
    (
        "discover, distinct, CPU ÷ bare",
        lambda f: ratio(f, "waypost_discover_distinct_cpu_us", "bare_discover_distinct_cpu_us"),
        6.0,
        False,
    ),
    ("restart to first answer, s", lambda f: float(f["restart_seconds"]), 1.2, False),
    ("kill -9 to first answer, s", lambda f: float(f["killed_seconds"]), 3.0, False),
)


def report(results: list[dict[str, Any]]) -> str:
    """The table of the documentation: goals first, then how the cost grows with the size."""
    sizes = [f"{result['agents']:,}" for result in results]
    lines = [f"| figure | goal | {' | '.join(sizes)} |", "|---|---|" + "---|" * len(sizes)]
    for text, figure, bound, at_least in GOALS:
        shown = [_shown(result, figure, bound, at_least=at_least) for result in results]
        lines.append(f"| {text} | {'≥' if at_least else '≤'} {bound:g} | {' | '.join(shown)} |")
    for text, key in GROWTH:
        shown = [f"{statistics.median(result[key]):.0f} µs" if key in result else _UNMEASURED for result in results]
        lines.append(f"| CPU of {text} | – | {' | '.join(shown)} |")
    memory = [f"{result['memory_bytes_per_agent'] / 1024:.1f} KiB" for result in results]
    lines.append(f"| memory per agent | – | {' | '.join(memory)} |")
    return "\n".join(lines)


def _shown(result: dict[str, Any], figure: Callable[[dict[str, Any]], float], bound: float, *, at_least: bool) -> str:
    try:
        value = figure(result)
    except KeyError:  # a run of before this figure was
        return _UNMEASURED
    good = value >= bound if at_least else value <= bound
    return f"{value:.2f}{'' if good else ' (missed)'}"


_UNMEASURED = "not measured"
GROWTH = (
    ("one registration", "waypost_register_cpu_us"),
    ("one signed registration", "waypost_register_signed_cpu_us"),
    ("one registration in a batch", "waypost_register_many_cpu_us"),
    ("reading one agent", "waypost_get_cpu_us"),
    ("a list page of 50", "waypost_list_cpu_us"),
    ("a discover, repeated", "waypost_discover_cpu_us"),
    ("a discover, distinct", "waypost_discover_distinct_cpu_us"),
)
RESULTS = HERE / "results" / "registry.json"
DOCUMENT = HERE.parent / "docs" / "explanation" / "performance.md"
_BLOCK = re.compile(r"(<!-- bench: registry -->\n).*?(\n<!-- /bench -->)", re.DOTALL)


def documented(text: str, results: list[dict[str, Any]]) -> str:
    """The document with the table of these results."""
    return _BLOCK.sub(lambda found: found[1] + report(results) + found[2], text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--keep", action="store_true", help="write bench/results/registry.json and the documentation")
    asked = parser.parse_args()
    results = []
    for size in map(int, asked.sizes.split(",")):
        with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
            results.append(Run(size, Path(folder)).go())
    print(report(results))
    if asked.keep:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        machine = {"python": platform.python_version(), "cores": os.cpu_count()}
        RESULTS.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
        DOCUMENT.write_text(documented(DOCUMENT.read_text(), results))


if __name__ == "__main__":
    main()
