"""The figures that the plan for a hundred million agents rests on: memory per agent, cost of the feed, cost of a merge.

    python -m bench.scale [--agents 1000000]

memory   the catalog of a node with this many entries, in a process of its own
feed     a node applies changes of others: groups of the log to the replica, in SQLite, without the index
merge    the best candidates of several cells become one list
What stands under `extrapolated` is computed from these, not measured.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from bench.corpus import documents
from bench.store import NOW, registration
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.entries import entry_of
from waypost.registry.ports import Command, Decision, RegistrationChange
from waypost.stores.postgresql.replica import LogRow, Replica

CELLS = 8
GROUP = 64
FEED_CHANGES = 4096
LOAD_PART = 50_000
RENEWAL_SECONDS = 1800.0  # an agent with a lease of an hour renews it twice in it


def _batched(values: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    source = iter(values)
    while part := tuple(islice(source, size)):
        yield part


def _entries(count: int) -> Iterator[Any]:
    for document in documents(count):
        yield entry_of(registration(document))


def _fill_catalog(count: int, result: Any) -> None:
    process, catalog = psutil.Process(), Catalog()
    before = process.memory_info().rss
    for part in _batched(_entries(count), LOAD_PART):
        catalog.load(part)
    while catalog.prepare():
        pass
    result.put(process.memory_info().rss - before)


def measure_memory(count: int) -> float:
    """Bytes per agent of the catalog, filled as at a start."""
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    process = context.Process(target=_fill_catalog, args=(count, result))
    process.start()
    used = result.get()
    process.join()
    return float(used) / count


def _open_replica(folder: Path) -> Replica:
    replica = Replica(folder, lambda name: None)
    replica.open()
    return replica


def _groups(folder: Path) -> list[LogRow]:
    """Rows of the log, as another node would have written them."""
    replica = _open_replica(folder)
    rows: list[LogRow] = []
    for part in _batched(documents(FEED_CHANGES), GROUP):
        first = replica.tables.revision + 1
        replica.tables.begin()
        for document in part:
            made = registration(document)
            change = RegistrationChange(type="registered", at=NOW, registration=made)
            decision = Decision(outcome="created", change=change)
            replica.tables.execute(Command(keys=(made.id,), decide=lambda held, made=decision: made))
        payload = replica.tables.payload(b"bench") or b""
        replica.commit(len(rows) + 1, b"")
        rows.append(LogRow(len(rows) + 1, first, payload, b"", 0.0))
    replica.close()
    return rows


def measure_feed() -> float:
    """Seconds of processor time for each change of another node."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "writer").mkdir()
        rows = _groups(Path(folder) / "writer")
        replica = _open_replica(Path(folder) / "reader")
        started_at = time.process_time()
        for row in rows:
            replica.apply([row])
        seconds = time.process_time() - started_at
        replica.close()
    return seconds / FEED_CHANGES


def measure_merge(cells: int = CELLS, depth: int = 50) -> float:
    """Seconds to merge the candidates of all cells into the best `depth`."""
    chance = random.Random(1)
    found: list[Sequence[tuple[float, str]]] = [
        sorted((-chance.random(), f"urn:agent:{cell}-{number}") for number in range(depth)) for cell in range(cells)
    ]
    rounds = 2000
    started_at = time.process_time()
    for _ in range(rounds):
        merged = [each for each, _ in zip(heapq.merge(*found), range(depth), strict=False)]
    assert len(merged) == depth
    return (time.process_time() - started_at) / rounds


def extrapolate(bytes_per_agent: float, feed_seconds: float) -> dict[str, Any]:
    return {
        "10M agents on one node": {"catalog_gb": round(bytes_per_agent * 1e7 / 1e9, 1)},
        f"100M agents in {CELLS} cells": {"catalog_gb_per_node": round(bytes_per_agent * 1e8 / CELLS / 1e9, 1)},
        "leased agents that keep one core busy with renewals": int(RENEWAL_SECONDS / feed_seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, default=1_000_000)
    count = parser.parse_args().agents
    feed, merge = measure_feed(), measure_merge()
    memory = measure_memory(count)
    results = {
        "agents": count,
        "catalog_bytes_per_agent": round(memory),
        "feed_microseconds_per_change": round(feed * 1e6),
        f"merge_microseconds_of_{CELLS}_cells": round(merge * 1e6),
        "extrapolated": extrapolate(memory, feed),
    }
    json.dump(results, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
