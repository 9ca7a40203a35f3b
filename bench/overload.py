"""The service under more load than it can carry: an open loop of 1, 2 and 5 times the measured capacity.

    python -m bench.overload [--agents 10000] [--seconds 20] [--factors 1,2,5] [--only search] [--priority] [--keep]

The generator is a process of its own and sends by a schedule, whether or not earlier requests were answered: a closed loop slows
down with the service and never sees its queue. Latency counts from the scheduled time. The mix is 70 % searches, 20 % reads,
8 % renewals and 2 % updates; health checks come beside it. Cheap requests are refused last, so the goodput of the mix can be
above 1; `--only search` shows what is lost when all requests cost the same. With two cores or more, the service has one and the
generator another. The capacity is measured before and after, by eight clients that wait for their answers.

On a machine with other work, `--priority` (Linux, root) puts the run before it. A run in which the service did not have its core,
or in which the generator was late, is no measurement: the exit code is 2.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import uvloop

from bench import saved_results
from bench.corpus import documents, questions
from bench.load import measure, request_bytes
from bench.registry import waypost

RESULTS = saved_results.HERE / "results" / "overload.json"
PAGE = saved_results.DOCS / "overload.md"
CONNECTIONS = 1000
TIMEOUT_SECONDS = 10.0
HEALTH_PER_SECOND = 20
UNSENT = -1  # the status of a request for which no connection was free: CONNECTIONS of them wait for answers
CAPACITY_CLIENTS = 8
RECOVERY_SECONDS = 10.0
RECOVERY_LOAD = 0.5  # of capacity: what a service that recovered answers in time and without refusals
SCHEDULING_GROUP = Path("/proc/self/autogroup")  # Linux weighs sessions against each other, not processes
GROUP_PRIORITY = -18
MIX = (("search", 0.70), ("read", 0.20), ("renew", 0.08), ("update", 0.02))
GOALS = {
    "goodput": 0.8,
    "admitted_p99_ms": 250.0,
    "renewals": 0.99,
    "health": 0.99,
    "rss_mb": 64.0,
    "normal_after_s": 5.0,
}
CORE_SHARE = 0.9  # of its core that the service must have had while it was overloaded
GENERATOR_LATE_MS = 50.0


class Mix:
    """Requests of each kind; a search is never repeated, so that no cache answers it."""

    def __init__(self, agents: list[dict[str, Any]], token: str, seed: int = 7, only: str | None = None) -> None:
        self._kinds = [(kind, share) for kind, share in MIX if only in (None, kind)]
        self._dice = random.Random(seed)
        self._auth = {"Authorization": f"Bearer {token}"}
        self._agents = agents
        self._questions = questions(seed)
        self._numbers = count(1)
        self.health = request_bytes("GET", "/healthz")

    def draw(self) -> tuple[str, bytes]:
        kind = self._dice.choices([name for name, _ in self._kinds], [share for _, share in self._kinds])[0]
        return kind, self.make(kind)

    def make(self, kind: str) -> bytes:
        agent = self._dice.choice(self._agents)
        path = "/api/v1/agents/" + quote(agent["id"], safe="")
        if kind == "search":
            body = json.dumps({"query": next(self._questions)}).encode()
            return request_bytes("POST", "/profile/v1/discover", body, self._auth)
        if kind == "read":
            return request_bytes("GET", path, b"", self._auth)
        if kind == "renew":
            return request_bytes("POST", path + ":renew", b'{"ttl_seconds":3600}', self._auth)
        changed = {**agent, "description": f"{agent.get('description', '')} {next(self._numbers)}"}
        changed.pop("updated_at", None)
        return request_bytes("POST", "/api/v1/agents", json.dumps(changed).encode(), self._auth)


@dataclass
class Answered:
    kind: str
    status: int  # 0: no answer in time, or a lost connection
    seconds: float
    has_retry_after: bool = False
    at: float = 0.0  # the scheduled time


@dataclass
class OpenLoop:
    """Sends each request at its time, over an idle connection or a new one."""

    port: int
    answered: list[Answered] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # how long after its time each request was sent
    _start: float = 0.0
    _idle: list[_Connection] = field(default_factory=list)
    _open: int = 0
    _pending: int = 0

    async def run(self, schedule: list[tuple[float, str, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        start = self._start = loop.time() + 0.05
        tasks = set()
        for at, kind, wire in schedule:
            delay = start + at - loop.time()
            await asyncio.sleep(max(0.0, delay))  # also if it is late: answers must be read on time
            self.late.append(max(0.0, loop.time() - start - at))
            if self._idle:
                self._idle.pop().send(kind, wire, start + at)
            elif self._open < CONNECTIONS:
                self._open += 1
                task = asyncio.ensure_future(self._connect(kind, wire, start + at))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                self.answered.append(Answered(kind, UNSENT, TIMEOUT_SECONDS, at=at))
        end = loop.time() + TIMEOUT_SECONDS
        while self._pending + len(tasks) and loop.time() < end:
            await asyncio.sleep(0.02)
        self.answered += [Answered("lost", 0, TIMEOUT_SECONDS, at=schedule[-1][0])] * self._pending
        for connection in list(self._idle):
            connection.close()
        await asyncio.sleep(0.05)

    async def _connect(self, kind: str, wire: bytes, scheduled_at: float) -> None:
        self._pending += 1
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self), "127.0.0.1", self.port
            )
        except OSError:
            self._pending -= 1
            self._open -= 1
            self.answered.append(Answered(kind, 0, TIMEOUT_SECONDS, at=scheduled_at - self._start))
            return
        self._pending -= 1
        connection.send(kind, wire, scheduled_at)

    def began(self) -> None:
        self._pending += 1

    def ended(self, connection: _Connection, answer: Answered, *, is_open: bool) -> None:
        self._pending -= 1
        answer.at -= self._start
        self.answered.append(answer)
        if is_open:
            self._idle.append(connection)

    def closed(self, connection: _Connection) -> None:
        self._open -= 1
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    def __init__(self, loop: OpenLoop) -> None:
        self._loop = loop
        self._buffer = bytearray()
        self._request: tuple[str, float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, kind: str, wire: bytes, scheduled_at: float) -> None:
        self._request = (kind, scheduled_at)
        self._loop.began()
        self._transport.write(wire)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._request is None:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        self._buffer.clear()
        (kind, scheduled_at), self._request = self._request, None
        seconds = asyncio.get_running_loop().time() - scheduled_at
        answer = Answered(kind, int(head[9:12]), seconds, b"\r\nretry-after:" in head, scheduled_at)
        self._loop.ended(self, answer, is_open=b"connection: close" not in head)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._request is not None:
            kind, scheduled_at = self._request
            self._loop.ended(self, Answered(kind, 0, TIMEOUT_SECONDS, at=scheduled_at), is_open=False)
        self._loop.closed(self)


def schedule(mix: Mix, rate: float, seconds: float) -> list[tuple[float, str, bytes]]:
    """Poisson arrivals of the mix, and health checks at even times."""
    dice, at, planned = random.Random(11), 0.0, []
    while (at := at + dice.expovariate(rate)) < seconds:
        planned.append((at, *mix.draw()))
    planned += [
        (number / HEALTH_PER_SECOND, "health", mix.health) for number in range(int(seconds * HEALTH_PER_SECOND))
    ]
    return sorted(planned, key=lambda each: each[0])


def run_open_loop(port: int, mix: Mix, rate: float, seconds: float) -> OpenLoop:
    planned = schedule(mix, rate, seconds)
    generator = OpenLoop(port)
    gc.disable()  # a collection among so many prepared requests would make the next ones late
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(generator.run(planned))
    finally:
        gc.enable()
    return generator


def summarize(answered: list[Answered], seconds: float, capacity: float) -> dict[str, Any]:
    admitted = [each for each in answered if 200 <= each.status < 300]
    refused = [each for each in answered if each.status in (429, 503)]
    load = [each for each in admitted if each.kind != "health"]
    return {
        "offered_per_second": round(len(answered) / seconds),
        "goodput": round(len(load) / seconds / capacity, 3),
        "admitted_p50_ms": _percentile(load, 0.5),
        "admitted_p99_ms": _percentile(load, 0.99),
        "refused_p99_ms": _percentile(refused, 0.99),
        "refused": len(refused),
        "refused_without_retry_after": sum(not each.has_retry_after for each in refused),
        "unsent": sum(each.status == UNSENT for each in answered),
        "failed": sum(each.status != UNSENT for each in answered) - len(admitted) - len(refused),
        "has_renewals": any(each.kind == "renew" for each in answered),
        "renewals": _share(answered, "renew"),
        "health": _share(answered, "health"),
        "admitted": {kind: _share(answered, kind) for kind, _ in MIX},
        "p99_ms": {kind: _percentile([each for each in load if each.kind == kind], 0.99) for kind, _ in MIX},
    }


def find_normal(answered: list[Answered]) -> float:
    """When the last request was scheduled that was refused, lost, or answered later than the goal."""
    late = GOALS["admitted_p99_ms"] / 1e3
    return round(
        max((each.at for each in answered if not 200 <= each.status < 300 or each.seconds > late), default=0.0), 1
    )


def _share(answered: list[Answered], kind: str) -> float:
    of_kind = [each for each in answered if each.kind == kind and each.status != UNSENT]
    return round(sum(200 <= each.status < 300 for each in of_kind) / max(1, len(of_kind)), 4)


def _percentile(answered: list[Answered], share: float) -> float:
    if not answered:
        return 0.0
    times = sorted(each.seconds for each in answered)
    return round(1e3 * times[min(len(times) - 1, int(len(times) * share))], 1)


def measure_capacity(port: int, process: psutil.Process, mix: Mix, seconds: float) -> float:
    """Requests per second of a closed loop that keeps the service busy."""
    first = measure(port, process, [mix.draw()[1] for _ in range(300)], clients=CAPACITY_CLIENTS)
    wires = [mix.draw()[1] for _ in range(int(first.rate * seconds))]
    measured = measure(port, process, wires, clients=CAPACITY_CLIENTS)
    if measured.failed:
        raise RuntimeError(f"{measured.failed} requests failed while the capacity was measured")
    return measured.rate


def fill(port: int, process: psutil.Process, agents: list[dict[str, Any]], token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
    lines = [json.dumps(agent).encode() + b"\n" for agent in agents]
    batches = [b"".join(lines[start : start + 500]) for start in range(0, len(lines), 500)]
    measure(
        port, process, [request_bytes("POST", "/api/v1/agents:batch", body, headers) for body in batches], clients=1
    )


def pin(process: psutil.Process) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        process.cpu_affinity([cores[0]])
        os.sched_setaffinity(0, {cores[1]})


def run(agents: int, seconds: float, factors: list[float], only: str | None = None) -> dict[str, Any]:
    corpus = list(documents(agents))
    with (
        tempfile.TemporaryDirectory() as folder,
        waypost(Path(folder), "--embedder", "none") as (port, process, token, _),
    ):
        pin(process)
        fill(port, process, corpus, token)
        time.sleep(2.0)
        mix = Mix(corpus, token, only=only)
        capacity = measure_capacity(port, process, mix, min(seconds, 5.0))
        results: dict[str, Any] = {"agents": agents, "seconds": seconds, "capacity_per_second": round(capacity)}
        for factor in factors:
            results[f"x{factor:g}"] = figures = run_factor(port, process, mix, capacity, factor, seconds)
            print(f"x{factor:g}", json.dumps(figures), flush=True)
        results["capacity_after"] = round(measure_capacity(port, process, mix, min(seconds, 5.0)))
        return results


def run_factor(
    port: int, process: psutil.Process, mix: Mix, capacity: float, factor: float, seconds: float
) -> dict[str, Any]:
    before, used = process.memory_info().rss, _processor_seconds(process)
    overload = run_open_loop(port, mix, capacity * factor, seconds)
    figures = summarize(overload.answered, seconds, capacity)
    figures["core_share"] = round((_processor_seconds(process) - used) / seconds, 2)
    figures["generator_late_p99_ms"] = round(1e3 * sorted(overload.late)[int(len(overload.late) * 0.99)], 1)
    after = run_open_loop(port, mix, capacity * RECOVERY_LOAD, RECOVERY_SECONDS).answered
    figures["rss_mb"] = round((process.memory_info().rss - before) / 2**20, 1)
    figures["normal_after_s"] = find_normal(after)
    return figures


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def missed(figures: dict[str, Any]) -> Iterator[str]:
    """The goals that a run at several times the capacity did not meet."""
    for name, goal in GOALS.items():
        if name == "renewals" and not figures["has_renewals"]:
            continue
        is_met = figures[name] <= goal if name.endswith(("_ms", "_mb", "_s")) else figures[name] >= goal
        if not is_met:
            yield f"{name} is {figures[name]}, the goal is {goal}"
    for name in ("refused_without_retry_after", "failed", "unsent"):
        if figures[name]:
            yield f"{name} is {figures[name]}"


def table(results: dict[str, Any]) -> str:
    lines = [
        "| offered | answered ÷ capacity | p99 of answers | renewals | health checks | reads | searches | growth of memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in results.items():
        if name.startswith("x"):
            shares = (each["renewals"], each["health"], each["admitted"]["read"], each["admitted"]["search"])
            cells = [
                f"{each['goodput']:.2f}",
                f"{each['admitted_p99_ms']:.0f} ms",
                *(f"{share:.1%}" for share in shares),
            ]
            lines.append(f"| {name[1:]} × capacity | {' | '.join(cells)} | {each['rss_mb']:.0f} MB |")
    return "\n".join(lines)


def disturbed(figures: dict[str, Any], factor: float) -> Iterator[str]:
    """Why a run is no measurement."""
    if factor >= 2 and figures["core_share"] < CORE_SHARE:
        yield f"other programs ran on the service's core: it had {figures['core_share']:.0%}"
    if figures["generator_late_p99_ms"] > GENERATOR_LATE_MS:
        yield f"the generator was {figures['generator_late_p99_ms']:g} ms late"


def run_with_priority(arguments: list[str]) -> int:
    """The same in a session of its own, which the system prefers to others."""
    command = [sys.executable, "-m", "bench.overload", *arguments, "--preferred"]
    return subprocess.run(command, start_new_session=True, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--factors", default="1,2,5")
    parser.add_argument("--only", choices=[kind for kind, _ in MIX], help="requests of one kind instead of the mix")
    parser.add_argument("--priority", action="store_true", help="put this run before other programs (Linux, root)")
    parser.add_argument("--preferred", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    if options.priority:
        return run_with_priority([each for each in sys.argv[1:] if each != "--priority"])
    if options.preferred:
        SCHEDULING_GROUP.write_text(str(GROUP_PRIORITY))
    factors = [float(text) for text in options.factors.split(",")]
    results = run(options.agents, options.seconds, factors, options.only)
    print(f"capacity: {results['capacity_per_second']} requests per second, {results['capacity_after']} afterwards")
    measured = {factor: results[f"x{factor:g}"] for factor in factors}
    reasons = [f"x{factor:g}: {text}" for factor, each in measured.items() for text in disturbed(each, factor)]
    failures = [f"x{factor:g}: {text}" for factor, each in measured.items() if factor > 1 for text in missed(each)]
    print("\n".join(failures) or "all goals met")
    if reasons:
        print("\n".join(["not a measurement:", *reasons]))
    elif options.keep and options.only is None:
        saved_results.write(RESULTS, results)
        PAGE.write_text(saved_results.with_block(PAGE.read_text("utf-8"), "overload", table(results)), "utf-8")
    return 2 if reasons else 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
