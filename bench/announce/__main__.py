"""Performance of the announce protocol at three sizes, beside a plain loop of the transport library in the same run.

    python -m bench.announce [--only lan,sockets,bus,flood] [--small] [--keep]

About six minutes on two quiet cores; `--small` is a minute, to see that it works. `--keep` writes
bench/results/announce.json and the tables of docs/explanation/lan.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from bench import saved_results
from bench.announce import bus, flood, lan, sockets
from bench.announce.report import DOCUMENT, RESULTS, documented, report

PARTS = ("lan", "sockets", "bus", "flood")
SIZES: dict[str, tuple[int, ...]] = {"lan": (100, 300, 1000), "sockets": (500, 2000, 5000), "bus": (250, 500, 1000)}
SMALL: dict[str, tuple[int, ...]] = {"lan": (20,), "sockets": (50,), "bus": (50,)}
FLOOD_SECONDS, FLOOD_ROUNDS = 10.0, 4
SMALL_FLOOD_SECONDS, SMALL_FLOOD_ROUNDS = 1.0, 2
BARE_FIRST = ("bare", "ours")


def measured(part: str, size: int, *, small: bool) -> dict[str, Any]:
    if part == "lan":
        return {kind: lan.measure(kind, size) for kind in BARE_FIRST}
    if part == "sockets":
        full = size >= SIZES["sockets"][-1]
        seconds = sockets.EVERY_SECONDS if full else 4.0 if small else 8.0
        return {kind: sockets.measure(kind, size, seconds) for kind in BARE_FIRST}
    return bus.measure(size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, with commas")
    parser.add_argument("--small", action="store_true", help="few agents, little time: that it works, not how well")
    parser.add_argument("--keep", action="store_true", help="write results and tables")
    asked = parser.parse_args()
    parts = [part for part in PARTS if part in asked.only.split(",")]
    results: dict[str, Any] = {}
    began = time.monotonic()
    for part in parts:
        results[part] = {}
        for size in (SMALL if asked.small else SIZES).get(part, ()):
            results[part][str(size)] = measured(part, size, small=asked.small)
            print(f"[{time.monotonic() - began:4.0f} s] {part} {size:,}: {results[part][str(size)]}", flush=True)
        if part == "flood":
            small = (SMALL_FLOOD_SECONDS, SMALL_FLOOD_ROUNDS)
            results[part] = flood.measure(*(small if asked.small else (FLOOD_SECONDS, FLOOD_ROUNDS)))
            print(f"[{time.monotonic() - began:4.0f} s] {part}: {results[part]}", flush=True)
    print(report(results))
    if asked.keep:
        results = {**saved_results.load(RESULTS), **results}  # parts that were not run stay as they were
        saved_results.write(RESULTS, results)
        DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
