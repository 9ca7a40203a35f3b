"""Nodes as processes, over PostgreSQL with quorum standbys, under faults: what any node acknowledged is never lost or overtaken.

Writers increase counters by conditional requests, each time on another node, so that a lost update shows as a number that was
acknowledged twice. Readers compare other nodes with what was acknowledged before they asked. A watcher resumes at any node.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from tests.service.cluster.conftest import Cluster

from support.ports import free_port
from support.postgresql import PostgresqlServer, running_postgresql
from support.server import RunningServer
from support.service import profile
from waypost.model.events import EVENT_TYPES

AGENTS = 12
WRITERS = 4
PATIENCE_SECONDS = 60.0


@contextmanager
def running_quorum() -> Iterator[tuple[PostgresqlServer, list[PostgresqlServer]]]:
    """A primary that waits for one of two standbys."""
    settings = ("wal_level = replica", "max_wal_senders = 6", "hot_standby = on")
    with running_postgresql(settings=settings) as primary, ExitStack() as stack:
        standbys = []
        for number in range(2):
            standby = primary.clone(primary.folder / f"standby-{number}", free_port())
            stack.callback(standby.stop_if_running)
            standbys.append(standby)
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'", "SELECT pg_reload_conf()")
        yield primary, standbys


class Workload:
    """Writers, readers and a watcher, until `stop`. `violations` are broken guarantees."""

    def __init__(self, nodes: list[RunningServer]) -> None:
        self.nodes = nodes
        self.headers = nodes[0].headers
        self.acknowledged: dict[str, int] = {}
        self.count = self.reads = 0
        self.violations: list[str] = []
        self.events: list[tuple[str, str]] = []  # cursor and agent, as the watcher received them
        self.was_cut_off = False
        self._seen: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        works: list[Callable[[random.Random], None]] = [*[self._write] * WRITERS, self._read, self._read, self._watch]
        self._threads = [
            threading.Thread(target=self._run, args=(work, random.Random(number)), daemon=True)
            for number, work in enumerate(works)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _run(self, work: Callable[[random.Random], None], chance: random.Random) -> None:
        while not self._ended.is_set():
            try:
                work(chance)
            except httpx2.HTTPError:  # the node is down: not acknowledged
                self._ended.wait(0.05)

    def url(self, chance: random.Random, agent: str = "") -> str:
        return f"{chance.choice(self.nodes).url}/api/v1/agents{agent and '/'}{quote(agent, safe='')}"

    def _write(self, chance: random.Random) -> None:
        agent = f"urn:agent:{chance.randrange(AGENTS)}"
        found = httpx2.get(self.url(chance, agent), headers=self.headers, timeout=10)
        if found.status_code not in (200, 404) or "waypost-stale" in found.headers:
            return
        number = count_of(found) + 1
        guard = {"If-Match": found.headers["etag"]} if found.status_code == 200 else {"If-None-Match": "*"}
        document = profile(agent, description=f"Counted {number}.")
        written = httpx2.post(self.url(chance), json=document, headers=self.headers | guard, timeout=10)
        if written.is_success:
            with self._lock:
                self.count += 1
                self._seen[agent, number] += 1
                if self._seen[agent, number] > 1:
                    self.violations.append(f"{agent} was counted to {number} twice")
                self.acknowledged[agent] = max(number, self.acknowledged.get(agent, 0))

    def _read(self, chance: random.Random) -> None:
        agent = f"urn:agent:{chance.randrange(AGENTS)}"
        expected = self.acknowledged.get(agent, 0)
        found = httpx2.get(self.url(chance, agent), headers=self.headers, timeout=10)
        if found.status_code in (200, 404) and "waypost-stale" not in found.headers:
            self.reads += 1
            if count_of(found) < expected:
                self.violations.append(f"{agent} was {count_of(found)} after {expected} was acknowledged")

    def _watch(self, chance: random.Random) -> None:
        cursor = self.events[-1][0] if self.events else "0"
        url = f"{chance.choice(self.nodes).url}/api/v1/watch?from={cursor}"
        with httpx2.stream("GET", url, headers=self.headers, timeout=3) as stream:
            if stream.status_code == 410:
                self.was_cut_off = True
                self.events.clear()
                return
            last, kind = "", ""
            for line in stream.iter_lines():
                if line.startswith("id:"):
                    last = line.removeprefix("id:").strip()
                if line.startswith("event:"):
                    kind = line.removeprefix("event:").strip()
                if line.startswith("data:") and kind in EVENT_TYPES:
                    self.events.append((last, json.loads(line.removeprefix("data:"))["id"]))
                if self._ended.is_set():
                    return

    def check(self) -> None:
        """At the end, all nodes agree, and have everything that was acknowledged."""
        for agent, number in self.acknowledged.items():
            answers = {self._settled(node, agent) for node in self.nodes}
            assert len(answers) == 1, f"nodes differ in {agent}"
            assert answers.pop() >= number, f"{agent} lost an acknowledged change"
        revisions = {
            httpx2.get(f"{node.url}/api/v1/stats", headers=self.headers, timeout=10).json()["revision"]
            for node in self.nodes
        }
        assert len(revisions) == 1
        cursors = [cursor for cursor, _ in self.events]
        assert len(set(cursors)) == len(cursors), "an event was received twice"
        assert self.was_cut_off or len(cursors) <= revisions.pop()
        assert not self.violations, self.violations[:5]

    def _settled(self, node: RunningServer, agent: str) -> int:
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            url = f"{node.url}/api/v1/agents/{quote(agent, safe='')}"
            found = httpx2.get(url, headers=self.headers, timeout=10)
            if found.status_code == 200 and "waypost-stale" not in found.headers:
                return count_of(found)
            assert time.monotonic() < ends_at, found.text


def count_of(found: httpx2.Response) -> int:
    if found.status_code == 404:
        return 0
    return int(found.json()["description"].removeprefix("Counted ").rstrip("."))


def pause(node: RunningServer, seconds: float) -> None:
    """As a machine that swaps, or a long pause of a virtual machine."""
    pid = node.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_writes(workload: Workload, count: int) -> None:
    """The service works: so many more writes were acknowledged."""
    wanted, ends_at = workload.count + count, time.monotonic() + PATIENCE_SECONDS
    while workload.count < wanted:
        assert time.monotonic() < ends_at, "no write was acknowledged"
        time.sleep(0.05)


def test_no_guarantee_is_broken_by_the_loss_of_nodes(tmp_path: Path) -> None:
    with running_postgresql() as server, ExitStack() as stack:
        cluster = Cluster(tmp_path, server.create_database(), stack)
        nodes = [cluster.start() for _ in range(3)]
        workload = Workload(nodes)
        workload.start()
        wait_for_writes(workload, 10)
        nodes[1].kill()
        wait_for_writes(workload, 10)
        nodes[1] = cluster.start(name="node-1")
        pause(nodes[2], 1.5)
        wait_for_writes(workload, 10)
        workload.stop()
        workload.check()
    assert workload.reads > 10


@pytest.mark.long
def test_no_guarantee_is_broken_by_a_failover_and_an_empty_node(tmp_path: Path) -> None:
    with running_quorum() as (primary, standbys), ExitStack() as stack:
        url = primary.create_database()
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, *standbys))
        cluster = Cluster(tmp_path, url.replace(f"127.0.0.1:{primary.port}", hosts), stack)
        nodes = [cluster.start("--workers", workers) for workers in ("1", "2", "2")]
        workload = Workload(nodes)
        workload.start()
        wait_for_writes(workload, 20)
        others = "datname IS NOT NULL AND pid <> pg_backend_pid()"
        primary.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        wait_for_writes(workload, 20)
        standbys[1].stop()  # the quorum is left
        wait_for_writes(workload, 20)
        primary.stop()
        standbys[0].promote()
        wait_for_writes(workload, 20)
        pause(nodes[0], 12.0)  # longer than a lease
        nodes[1].kill()
        nodes[1] = cluster.start("--workers", "2", name="empty")
        wait_for_writes(workload, 20)
        workload.stop()
        workload.check()
