"""The speed of the pages beside the same requests in JSON: the first page, and search as you type.

    python -m bench.page --agents 2000            # small; the figures in documents come from --agents 100000

Both sides go over HTTP on one machine, one after another from one client, so that what is compared is the work and not the
queue. `search as typed` asks what somebody asks who types a question letter by letter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2

from bench.corpus import documents
from support.server import RunningServer, running_server

QUESTIONS = (
    "translate an invoice",
    "forecast the weather",
    "review a contract",
    "book a hotel in Lisbon",
    "detect card fraud",
)
BATCH = 2000
BATCH_SECONDS, INDEXED_SECONDS = 300, 1800  # a bound, not a measure
RESULTS = Path(__file__).parent / "results" / "page.json"
Ask = Callable[[httpx2.AsyncClient, str], Awaitable[httpx2.Response]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20, help="how often each question is asked")
    parser.add_argument("--save", action="store_true", help="write the figures to bench/results")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"agents": arguments.agents}
    with filled(arguments.agents) as server:
        figures |= asyncio.run(measure(server, arguments.rounds))
    print(json.dumps(figures, indent=2))
    if arguments.save:
        RESULTS.write_text(json.dumps(figures, indent=2) + "\n")


@contextmanager
def filled(agents: int) -> Iterator[RunningServer]:
    with tempfile.TemporaryDirectory() as folder, running_server("--anonymous-read", data=Path(folder)) as server:
        lines = (json.dumps(document) for document in documents(agents))
        while body := "\n".join(islice(lines, BATCH)).encode():
            address = f"{server.url}/api/v1/agents:batch"
            answer = httpx2.post(address, content=body, headers=server.headers, timeout=BATCH_SECONDS)
            if not answer.is_success or b'"error"' in answer.content:
                raise SystemExit(f"a batch was refused: {answer.text[:500]}")
        yield server


def typed(question: str) -> Iterator[str]:
    """The queries sent while typing, from the third letter on."""
    return (question[:end] for end in range(3, len(question) + 1))


async def measure(server: RunningServer, rounds: int) -> dict[str, Any]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        await wait_until_indexed(client, server)
        return {
            "first answer": await compare(client, first_page, first_list, [""] * (rounds * 10)),
            "search": await compare(client, found_page, found_json, [*QUESTIONS] * rounds),
            "search as typed": await compare(
                client,
                found_page,
                found_json,
                [text for question in QUESTIONS for text in typed(question)] * max(1, rounds // 10),
            ),
        }


async def wait_until_indexed(client: httpx2.AsyncClient, server: RunningServer) -> None:
    """Wait until all agents are indexed; otherwise the figures would be meaningless."""
    async with asyncio.timeout(INDEXED_SECONDS):
        while (await client.get("/api/v1/stats", headers=server.headers)).json()["indexing_pending"]:
            await asyncio.sleep(0.5)


async def compare(client: httpx2.AsyncClient, page: Ask, plain: Ask, texts: list[str]) -> dict[str, Any]:
    """Measure both sides alternately, so that other load affects both."""
    times: dict[str, list[float]] = {"page": [], "json": []}
    size = 0
    for number, text in enumerate(texts):
        # An answer is remembered for a while, so each side is asked first as often as the other.
        sides = (("page", page), ("json", plain))
        for name, ask in sides if number % 2 else reversed(sides):
            began = time.perf_counter()
            answer = await ask(client, text)
            took = (time.perf_counter() - began) * 1000
            answer.raise_for_status()
            if number >= 5:
                times[name].append(took)
            size = max(size, len(answer.content)) if name == "page" else size
    told = {
        name: {"p50_ms": round(statistics.median(took), 2), "p95_ms": round(quantile(took, 0.95), 2)}
        for name, took in times.items()
    }
    return {**told, "ratio_p95": round(told["page"]["p95_ms"] / told["json"]["p95_ms"], 2), "page_bytes": size}


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def first_page(client: httpx2.AsyncClient, text: str) -> httpx2.Response:
    return await client.get("/")


async def first_list(client: httpx2.AsyncClient, text: str) -> httpx2.Response:
    """The agents of the first page and the facet counts that it shows."""
    await client.get("/api/v1/facets")
    return await client.get("/api/v1/agents", params={"limit": 25})


async def found_page(client: httpx2.AsyncClient, text: str) -> httpx2.Response:
    return await client.get("/", params={"q": text, "part": "found"})


async def found_json(client: httpx2.AsyncClient, text: str) -> httpx2.Response:
    asked = {"query": text, "limit": 25, "include_evidence": True, "facets": ["tag", "protocol", "status"]}
    return await client.post("/profile/v1/discover", json=asked)


if __name__ == "__main__":
    main()
