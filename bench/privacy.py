"""Whether response times reveal agents that the caller may not see.

    python -m bench.privacy [--samples 1000] [--only TEXT] [--keep]

An outsider sends the same requests, reads and writes, to two services with the same history, one of which then got a thousand
private agents; alternately and in random order. For each kind of request: the median difference as a share of the median, and
its significance by a permutation test. The goal is less than 5 % and nothing significant at 0.001. CPU time is measured, so
other processes hardly matter; both services are recreated in every round, because memory layout may favour one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import numpy.typing as npt

from bench import saved_results
from bench.paired_services import PRIVATE, TAGS, WORDS, opened, profile, twins

RESULTS = saved_results.HERE / "results" / "privacy.json"
DOCUMENT = saved_results.DOCS / "performance.md"
ROUNDS: Final = 3
MOST_PERCENT: Final = 5.0
SIGNIFICANT: Final = 0.001
_WARM: Final = 30
_DEALT: Final = 4000  # permutations

Ask = Callable[[httpx2.AsyncClient, int], Awaitable[object]]
Spent = npt.NDArray[np.float64]


def _discover(client: httpx2.AsyncClient, number: int, **members: Any) -> Awaitable[object]:
    """Each query is new: a cached result would show nothing."""
    text = f"{WORDS[number % len(WORDS)]} {TAGS[number % len(TAGS)]} {number}"
    return client.post("/profile/v1/discover", json={"query": text, **members})


def _hidden(number: int) -> str:
    return f"hidden-{2 + number % (PRIVATE - 2)}"


def _call(client: httpx2.AsyncClient, method: str, number: int) -> Awaitable[object]:
    params = {"agent_id": _hidden(number)}
    return client.post("/rtfs", json={"jsonrpc": "2.0", "id": 1, "method": f"rtfs.registry.{method}", "params": params})


ASKED: Mapping[str, Ask] = {
    "a question": _discover,
    "a question for a tag that only they carry": lambda c, n: _discover(c, n, required_tags=["hush"]),
    "a question that would like such a tag": lambda c, n: _discover(c, n, preferred_tags=["hush"]),
    "a question with a word that only they say": lambda c, n: c.post(
        "/profile/v1/discover", json={"query": f"hush {WORDS[n % len(WORDS)]} {n}"}
    ),
    "a page of the list": lambda c, n: c.get("/api/v1/agents", params={"limit": 5 + n % 5}),
    "the list for a tag that only they carry": lambda c, n: c.get("/api/v1/agents", params={"tag": "hush", "limit": 5 + n % 5}),
    "facets": lambda c, n: c.get("/api/v1/facets", params={"tag": TAGS[n % len(TAGS)]}),
    "one of them by its id": lambda c, n: c.get(f"/api/v1/agents/{_hidden(n)}"),
    "renewing one of them": lambda c, n: c.post(f"/api/v1/agents/{_hidden(n)}:renew"),
    "a heartbeat of one of them": lambda c, n: _call(c, "heartbeat", n),
    "sharing one of them": lambda c, n: c.post(f"/api/v1/agents/{_hidden(n)}:share", json={"add": ["bob"]}),
    "withdrawing one of them": lambda c, n: c.delete(f"/api/v1/agents/{_hidden(n)}"),
    "withdrawing one of them as announced": lambda c, n: c.delete(f"/agents/{_hidden(n)}"),
    "deregistering one of them": lambda c, n: _call(c, "deregister", n),
    "an update of one of them, with If-Match": lambda c, n: c.put(
        f"/profile/v1/agents/{_hidden(n)}", json=profile(_hidden(n)), headers={"If-Match": "*"}
    ),
}  # fmt: skip


async def spent(folder: Path, ask: Ask, samples: int) -> Spent:
    """CPU nanoseconds of each request, without and with the private agents."""
    async with twins(folder, opened) as pair:
        clients = [twin.as_("bob") for twin in pair]
        for number in range(_WARM):
            for client in clients:
                await ask(client, samples + number)
        chance, found = random.Random(3), np.zeros((samples, 2))
        gc.collect()
        gc.disable()
        try:
            for number in range(samples):
                for which in chance.sample((0, 1), 2):  # side by side, so that whatever else runs disturbs both
                    began = time.process_time_ns()
                    await ask(clients[which], number)
                    found[number, which] = time.process_time_ns() - began
        finally:
            gc.enable()
        return found


def probability(differences: Spent) -> float:
    """The p-value of the median difference by a permutation test that flips signs."""
    signs = np.random.default_rng(1).integers(0, 2, size=(_DEALT, len(differences)), dtype=np.int8) * 2 - 1
    as_large = np.abs(np.median(signs * differences, axis=1)) >= abs(np.median(differences))
    return float((1 + np.sum(as_large)) / (_DEALT + 1))


def figures(rounds: list[Spent]) -> dict[str, float]:
    """The figures of the median round: a real difference shows in every round, with the same sign."""
    shifts = [float(np.median(found[:, 1] - found[:, 0]) / np.median(found[:, 0])) for found in rounds]
    middle = rounds[shifts.index(statistics.median_low(shifts))]
    return {
        "us": round(float(np.median(middle[:, 0])) / 1000, 1),
        "longer_percent": round(100 * statistics.median_low(shifts), 2),
        "probability": round(probability(middle[:, 1] - middle[:, 0]), 4),
    }


def measure(samples: int, only: str = "") -> dict[str, dict[str, float]]:
    results = {}
    for name, ask in ASKED.items():
        if only not in name:
            continue
        rounds = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
                rounds.append(asyncio.run(spent(Path(folder), ask, samples)))
        results[name] = figures(rounds)
        print(f"{name}: {results[name]}", file=sys.stderr)
    return results


def table(results: Mapping[str, Mapping[str, float]]) -> str:
    lines = [
        "| asked by an outsider | µs | longer beside 1,000 private agents | probability by chance |",
        "|---|---|---|---|",
    ]
    for name, found in results.items():
        missed = ", missed" if abs(found["longer_percent"]) >= MOST_PERCENT else ""
        told = "" if found["probability"] >= SIGNIFICANT else " (it shows)"
        lines.append(
            f"| {name} | {found['us']:g} | {found['longer_percent']:+.2f} % (< {MOST_PERCENT:g} %{missed}) "
            f"| {found['probability']:g}{told} |"
        )
    return "\n".join(lines)


def documented(text: str, results: Mapping[str, Mapping[str, float]]) -> str:
    return saved_results.with_block(text, "privacy", table(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--keep", action="store_true", help="write bench/results/privacy.json and the documentation")
    parser.add_argument("--only", default="", help="measure the kinds of requests whose name contains this text")
    asked = parser.parse_args()
    results = measure(asked.samples, asked.only)
    print(table(results))
    if asked.keep:
        results = {name: found for name, found in ({**saved_results.load(RESULTS), **results}).items() if name in ASKED}
        saved_results.write(RESULTS, results)
        DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
