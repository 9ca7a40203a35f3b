"""Search quality, beside baselines in the same run.

    python -m bench.quality [--questions N] [--only retrieval,peers,ablation,checks] [--http] [--keep | --check]

`--keep` writes bench/results/quality.json, the tables and the plot of docs/explanation/search-quality.md; `--check` ends
with 1 if a figure is worse than the saved one by more than its tolerance (bench/quality/report.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import saved_results
from bench.baseline_searchers import Bm25, BruteForce, Rrf, SentenceModel
from bench.quality.checks import all_checks
from bench.quality.report import BLOCKS, DOCUMENT, PLOT, RESULTS, TOLERANCES, documented, drawn, own
from bench.quality.retrieval import Task, measured, tasks
from bench.rankers import ABLATIONS, DEFAULT, default_ranker
from bench.searchers import InProcess, OverHttp, Searcher

MakeSearcher = Callable[[], Searcher]
PARTS = ("retrieval", "peers", "ablation", "checks")


def peers() -> dict[str, MakeSearcher]:
    encode = SentenceModel()
    return {
        "sentence model, brute force": lambda: BruteForce(encode),
        "BM25 alone": Bm25,
        "RRF of the two": lambda: Rrf(BruteForce(encode), Bm25()),
    }


def retrieval(todo: list[Task], contestants: dict[str, MakeSearcher]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, make in contestants.items():
        for task in todo:
            results.setdefault(name, {}).update(measured(make, task.agents, task))
        print(f"  {name}: {results[name]}", flush=True)
    return results


def ablation(todo: list[Task]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for each in ABLATIONS:
        for task in todo:
            shown = [each.shown(agent) for agent in task.agents]
            results.setdefault(each.name, {}).update(measured(partial(InProcess, each.make), shown, task))
        print(f"  {each.name}: {results[each.name]}", flush=True)
    return results


def run(parts: set[str], questions: int | None, *, with_http: bool) -> dict[str, Any]:
    todo = tasks(questions)
    contestants: dict[str, MakeSearcher] = {DEFAULT: partial(InProcess, default_ranker)} if "retrieval" in parts else {}
    if with_http:
        contestants[f"{DEFAULT} over HTTP"] = OverHttp
    if "peers" in parts:
        contestants |= peers()
    results: dict[str, Any] = {"retrieval": retrieval(todo, contestants)}
    if "ablation" in parts:
        results["ablation"] = ablation(todo)
    if "checks" in parts:
        results["checks"] = all_checks(default_ranker)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, help="of each set, spread evenly; all without it")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, with commas")
    parser.add_argument("--http", action="store_true", help="ask the served product as well")
    then = parser.add_mutually_exclusive_group()
    then.add_argument("--keep", action="store_true", help="write results, tables and plot")
    then.add_argument("--check", action="store_true", help="fail when worse than what is kept")
    asked = parser.parse_args()
    parts = set(asked.only.split(","))
    if asked.keep and (asked.questions or parts != set(PARTS)):
        parser.error("only a whole run is kept")
    if asked.check and asked.questions:
        parser.error("what is kept is of all questions: check with all of them")
    results = run(parts, asked.questions, with_http=asked.http)
    for table in BLOCKS.values():
        print(table(results), end="\n\n")
    if asked.keep:
        saved_results.write(RESULTS, results)
        DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
        PLOT.write_text(drawn(results), encoding="utf-8")
    return saved_results.check(own(results), RESULTS, TOLERANCES) if asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
