"""Pulling from a peer: two services in processes of their own, one of which follows the other from the beginning. And the export.

    python -m bench.federation [--agents 100000]
    python -m bench.federation --misbehaving      local searches with and without peers that misbehave, in turns

The rate belongs to the machine and to what else it does; the processor time of an agent, at the reader and at the peer, does so
much less. Both services use SQLite with synchronous=FULL and lexical search. The reader indexes what it pulls meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import httpx2

from bench.cluster import Node, running_node
from bench.corpus import documents
from bench.measures import quantile
from support.peer_process import RemotePeer, remote_peers

GOALS = {
    "agents/s": "≥ 2500",
    "exported agents/s": "≥ 14700",  # ten times the export of version 0.1
    "p99 beside misbehaving peers ÷ alone": "≤ 1.2",
}
MISBEHAVING = ("hanging", "dripping", "flooding", "looping", "forking", "empty", "changed", "greedy")
TURNS = 20
SEARCHES = 200  # of a turn
SYNC_EVERY = 100  # searches, where peers are tried by force: by themselves, failing ones are tried once a minute
BATCH = 1000
OPEN = ("--anonymous-read", "--allow-cidrs", "127.0.0.0/8", "--hourly-bytes-per-owner", "0", "--agents-per-owner", "0")


def load(node: Node, count: int) -> None:
    headers = {**node.headers, "Content-Type": "application/x-ndjson"}
    with httpx2.Client(base_url=node.url, headers=headers, timeout=120) as client:
        made = documents(count)
        while part := list(islice(made, BATCH)):
            answer = client.post("/api/v1/agents:batch", content="\n".join(map(json.dumps, part)))
            assert answer.is_success, answer.text[:500]
            assert '"error"' not in answer.text, answer.text[:500]


def cpu_seconds(node: Node) -> float:
    used = node.process.cpu_times()
    return float(used.user + used.system)


def export(node: Node, count: int) -> dict[str, float]:
    """`GET /api/v1/agents:export`, to the end."""
    started_at, lines = time.monotonic(), 0
    with (
        httpx2.Client(base_url=node.url, headers=node.headers, timeout=120) as client,
        client.stream("GET", "/api/v1/agents:export") as answer,
    ):
        assert answer.status_code == 200, answer.status_code
        for part in answer.iter_raw():
            lines += part.count(b"\n")
    assert lines >= count, lines
    return {"exported agents/s": count / (time.monotonic() - started_at)}


def pull(here: Node, there: Node, count: int) -> dict[str, float]:
    before = [cpu_seconds(node) for node in (here, there)]
    started_at = time.monotonic()
    body = {"url": there.url, "name": "there", "max_records": count}
    with httpx2.Client(base_url=here.url, headers=here.headers, timeout=60) as client:
        assert client.post("/api/v1/peers", json=body).status_code == 201
        while True:
            peer = client.get("/api/v1/peers/there").json()
            assert not peer["error"], peer
            if peer["complete"]:
                break
            time.sleep(0.2)
    took = time.monotonic() - started_at
    used = [cpu_seconds(node) - was for node, was in zip((here, there), before, strict=True)]
    assert peer["records"] == count, peer
    return {
        "agents": count,
        "seconds": took,
        "agents/s": count / took,
        "processor time of an agent at the reader, µs": used[0] / count * 1e6,
        "processor time of an agent at the peer, µs": used[1] / count * 1e6,
        "load average": os.getloadavg()[0],
    }


def misbehave(peers: list[RemotePeer]) -> None:
    hanging, dripping, flooding, looping, forking, empty, changed, greedy = peers
    hanging.behave("hang")
    dripping.behave("drip")
    flooding.behave("flood")
    empty.behave("empty")
    looping.change(cursor="again", names=[f"looping-{number}" for number in range(1000)])
    forking.change(service_id="urn:uuid:00000000-0000-4000-8000-00000000ffff")
    changed.change(key_number=2)
    greedy.change(names=[f"greedy-{number}" for number in range(1000)])


def searches(client: httpx2.Client, forced: Sequence[str] = ()) -> list[float]:
    """Seconds of each search. `forced` are peers that are pulled from meanwhile, without waiting for their backoff."""
    found = []
    for number in range(SEARCHES):
        if number % SYNC_EVERY == 0:
            for name in forced:
                client.post(f"/api/v1/peers/{name}:sync")
        started_at = time.perf_counter()
        assert client.post("/profile/v1/discover", json={"query": f"ledger {number}"}).is_success
        found.append(time.perf_counter() - started_at)
    return found


def measure_turns(quiet: httpx2.Client, busy: httpx2.Client, forced: Sequence[str] = ()) -> dict[str, float]:
    """Both services are asked in turns, so that what else the machine does delays both."""
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(TURNS):
        alone += searches(quiet)
        beside += searches(busy, forced)
    named = {"search alone": alone, "search beside them": beside}
    found = {
        f"{name}, {label} ms": 1000 * quantile(values, share)
        for name, values in named.items()
        for label, share in (("p50", 0.5), ("p99", 0.99))
    }
    ratio = found["search beside them, p99 ms"] / found["search alone, p99 ms"]
    return {**found, "p99 beside misbehaving peers ÷ alone": ratio}


def measure_misbehaving(folder: Path) -> dict[str, float]:
    """Two services with the same agents, of which one follows peers that begin to misbehave."""
    with (
        running_node(folder / "quiet", *OPEN) as quiet,
        running_node(folder / "busy", *OPEN) as busy,
        remote_peers(len(MISBEHAVING), "127.0.0.1") as peers,
        httpx2.Client(base_url=quiet.url, headers=quiet.headers, timeout=60) as quiet_client,
        httpx2.Client(base_url=busy.url, headers=busy.headers, timeout=60) as busy_client,
    ):
        for node in (quiet, busy):
            load(node, 1000)
        for peer, name in zip(peers, MISBEHAVING, strict=True):
            body = {"url": peer.url, "name": name, "max_records": 500}
            assert busy_client.post("/api/v1/peers", json=body).status_code == 201
        for client in (quiet_client, busy_client):  # warms up
            searches(client)
        misbehave(peers)
        results = measure_turns(quiet_client, busy_client)
        forced = measure_turns(quiet_client, busy_client, MISBEHAVING)
    return {
        **results,
        **{f"{name}, tried by force": value for name, value in forced.items()},
        "load average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--misbehaving", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="waypost-bench-"))
    try:
        if options.misbehaving:
            results = measure_misbehaving(folder)
        else:
            with running_node(folder / "there", *OPEN) as there, running_node(folder / "here", *OPEN) as here:
                load(there, options.agents)
                results = {**pull(here, there, options.agents), **export(there, options.agents)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in results.items():
        print(f"{name:52} {value:10.2f}" + (f"  (goal {GOALS[name]})" if name in GOALS else ""))


if __name__ == "__main__":
    main()
