"""A process that opens a saved index and answers one query: `python -m bench.search.cold_start FOLDER QUESTION`.

It imports only what a service needs for that; the parent measures the time until it prints a line. With `--held` instead of
a query it answers the queries on stdin, one per line, and prints its memory use.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.rankers import default_ranker
from waypost.model.query import Query
from waypost.registry.ports import Ranker


def main() -> None:
    folder, text = Path(sys.argv[1]), sys.argv[2]
    started = time.perf_counter()
    ranker = default_ranker(folder)
    revision = ranker.index.open()
    if text == "--held":
        for line in sys.stdin:
            _ids(ranker, line)
        told = _memory()
    else:
        told = {"revision": revision, "ids": _ids(ranker, text), "seconds": round(time.perf_counter() - started, 4)}
    sys.stdout.write(json.dumps(told) + "\n")
    ranker.close()


def _ids(ranker: Ranker, text: str) -> list[str]:
    query = Query(text=text, limit=10)
    return [hit.id for hit in ranker.rank(query, frozenset({"public"}), alive=lambda _: True, now=0.0).hits]


def _memory() -> dict[str, Any]:
    """RSS, and PSS, which divides shared pages among their processes."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {"rss_mib": round(sizes["Rss"] / 1024, 1), "pss_mib": round(sizes["Pss"] / 1024, 1)}


if __name__ == "__main__":
    main()
