"""Stages of the ranker benchmark: build an index, open it, query it, measure its memory.

Each function runs in a fresh process, so that no memory or cache of one stage affects another.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.measures import quantile
from bench.rankers import default_ranker, filling_ranker
from bench.search.agents import agents, unmistakable
from bench.search.borrowed_vectors import borrow_vectors
from bench.search.questions import distinct, paraphrases, repeated
from bench.searchers import ask, settle
from bench.sets import Question
from waypost.model.query import Hit

Figures = dict[str, float]
Find = Callable[[str], list[Hit]]
_FOLD = 5_000
_NEW = 50  # agents that are registered while it is asked
_TRIES = 20
WARM_UP = 100  # questions
_MEGA = 1 << 20


def _at_work() -> bool:
    """Compaction yields to writes: agents keep arriving, as in a service that is being filled."""
    return True


def opened(folder: Path) -> int:
    """The revision of the saved index; 0 if there is none that this version reads."""
    ranker = default_ranker(folder)
    revision = ranker.index.open()
    ranker.close()
    return revision


def build(size: int, folder: Path) -> Figures:
    """Fill a new index with `size` agents and save it. The time to generate agents is excluded."""
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier version, or cut short
    ranker = filling_ranker(folder, lambda embedder: borrow_vectors(embedder.encode, embedder.name, size))
    ranker.index.open()
    making = 0.0
    started = at = time.perf_counter()
    for number, agent in enumerate(agents(size), 1):
        making += time.perf_counter() - at
        ranker.index.put(agent)
        if number % _FOLD == 0:
            ranker.index.maintain(number, _at_work)
        at = time.perf_counter()
    settle(ranker, size)
    seconds = time.perf_counter() - started - making
    peak = psutil.Process().memory_info().rss
    ranker.close()
    return {
        "build_seconds": round(seconds, 2),
        "build_us_per_agent": round(1e6 * seconds / size, 1),
        "build_rss_mib": round(peak / _MEGA, 1),
    }


def saved(folder: Path) -> Figures:
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    return {"saved_mib": round(size / _MEGA, 1)}


def cold(size: int, folder: Path) -> Figures:
    """Time from the start of a new process to the first result that contains the expected agent."""
    for question in (next(paraphrases(size, seed)) for seed in range(_TRIES)):
        started = time.perf_counter()
        command = [sys.executable, "-m", "bench.search.cold_start", str(folder), question.text]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=600).stdout)
        seconds = time.perf_counter() - started
        if told["revision"] < size:
            raise RuntimeError(f"the saved index stands at revision {told['revision']}, not {size}")
        if question.relevant.intersection(told["ids"]):
            return {"cold_start_seconds": round(seconds, 3), "open_seconds": told["seconds"]}
    raise RuntimeError(f"{_TRIES} questions did not find the agent that was meant")


def answer(size: int, folder: Path, count: int) -> Figures:
    """Open the saved index and measure queries."""
    ranker = default_ranker(folder)
    ranker.index.open()
    asked = distinct(size, WARM_UP + count)
    for question in asked[:WARM_UP]:
        ask(ranker, question.text)
    figures = timed(lambda text: ask(ranker, text), asked[WARM_UP:], "")
    figures |= timed(lambda text: ask(ranker, text), repeated(size, count), "repeated_")
    figures |= _newly_put(ranker, size)
    ranker.close()
    return figures


def held(size: int, folder: Path) -> Figures:
    """The memory of a process that has answered two hundred questions and holds nothing else of this benchmark."""
    command = [sys.executable, "-m", "bench.search.cold_start", str(folder), "--held"]
    asked = "\n".join(question.text.replace("\n", " ") for question in distinct(size, 200))
    told = subprocess.run(command, check=True, capture_output=True, timeout=600, input=asked.encode()).stdout
    figures: Figures = json.loads(told)
    return figures


def timed(find: Find, asked: Sequence[Question], prefix: str) -> Figures:
    """Quantiles over all questions, processor time apart from waiting, and how often the agent meant is in the ten."""
    times, used, found = [], [], []
    for question in asked:
        busy, started = time.process_time(), time.perf_counter()
        hits = find(question.text)
        times.append(1e3 * (time.perf_counter() - started))
        used.append(1e3 * (time.process_time() - busy))
        if question.relevant:
            found.append(any(hit.id in question.relevant for hit in hits))
    return {
        f"{prefix}p50_ms": round(quantile(times, 0.5), 3),
        f"{prefix}p95_ms": round(quantile(times, 0.95), 3),
        f"{prefix}p99_ms": round(quantile(times, 0.99), 3),
        f"{prefix}cpu_p50_ms": round(quantile(used, 0.5), 3),
        f"{prefix}cpu_p99_ms": round(quantile(used, 0.99), 3),
        f"{prefix}found_percent": round(100 * statistics.fmean(found), 1) if found else 0.0,
    }


def _newly_put(ranker: Any, size: int) -> Figures:
    """From `put` until a question has the new agent in its answer; every one must be there at once."""
    times, missed = [], 0
    for agent in unmistakable(_NEW, first=size + 1_000_000):
        started = time.perf_counter()
        ranker.index.put(agent)
        hits = ask(ranker, f"what can {agent.record.name} do")
        times.append(1e3 * (time.perf_counter() - started))
        missed += agent.id not in {hit.id for hit in hits}
    return {"new_found_ms_p50": round(quantile(times, 0.5), 2), "new_found_ms_p99": round(quantile(times, 0.99), 2),
            "new_missed": float(missed)}  # fmt: skip
