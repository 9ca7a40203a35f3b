"""Tables and plot of the quality benchmark for the documentation, with goals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import plot
from bench.rankers import DEFAULT
from bench.saved_results import DOCS, HERE, Tolerance, figures, with_block

RESULTS = HERE / "results" / "quality.json"
DOCUMENT = DOCS / "search-quality.md"
PLOT = DOCS / "search-quality.svg"
COLUMNS = ("metatool", "sealtools", "metatool in haystack", "sealtools in haystack")

TOLERANCES = {
    "ndcg10": Tolerance(absolute=0.5),
    "recall5": Tolerance(absolute=0.7),
    "mrr": Tolerance(absolute=0.7),
    "first": Tolerance(absolute=5.0),  # of twenty questions, one
    "kept_in_top5": Tolerance(absolute=2.0),
    "example_named": Tolerance(),
    "auc": Tolerance(absolute=1.0),
    "raised": Tolerance(absolute=1.0, higher_is_better=False),
    "lost": Tolerance(absolute=0.3, higher_is_better=False),
}

Path_ = tuple[str, ...]
GOALS: tuple[tuple[str, Path_, float, bool], ...] = (  # text, figure, bound, at least?
    ("metatool, nDCG@10", ("retrieval", DEFAULT, "metatool", "ndcg10"), 83, True),
    ("sealtools, nDCG@10", ("retrieval", DEFAULT, "sealtools", "ndcg10"), 88, True),
    ("200 copies of the target: it stays in the top five", ("checks", "clones", "copies", "kept_in_top5"), 95, True),
    ("200 variants of the target", ("checks", "clones", "variants", "kept_in_top5"), 95, True),
    ("200 variants of its rival", ("checks", "clones", "rival", "kept_in_top5"), 95, True),
    ("eight skills: first for each", ("checks", "eight skills", "first"), 100, True),
    ("eight skills: the evidence names the example", ("checks", "eight skills", "example_named"), 100, True),
    (
        "112 skills in other words, among real servers: first",
        ("checks", "many skills", "among real servers", "first"),
        90,
        True,
    ),
    (
        "the same: the evidence names the example",
        ("checks", "many skills", "among real servers", "example_named"),
        98,
        True,
    ),
    ("31 added tags: queries that rank the agent higher", ("checks", "cheats", "31 popular tags", "raised"), 0, False),
    (
        "ten words 3 times: queries that rank the agent higher than naming them once",
        ("checks", "cheats", "ten words 3 times", "raised"),
        0,
        False,
    ),
    (
        "ten words 20 times: queries that rank the agent higher than naming them once",
        ("checks", "cheats", "ten words 20 times", "raised"),
        0,
        False,
    ),
    (
        "ten words in every example: queries that rank the agent higher than naming them once",
        ("checks", "cheats", "ten words in every example", "raised"),
        0,
        False,
    ),
    (
        "ten invisible words: queries that rank the agent higher",
        ("checks", "cheats", "ten invisible words", "raised"),
        0,
        False,
    ),
    (
        "ten words with zero-width characters: queries that rank the agent higher than without",
        ("checks", "cheats", "ten words with zero-width characters", "raised"),
        0,
        False,
    ),
)


def own(results: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that are checked for regressions: the product, without baselines and ablations."""
    found = results["retrieval"]
    return {
        "retrieval": {who: found[who] for who in found if who.startswith(DEFAULT)},
        "checks": results.get("checks", {}),
    }


def retrieval_table(results: Mapping[str, Any]) -> str:
    """nDCG@10 / recall@5 / MRR of every searcher on every set."""
    found = results["retrieval"]
    columns = [name for name in COLUMNS if any(name in row for row in found.values())]
    lines = [f"| nDCG@10 / recall@5 / MRR | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for who, row in found.items():
        cells = [_cell(row[name]) if name in row else "–" for name in columns]
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(figures_: Mapping[str, float]) -> str:
    return " / ".join(f"{figures_[name]:.1f}" for name in ("ndcg10", "recall5", "mrr"))


def ablation_table(results: Mapping[str, Any]) -> str:
    """The loss of nDCG@10 without one signal, or without a part of the records."""
    base, found = results["retrieval"].get(DEFAULT, {}), results.get("ablation", {})
    columns = [name for name in COLUMNS if any(name in row for row in found.values())]
    lines = [f"| removed | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for who, row in found.items():
        cells = [
            f"{row[name]['ndcg10'] - base[name]['ndcg10']:+.1f}" if name in row and name in base else "–"
            for name in columns
        ]
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return "\n".join(lines)


def goals_table(results: Mapping[str, Any]) -> str:
    found = dict(figures(results))
    lines = ["| figure | goal | measured |", "|---|---|---|"]
    for text, path, bound, at_least in GOALS:
        if path in found:
            value = found[path]
            missed = "" if (value >= bound if at_least else value <= bound) else " (missed)"
            lines.append(f"| {text} | {'≥' if at_least else '≤'} {bound:g} | {value:g}{missed} |")
    return "\n".join(lines)


def checks_table(results: Mapping[str, Any]) -> str:
    lines = ["| check | case | figures |", "|---|---|---|"]
    for name, check in results.get("checks", {}).items():
        cases = check.items() if any(isinstance(each, Mapping) for each in check.values()) else [("", check)]
        for case, values in cases:
            told = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in values.items())
            lines.append(f"| {name} | {case} | {told} |")
    return "\n".join(lines)


BLOCKS = {
    "quality goals": goals_table,
    "quality sets": retrieval_table,
    "quality ablation": ablation_table,
    "quality checks": checks_table,
}


def documented(text: str, results: Mapping[str, Any]) -> str:
    for name, table in BLOCKS.items():
        text = with_block(text, name, table(results))
    return text


def drawn(results: Mapping[str, Any]) -> str:
    rows = {
        who: {name: row[name]["ndcg10"] for name in COLUMNS if name in row} for who, row in results["retrieval"].items()
    }
    return plot.bars("nDCG@10", rows, top=100, low=0)
