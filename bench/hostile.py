"""How long hostile input keeps a service busy.

    python -m bench.hostile [--silent 500] [--dead 5000] [--agents 2000]

- texts of 50 kB crafted to be slow, for every parser (CPU time; goal: 10 ms each)
- queries crafted to be expensive (CPU time of the service; goal: 50 ms each)
- idle connections: the p99 of other requests with and without them (goal: less than twice)
- dead endpoints during health checks: the same, and the number of open threads and files (goals: 32 and 600)

The first two are robust against other processes; the others need idle cores.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import httpx2
import msgspec
import psutil

from bench.measures import quantile
from support.server import RunningServer, running_server
from unit.test_slow_texts import LENGTH, READERS, TEXTS
from waypost import limits
from waypost.errors import WaypostError
from waypost.server.http.content_negotiation import MalformedHeader
from waypost.trust.jose import InvalidJws

TEXT_MS: Final = 10.0
QUESTION_MS: Final = 50.0
TIMES: Final = 2.0
_REACHING: Final = {"skeleton": limits.NAME_CHARS, "record": limits.DESCRIPTION_CHARS}  # every dialect refuses more
_SAMPLES: Final = 2000
_ASKED: Final = 30
_TRIES: Final = 3  # the best of them: a first one pays for what is loaded


def _spent_ms(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(_TRIES):
        began = time.process_time()
        with suppress(WaypostError, ValueError, InvalidJws, MalformedHeader):
            work()
        best = min(best, 1000 * (time.process_time() - began))
    return best


def slow_texts() -> list[tuple[str, float]]:
    """For each parser, the slowest text of the largest accepted length."""
    return [(name, _slowest_ms(read, _REACHING.get(name, LENGTH))) for name, read in READERS.items()]


def _slowest_ms(read: Callable[[str], Any], length: int) -> float:
    return max(_spent_ms(lambda t=text[:length]: read(t)) for text in TEXTS)  # type: ignore[misc]


def questions() -> dict[str, dict[str, Any]]:
    most = limits.QUERY_CHARS
    return {
        "as long as may be": {"query": ("translate invoice weather " * most)[:most]},
        "many different words": {"query": " ".join(f"w{number}" for number in range(most))[:most]},
        "many clauses": {"query": ("translate, and then " * most)[:most]},
        "patterns": {"query": ("(a+)+$ .* [^x]* " * most)[:most]},
        "the most answers": {
            "query": "answers questions",
            "limit": limits.DISCOVER_LIMIT_MAX,
            "include_evidence": True,
        },
        "every facet": {"query": "answers", "facets": ["tag", "protocol", "status"], "limit": 100},
        "many filters": {"query": "answers", "excluded_tags": [f"t{number}" for number in range(limits.FILTER_VALUES)]},
    }


def _document(number: int, endpoint: str) -> dict[str, Any]:
    return {
        "id": f"agent-{number}",
        "name": f"Agent {number}",
        "description": f"Answers questions of kind {number % 97} on weather, invoices and translation.",
        "tags": [f"t{number % 500}", f"u{number % 7}"],
        "bindings": [{"protocol": "https", "endpoint": endpoint}],
    }


def _register(http: httpx2.Client, endpoints: Sequence[str]) -> None:
    lines = [msgspec.json.encode(_document(number, place)) for number, place in enumerate(endpoints)]
    answer = http.post("/api/v1/agents:batch", content=b"\n".join(lines), timeout=600)
    assert answer.text.count('"created"') == len(endpoints), answer.text[:300]
    while http.get("/api/v1/stats").json()[
        "indexing_pending"
    ]:  # what is made in the background is none of what is measured
        time.sleep(0.1)


@contextmanager
def _service(*flags: str) -> Iterator[tuple[RunningServer, httpx2.Client]]:
    with (
        running_server(*flags) as server,
        httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http,
    ):
        yield server, http


def expensive_questions(agents: int) -> list[tuple[str, float]]:
    with _service() as (server, http):
        _register(http, [f"https://agent-{number}.example/" for number in range(agents)])
        process = psutil.Process(server.process.pid)
        found = []
        for name, asked in questions().items():
            before = process.cpu_times()
            for number in range(_ASKED):  # each is new: an answer from memory would tell nothing
                query = f"{number} {asked['query']}"[: limits.QUERY_CHARS]
                assert http.post("/profile/v1/discover", json={**asked, "query": query}).status_code in (200, 400)
            after = process.cpu_times()
            found.append((name, 1000 * (after.user + after.system - before.user - before.system) / _ASKED))
        return found


def _p99s_ms(*asked: httpx2.Client) -> list[float]:
    """The p99 of each, measured alternately, so that other load affects all of them."""
    spent: list[list[float]] = [[] for _ in asked]
    for number in range(_SAMPLES):
        for http, times in zip(asked, spent, strict=True):
            began = time.perf_counter()
            assert http.get(f"/api/v1/agents/agent-{number % 50}").status_code == 200
            times.append(1000 * (time.perf_counter() - began))
    return [quantile(times, 0.99) for times in spent]


def silent_connections(count: int) -> list[float]:
    """The p99 without and with idle connections; half of them have begun a request."""
    with _service() as (_, quiet), _service() as (server, http), ExitStack() as stack:
        for each in (quiet, http):
            _register(each, [f"https://agent-{number}.example/" for number in range(50)])
        host, port = httpx2.URL(server.url).host, httpx2.URL(server.url).port or 80
        for number in range(count):
            connection = stack.enter_context(socket.create_connection((host, port)))
            if number % 2:
                connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        return _p99s_ms(quiet, http)


@contextmanager
def _black_hole() -> Iterator[int]:
    """A port on every loopback address that accepts no connection: its backlog is full."""
    with ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("0.0.0.0", 0))
        hole.listen(0)
        port: int = hole.getsockname()[1]
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


def dead_endpoints(count: int) -> dict[str, float]:
    """During a round of health checks of endpoints that never answer."""
    lexical = ("--embedder", "none")
    flags = (*lexical, "--health-checks", "--allow-cidrs", "127.0.0.0/8")
    with _black_hole() as port, _service(*flags) as (server, http), _service(*lexical) as (_, quiet):
        endpoints = [
            f"http://127.{1 + number // 60_000}.{number // 250 % 240}.{1 + number % 250}:{port}/"
            for number in range(count)
        ]
        _register(quiet, endpoints)
        watched = Watched(server, count)
        watched.start()
        _register(http, endpoints)
        before, beside = _p99s_ms(quiet, http)
        watched.join(600)
        return {
            "p99 ms, no checks": before,
            "p99 ms, beside checks": beside,
            "seconds of a round": watched.seconds,
            "open files": watched.files,
            "threads": watched.threads,
        }


class Watched(threading.Thread):
    """Observe a process until this many endpoints were checked: the time, and the most open threads and files."""

    def __init__(self, server: RunningServer, count: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._count = count
        self.seconds = self.files = self.threads = 0.0

    def run(self) -> None:
        process = psutil.Process(self._server.process.pid)
        began = time.perf_counter()
        with httpx2.Client(base_url=self._server.url, headers=self._server.headers, timeout=60) as http:
            while _checks(http) < self._count:
                self.files = max(self.files, process.num_fds())
                self.threads = max(self.threads, process.num_threads())
                time.sleep(1)  # seldom: the figures that it asks for take their own time
        self.seconds = time.perf_counter() - began


def _checks(http: httpx2.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("waypost_health_checks ")), 0.0)


def _told(name: str, value: float, goal: float, unit: str) -> str:
    return f"  {name:<28} {value:8.2f} {unit} (< {goal:g}{', missed' if value >= goal else ''})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silent", type=int, default=500)
    parser.add_argument("--dead", type=int, default=5000)
    parser.add_argument("--agents", type=int, default=2000)
    asked = parser.parse_args()
    print("50 kB made to be slow")
    for name, spent in slow_texts():
        print(_told(name, spent, TEXT_MS, "ms"))
    print("questions made to be expensive")
    for name, spent in expensive_questions(asked.agents):
        print(_told(name, spent, QUESTION_MS, "ms"))
    if asked.silent:
        before, beside = silent_connections(asked.silent)
        print(f"{asked.silent} silent connections: p99 {before:.2f} ms, then {beside:.2f} ms")
        print(_told("beside them", beside / before, TIMES, "times"))
    if asked.dead:
        print(f"{asked.dead} dead endpoints")
        for name, value in dead_endpoints(asked.dead).items():
            print(f"  {name:<28} {value:8.2f}")


if __name__ == "__main__":
    main()
