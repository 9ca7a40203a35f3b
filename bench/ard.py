"""How much a search through ARD costs beside the same search through the profile.

    python -m bench.ard [--agents 2000] [--questions 300]

Both APIs of one service answer the same questions in turn, ten results each, without a socket. Processor time is measured, so
other processes hardly matter. The goal is a ratio of at most 2.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

from bench import corpus
from bench.paired_services import opened

MOST_RATIO = 2.0
RESULTS = 10
OWNED = 500  # agents of one owner: there is a quota


async def _spent(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> float:
    start = time.process_time()
    answer = await client.post(path, json=body)
    spent = time.process_time() - start
    answer.raise_for_status()
    return spent


async def measure(agents: int, questions: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder)) as service:
            client = service.as_("bench")
            for number, document in enumerate(corpus.documents(agents)):
                owner = service.as_(f"owner-{number // OWNED}")
                (await owner.post("/api/v1/agents", json=document)).raise_for_status()
            discover, search = [], []
            for question in itertools.islice(corpus.questions(1), questions):
                asked = {"query": {"text": question}, "pageSize": RESULTS}
                turns = [
                    (discover, "/profile/v1/discover", {"query": question, "limit": RESULTS}),
                    (search, "/ard/search", asked),
                ]
                for spent, path, body in turns if len(discover) % 2 else reversed(turns):
                    spent.append(await _spent(client, path, body))
    medians = statistics.median(discover), statistics.median(search)
    return {"discover_ms": medians[0] * 1000, "search_ms": medians[1] * 1000, "ratio": medians[1] / medians[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=300)
    chosen = parser.parse_args()
    told = asyncio.run(measure(chosen.agents, chosen.questions))
    print(", ".join(f"{name} {value:.2f}" for name, value in told.items()))
    return 0 if told["ratio"] <= MOST_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
