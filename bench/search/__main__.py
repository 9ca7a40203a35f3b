"""How fast the right agent is found among many, beside baselines in the same run.

    python -m bench.search [--sizes 10000,100000,1000000] [--only likeness,bulk,served,inside,peers] [--work FOLDER]
                           [--fill | --keep | --check]

Agents are generated from real ones (bench/search/agents.py); `likeness` says how similar they are. Every stage runs in its own
process. `bulk` fills a service, and `served` and `inside` ask it: over HTTP, and its index in process. If no service was filled,
as at a million agents, `inside` builds an index with borrowed vectors (bench/search/borrowed_vectors.py). With FOLDER, what was
filled stays there for later runs; `--fill` only builds what `inside` needs. `--keep` writes bench/results/search.json, and the
tables and the plot of docs/explanation/search-speed.md; parts and sizes that were not run stay as they are there. `--check` exits
with 1 if a figure is worse than the saved one by more than its tolerance (bench/search/report.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from bench import saved_results
from bench.search.baselines import PEERS, peer
from bench.search.bulk_load import bulk_load
from bench.search.corpus_statistics import compared
from bench.search.ranker_stages import answer, build, cold, held, opened, saved
from bench.search.report import BLOCKS, DOCUMENT, OURS, PLOT, RESULTS, TOLERANCES, documented, drawn, own, with_kept
from bench.search.service_load import served
from bench.search.work_folder import build_once, index_of, is_filled, work_folder

Result = TypeVar("Result")

PARTS = ("likeness", "bulk", "served", "inside", "peers")


def apart(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def sized(size: int, parts: set[str], asked: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with work_folder(asked.work, f"store-{size}") as store:
        if "bulk" in parts and size <= asked.served_up_to:
            results["bulk"] = apart(bulk_load, size, store)
            print(f"  {size:,} bulk: {results['bulk']}", flush=True)
        if "served" in parts and size <= asked.served_up_to:
            results["served"] = apart(served, size, asked.seconds, store)
            print(f"  {size:,} served: {results['served']}", flush=True)
        if "inside" in parts:
            results[OURS] = inside(size, store, asked)
            print(f"  {size:,} {OURS}: {results[OURS]}", flush=True)
    if "peers" in parts and size <= asked.peers_up_to:
        results["peers"] = {}
        for name in PEERS:
            results["peers"][name] = apart(peer, name, size, asked.questions)
            print(f"  {size:,} {name}: {results['peers'][name]}", flush=True)
    return results


def inside(size: int, store: Path, asked: argparse.Namespace) -> dict[str, float]:
    """Ask the index of the service that `bulk` or `served` filled; without one, an index of borrowed vectors."""
    if is_filled(store):
        return ask_index(size, index_of(store), asked.questions)
    with work_folder(asked.work, f"index-{size}") as folder:
        index = folder / "index"
        built = build_once(folder, lambda: apart(build, size, index), lambda: apart(opened, index) == size)
        if asked.fill:
            return built
        figures = built | ask_index(size, index, asked.questions)
    del figures["found_percent"]  # borrowed vectors are for speed: what they find is not what the model would
    return figures


def ask_index(size: int, index: Path, questions: int) -> dict[str, float]:
    figures = saved(index)
    for stage in (cold, held):
        figures |= apart(stage, size, index)
    return figures | apart(answer, size, index, questions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, with commas")
    parser.add_argument("--questions", type=int, default=2000, help="of each kind, in process")
    parser.add_argument("--seconds", type=int, default=10, help="of load over HTTP, for each kind of questions")
    parser.add_argument("--work", type=Path, help="a folder for filled indices and stores, which later runs use again")
    parser.add_argument(
        "--peers-up-to", type=int, default=100_000, help="larger, the peers need more memory than most have"
    )
    parser.add_argument("--served-up-to", type=int, default=100_000, help="larger sizes are asked in process only")
    then = parser.add_mutually_exclusive_group()
    then.add_argument(
        "--fill", action="store_true", help="only build the indices that `inside` asks, in the folder --work"
    )
    then.add_argument("--keep", action="store_true", help="write results, tables and plot")
    then.add_argument("--check", action="store_true", help="fail when worse than what is kept")
    asked = parser.parse_args()
    sizes, parts = [int(size) for size in asked.sizes.split(",")], set(asked.only.split(","))
    if unknown := parts - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if asked.fill:
        if asked.work is None:
            parser.error("--fill needs --work")
        parts &= {"inside"}
    results: dict[str, Any] = {"sizes": {}}
    if "likeness" in parts:
        results["likeness"] = apart(compared, max(sizes))
        print(BLOCKS["search likeness"](results), flush=True)
    for size in sizes:
        results["sizes"][str(size)] = sized(size, parts, asked)
    print(BLOCKS["search speed"](results), BLOCKS["search peers"](results), sep="\n\n")
    if asked.keep:
        kept = with_kept(results, saved_results.load(RESULTS) if RESULTS.exists() else {})
        saved_results.write(RESULTS, kept)
        DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8"), kept), encoding="utf-8")
        PLOT.write_text(drawn(kept), encoding="utf-8")
    return saved_results.check(own(results), RESULTS, TOLERANCES) if asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
