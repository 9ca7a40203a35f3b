#!/usr/bin/env python3
"""The list of attacks (tests/threats.toml) as the table in SECURITY.md.

scripts/threats.py            write the table between the markers of the page
scripts/threats.py --check    exit with 1 if the page is out of date
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests" / "threats.toml"
PAGE = ROOT / "SECURITY.md"
BLOCK = re.compile(r"(<!-- generated: threats -->\n).*?(<!-- /generated -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Threat:
    id: str
    attack: str
    tests: tuple[str, ...]  # `tests/…py::test_name`
    missing: str = ""  # what the tests do not cover


def read_threats() -> list[Threat]:
    rows = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return [Threat(name, **{**row, "tests": tuple(row["tests"])}) for name, row in rows.items()]


def is_long(name: str) -> bool:
    """Whether a test runs with `scripts/test --long` only: what it shows is not shown by every run."""
    file, _, function = name.partition("::")
    return function in _long_tests(ROOT / file)


@cache
def _long_tests(path: Path) -> frozenset[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    marks = [
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    tests = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    is_marked = any(map(_is_long_mark, marks))
    return frozenset(node.name for node in tests if is_marked or any(map(_is_long_mark, node.decorator_list)))


def _is_long_mark(expression: ast.expr) -> bool:
    return "pytest.mark.long" in ast.unparse(expression)


def _count(tests: tuple[str, ...]) -> str:
    long = sum(map(is_long, tests))
    return f"{len(tests)}, {long} with `--long`" if long else str(len(tests))


def rewritten(text: str) -> str:
    """The page with the current table."""
    lines = ["| | attack | tests | not shown |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.id} | {row.attack} | {_count(row.tests)} | {row.missing} |" for row in read_threats()]
    return BLOCK.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return int(text != rewritten(text))
    PAGE.write_text(rewritten(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
