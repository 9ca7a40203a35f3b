"""How fast the lexical ranker answers, and how well: `python bench/search_lexical.py [folder of data sets]`.

Speed needs nothing. Quality (nDCG@10) needs folders with `corpus.jsonl` {id,name,description,tags,examples} and
`queries.jsonl` {query,relevant_ids}. Times are CPU time of the process, so that a busy machine does not lie too much.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from waypost.model.query import Query
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration
from waypost.search.ranker import LexicalRanker

PUBLIC = frozenset({"public"})
LETTERS = "bcdfghklmnprstvz"


def main() -> None:
    folders = sorted(Path(sys.argv[1]).iterdir()) if len(sys.argv) > 1 else []
    for folder in folders:
        if (folder / "queries.jsonl").exists():
            print(f"{folder.name:12} nDCG@10 {100 * quality(folder):.1f}")
    for size in (1_000, 10_000, 100_000):
        print(f"{size:>7} agents", speed(size))


def registration(row: dict[str, Any]) -> Registration:
    record = AgentRecord(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        tags=tuple(row["tags"]),
        examples=tuple(Example(text=example["text"]) for example in row["examples"]),
        bindings=(Binding(protocol="https", endpoint="https://agents.example.net/x"),),
    )
    return Registration(
        record=record,
        owner="bench",
        visibility="public",
        etag="",
        revision=1,
        created_at=0.0,
        changed_at=0.0,
        renewed_at=0.0,
    )


def quality(folder: Path) -> float:
    ranker = LexicalRanker()
    ranker.open()
    for row in lines(folder / "corpus.jsonl"):
        ranker.put(registration(row))
    ranker.maintain(1)
    gains = []
    for row in lines(folder / "queries.jsonl"):
        ranking = ranker.rank(Query(text=row["query"], limit=10), PUBLIC, alive=lambda _: True, now=0.0)
        gains.append(ndcg([hit.id for hit in ranking.hits], set(row["relevant_ids"])))
    return sum(gains) / len(gains)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as rows:
        yield from map(json.loads, rows)


def ndcg(found: list[str], relevant: set[str]) -> float:
    gain = sum(1 / math.log2(at + 2) for at, agent_id in enumerate(found) if agent_id in relevant)
    return gain / sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant))))


def speed(size: int) -> dict[str, float]:
    random.seed(size)
    words = ["".join(random.choices(LETTERS + "aeiou", k=random.randint(4, 9))) for _ in range(8000)]
    sums = [*accumulate(1 / (rank + 5) for rank in range(len(words)))]  # as in real text, few words do most of the work

    def text(count: int) -> str:
        return " ".join(random.choices(words, cum_weights=sums, k=count))

    rows = [
        {
            "id": f"https://agents.example.net/id/{number}",
            "name": text(2),
            "description": text(20),
            "tags": text(4).split(),
            "examples": [{"text": text(8)} for _ in range(2)],
        }
        for number in range(size)
    ]
    registrations = [registration(row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        ranker = LexicalRanker(Path(folder) / "index")
        ranker.open()
        put = timed(lambda: [ranker.put(each) for each in registrations]) / size
        fold = timed(lambda: ranker.maintain(1)) / size
        questions = [text(8) for _ in range(1000)]
        figures = {"put_us": put, "fold_us": fold, "rank_us": asked(ranker, questions)}
        for each in registrations[:100]:
            ranker.put(each)
        figures["rank_with_100_fresh_us"] = asked(ranker, questions[:200])
        ranker.close()
    return {name: round(value * 1e6, 1) if value < 1 else value for name, value in figures.items()}


def asked(ranker: LexicalRanker, questions: list[str]) -> float:
    queries = [Query(text=text) for text in questions]
    for query in queries[:50]:
        ranker.rank(query, PUBLIC, alive=lambda _: True, now=0.0)
    return timed(lambda: [ranker.rank(query, PUBLIC, alive=lambda _: True, now=0.0) for query in queries]) / len(
        queries
    )


def timed(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
