"""Loading many agents over HTTP: to durable, to found by words, to vectors complete; and the memory afterwards.

    python -m bench.search.bulk_load [--size 10000] [--batch 1000]

The same documents go in batches to the server that a user would write in an afternoon (bench/baseline_registry.py), which has no
search. Documents are generated before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

from bench.measures import quantile
from bench.registry import HERE, free_port, running
from bench.search.agents import agents, unmistakable
from bench.search.questions import distinct
from bench.search.service_load import memory_of
from bench.search.work_folder import mark_filled, service_of, start_anew
from bench.searchers import OverHttp
from bench.sets import ndjson
from waypost.model.registration import Registration

Figures = dict[str, float]
_BATCH = 1000
_QUESTIONS = 300
_NEW = 20
_VECTORS_SECONDS = 1800


def bulk_load(size: int, folder: Path, batch: int = _BATCH, *, wait: bool = True) -> Figures:
    """Fill a new service. `wait` until its vectors are complete."""
    start_anew(folder)
    figures = _load_baseline(size, folder / "afternoon.sqlite3", batch)
    service = OverHttp(service_of(folder))
    try:
        figures |= _load(service, size, batch)
        if wait:
            figures["vectors_seconds"] = _wait_for_vectors(service)
        figures |= _ask(service, size)
        figures |= memory_of(service.process)
    finally:
        service.close()
    service = OverHttp(service_of(folder))
    try:
        figures["restart_seconds"] = round(service.start_seconds, 2)
        figures["restarted_pss_mib"] = memory_of(service.process)["pss_mib"]
    finally:
        service.close()
    if wait:
        mark_filled(folder)
    return figures


def _batches(size: int, batch: int) -> Iterator[bytes]:
    group: list[Registration] = []
    for agent in agents(size):
        group.append(agent)
        if len(group) == batch:
            yield ndjson(group)
            group = []
    if group:
        yield ndjson(group)


def _load(service: OverHttp, size: int, batch: int) -> Figures:
    seconds = 0.0
    for body in _batches(size, batch):
        started = time.perf_counter()
        service.register_lines(body)
        seconds += time.perf_counter() - started
    found = _find_new(service, size)
    return {
        "registered_per_second": round(size / seconds, 1),
        "loaded_pss_mib": memory_of(service.process)["pss_mib"],
        **found,
    }


def _find_new(service: OverHttp, size: int) -> Figures:
    """From the acknowledgement to the answer with the agent, right after the load."""
    times, missed = [], 0
    for agent in unmistakable(_NEW, first=size + 2_000_000):
        service.register([agent])
        started = time.perf_counter()
        hits = service.find(f"what can {agent.record.name} do")
        times.append(1e3 * (time.perf_counter() - started))
        missed += agent.id not in {hit.id for hit in hits}
    return {"new_found_ms_max": round(max(times), 2), "new_missed": float(missed)}


def _wait_for_vectors(service: OverHttp) -> float:
    started = time.perf_counter()
    while pending := service.stats()["indexing_pending"]:
        if time.perf_counter() - started > _VECTORS_SECONDS:
            raise RuntimeError(f"{pending} changes are still pending")
        time.sleep(0.2)
    return round(time.perf_counter() - started, 1)


def _ask(service: OverHttp, size: int) -> Figures:
    times, found = [], []
    for question in distinct(size, _QUESTIONS):
        started = time.perf_counter()
        hits = service.find(question.text)
        times.append(1e3 * (time.perf_counter() - started))
        if question.relevant:
            found.append(any(hit.id in question.relevant for hit in hits))
    return {
        "http_p50_ms": round(quantile(times, 0.5), 2),
        "http_p99_ms": round(quantile(times, 0.99), 2),
        "http_found_percent": round(100 * sum(found) / len(found), 1),
    }


def _load_baseline(size: int, file: Path, batch: int) -> Figures:
    port = free_port()
    with running([sys.executable, str(HERE / "baseline_registry.py"), str(port), str(file)], port):
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        seconds = 0.0
        for body in _batches(size, batch):
            started = time.perf_counter()
            connection.request("POST", "/agents:batch", body, {"Content-Type": "application/x-ndjson"})
            response = connection.getresponse()
            response.read()
            seconds += time.perf_counter() - started
            if response.status != 200:
                raise RuntimeError(f"the baseline answered {response.status}")
        connection.close()
    return {"baseline_per_second": round(size / seconds, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=_BATCH)
    parser.add_argument("--no-vectors", action="store_true", help="do not wait for them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
        print(json.dumps(bulk_load(given.size, Path(folder), given.batch, wait=not given.no_vectors), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
