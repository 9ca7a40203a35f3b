"""Search quality, beside baselines in the same run.

    python -m bench.quality [--questions N] [--only leave-out,sets,haystack,signals,robustness,checks]
                            [--whole] [--keep | --check]

Weights, signals and models are judged by the part `leave-out` (bench/quality/leave_out.py), on at most 100 questions of a set or,
with `--whole`, on all.

`--keep` writes bench/results/quality.json, the tables and the plot of docs/explanation/search-quality.md; parts that were not
run stay as they are there. `--check` ends with 1 if a figure is worse than the saved one by more than its tolerance
(bench/quality/report.py).
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from bench import saved_results
from bench.quality import leave_out, robustness
from bench.quality.baselines import Bm25, BruteForce, Rrf
from bench.quality.checks import all_checks
from bench.quality.report import BASELINES, BLOCKS, DOCUMENT, PLOT, RESULTS, TOLERANCES, documented, drawn, own
from bench.quality.retrieval import QUESTIONS, MakeSearcher, Task, measure, tasks
from bench.rankers import ABLATIONS, DEFAULT, cached_spaces, quality_ranker
from bench.searchers import InProcess
from waypost.search.vectors import SpaceRole

PARTS = ("leave-out", "sets", "haystack", "signals", "robustness", "checks")


def searchers() -> dict[str, MakeSearcher]:
    """The product and the baselines, which use the product's first sentence model."""
    encode = next(space for space in cached_spaces() if space.role != SpaceRole.STATIC).embedder.encode
    return {
        DEFAULT: partial(InProcess, quality_ranker),
        "BM25": Bm25,
        "vectors": lambda: BruteForce(encode),
        "RRF hybrid": lambda: Rrf(Bm25(), BruteForce(encode)),
    }


def compare(contestants: dict[str, MakeSearcher], todo: list[Task]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, make in contestants.items():
        results[name] = {task.name: measure(make, task) for task in todo}
        print(f"  {name}: { {task: each['ndcg10'] for task, each in results[name].items()} }", flush=True)
    return results


def ablate(todo: list[Task]) -> dict[str, Any]:
    """The product without a signal, with one signal alone, or without a part of the records."""
    results: dict[str, Any] = {}
    for each in ABLATIONS:
        shown = [Task(task.name, [each.shown(agent) for agent in task.agents], task.questions) for task in todo]
        results |= compare({each.name: partial(InProcess, each.make)}, shown)
    return results


def run(parts: set[str], questions: int, left_out: int | None) -> dict[str, Any]:
    """`left_out` is the number of questions of each set for leave-one-family-out; None: all."""
    contestants, results = searchers(), dict[str, Any]()
    if "leave-out" in parts:
        baselines = {name: contestants[name] for name in BASELINES}
        results["leave-out"] = leave_out.judge(tasks(left_out), baselines)
    if "sets" in parts:
        results["sets"] = compare(contestants, tasks(questions))
    if "haystack" in parts:
        results["haystack"] = compare(contestants, tasks(questions, in_haystack=True))
    if "signals" in parts:
        results["signals"] = ablate(tasks(questions))
    if "robustness" in parts:
        results["robustness"] = {
            **robustness.losses(quality_ranker, questions),
            "one-word tags": robustness.one_word_tags(quality_ranker),
        }
        results["long questions"] = robustness.long_questions(contestants, questions)
        results["no agent fits"] = {
            name: robustness.no_agent_fits(make, questions) for name, make in contestants.items()
        }
    if "checks" in parts:
        results["checks"] = all_checks(quality_ranker)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of each set, spread evenly")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, with commas")
    parser.add_argument("--whole", action="store_true", help="leave-out: all questions of each set")
    then = parser.add_mutually_exclusive_group()
    then.add_argument("--keep", action="store_true", help="write results, tables and plot")
    then.add_argument("--check", action="store_true", help="fail when worse than what is kept")
    asked = parser.parse_args()
    parts = set(asked.only.split(","))
    if asked.whole and (asked.keep or asked.check):
        parser.error(f"what is kept of leave-out is of {leave_out.QUESTIONS} questions a set")
    if unknown := parts - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if asked.keep and asked.questions != QUESTIONS:
        parser.error(f"what is kept is of {QUESTIONS} questions a set")
    if asked.check and asked.questions != QUESTIONS:
        parser.error(f"what is kept is of {QUESTIONS} questions a set: check with as many")
    results = run(parts, asked.questions, None if asked.whole else min(leave_out.QUESTIONS, asked.questions))
    for table in BLOCKS.values():
        print(table(results), end="\n\n")
    if asked.keep:
        results = results if parts == set(PARTS) else saved_results.load(RESULTS) | results
        saved_results.write(RESULTS, results)
        DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
        PLOT.write_text(drawn(results), encoding="utf-8")
    return saved_results.check(own(results), RESULTS, TOLERANCES) if asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
