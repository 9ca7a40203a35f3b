"""How well match words separate right agents from questions that no agent fits: `python -m bench.quality.matches`.

For each labelled set: the thresholds of its catalogue, how often a right agent among the first ten is strong or at least
possible, and how often the best candidate of a question is that does not belong to the set: questions of the other sets, and
for clinc150 those marked as out of scope. Some questions of other sets do fit, so a few per cent there are right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.corpus import read_json_lines
from bench.measures import mean
from bench.rankers import quality_ranker
from bench.searchers import InProcess
from bench.sets import public_set, sampled
from support.shared import shared_path
from waypost.search.ranking.match import BACKGROUND_QUESTIONS, MatchThresholds, calibrate_thresholds

FAMILIES = {
    "metatool": "metatool",
    "sealtools": "sealtools",
    "stabletoolbench_tool": "stabletoolbench",
    "stabletoolbench_api": "stabletoolbench",
    "livemcp_server": "livemcp",
    "livemcp_tool": "livemcp",
    "clinc150": "clinc150",
    "bfcl": "bfcl",
    "skills_catalogue": "skills_catalogue",
}
_FOREIGN = 12  # questions of each other set


@dataclass(frozen=True)
class Measured:
    name: str
    thresholds: MatchThresholds
    right: Sequence[float]  # the best score of a right agent among the first ten, 0 without one
    foreign: Sequence[float]  # the best score of a question of another family
    none: Sequence[float]  # of questions that are marked as out of scope

    @property
    def cells(self) -> tuple[str, ...]:
        shares = (_share(scores, least) for scores in (self.right, self.foreign) for least in self.thresholds)
        none = tuple(_share(self.none, least) for least in self.thresholds) if self.none else ("", "")
        return (self.name, *(f"{each:.2f}" for each in self.thresholds), *shares, *none)


def _share(scores: Sequence[float], least: float) -> str:
    return f"{100 * mean(score >= least for score in scores):.0f}"


def measure(name: str, questions: int) -> Measured:
    data, searcher = public_set(name), InProcess(quality_ranker)
    try:
        searcher.fill(data.agents)
        background = [_best(searcher, text) for text in BACKGROUND_QUESTIONS]
        right = [
            max((hit.score for hit in searcher.find(each.text, 10) if hit.id in each.relevant), default=0.0)
            for each in sampled(data.questions, questions)
        ]
        return Measured(
            name,
            calibrate_thresholds(background, len(data.agents)),
            right,
            [_best(searcher, text) for text in _foreign_questions(name)],
            [_best(searcher, text) for text in _out_of_scope(questions)] if name == "clinc150" else (),
        )
    finally:
        searcher.close()


def _best(searcher: InProcess, text: str) -> float:
    hits = searcher.find(text, 1)
    return hits[0].score if hits else 0.0


def _foreign_questions(name: str) -> Iterable[str]:
    others = [other for other, family in FAMILIES.items() if family != FAMILIES[name]]
    return (each.text for other in others for each in sampled(public_set(other).questions, _FOREIGN))


def _out_of_scope(count: int) -> list[str]:
    rows = read_json_lines(shared_path("data/retrieval/clinc150") / "queries_none.jsonl")
    return [row["query"] for row in rows][:count]


HEADER = (
    "set", "strong from", "possible from", "right: strong", "right: possible", "other sets: strong", "other sets: possible",
    "no fit: strong", "no fit: possible",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=200, help="of each set, spread evenly")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    for name in FAMILIES:
        print(f"| {' | '.join(measure(name, options.questions).cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
