"""Saved results: written beside the documentation that shows them, and compared with a later run.

The last part of a figure's name selects its tolerance: which direction is worse, and how much is noise.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs" / "explanation"


@dataclass(frozen=True)
class Tolerance:
    """How much worse than the saved figure counts as a regression."""

    absolute: float = 0.0
    relative: float = 0.0
    higher_is_better: bool = True

    def is_worse(self, now: float, kept: float) -> bool:
        slack = self.absolute + self.relative * abs(kept)
        return now < kept - slack if self.higher_is_better else now > kept + slack


def figures(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number in a tree of results, with its path."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from figures(value, (*path, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, name), float(value)


def regressions(now: Mapping[str, Any], kept: Mapping[str, Any], tolerances: Mapping[str, Tolerance]) -> list[str]:
    """The figures that got worse. A figure that only one run has is not compared."""
    before = dict(figures(kept))
    return [
        f"{' / '.join(path)}: {value:g}, was {before[path]:g}"
        for path, value in figures(now)
        if path in before and path[-1] in tolerances and tolerances[path[-1]].is_worse(value, before[path])
    ]


def compared(now: Mapping[str, Any], kept: Mapping[str, Any], tolerances: Mapping[str, Tolerance]) -> int:
    """How many figures can be compared with saved ones: zero means that nothing was checked."""
    before = dict(figures(kept))
    return sum(path in before and path[-1] in tolerances for path, _ in figures(now))


def load(path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return results


def write(path: Path, results: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    text = json.dumps({"machine": machine, "results": results}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def with_block(text: str, name: str, block: str) -> str:
    """Replace the text between `<!-- bench: name -->` and `<!-- /bench -->`."""
    pattern = re.compile(rf"(<!-- bench: {re.escape(name)} -->\n).*?(<!-- /bench -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{block}\n{found[2]}", text)


def check(now: Mapping[str, Any], path: Path, tolerances: Mapping[str, Tolerance]) -> int:
    """Print the regressions and return the exit code of `--check`."""
    kept = load(path)
    worse = regressions(now, kept, tolerances)
    print(f"{compared(now, kept, tolerances)} figures compared with {path.name}, {len(worse)} worse")
    for each in worse:
        print(f"  WORSE {each}")
    return 1 if worse or not compared(now, kept, tolerances) else 0
