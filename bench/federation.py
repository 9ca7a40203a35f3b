"""Pulling from a peer: two services in processes of their own, one of which follows the other from the beginning. And the export.

    python -m bench.federation [--agents 100000]

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
from itertools import islice
from pathlib import Path

import httpx2

from bench.cluster import Node, running_node
from bench.corpus import documents

GOALS = {"agents/s": 2500, "exported agents/s": 14_700}  # the second: ten times the export of version 0.1
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, default=100_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="waypost-bench-"))
    try:
        with running_node(folder / "there", *OPEN) as there, running_node(folder / "here", *OPEN) as here:
            load(there, options.agents)
            results = {**pull(here, there, options.agents), **export(there, options.agents)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in results.items():
        print(f"{name:50} {value:10.1f}" + (f"  (goal ≥ {GOALS[name]})" if name in GOALS else ""))


if __name__ == "__main__":
    main()
