"""The list of attacks is complete, names tests that exist, and is what SECURITY.md shows."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import threats

ROOT = Path(__file__).resolve().parents[2]
ROWS = threats.read_threats()
# Outgoing requests, credentials, signatures, HTTP and storage, pages, ranking, privacy, the DNS, WebSockets, the LAN, a bus,
# and what was found by attacking the running service.
GROUPS = {"S": 12, "J": 14, "C": 16, "H": 15, "X": 2, "R": 7, "V": 7, "D": 15, "W": 10, "L": 7, "B": 5, "E": 18}


def test_every_row_is_there_once_and_in_order() -> None:
    wanted = [f"{group}{number}" for group, most in GROUPS.items() for number in range(1, most + 1)]
    assert [row.id for row in ROWS] == wanted


def test_every_row_has_a_sentence_and_a_test() -> None:
    sentences = [text for row in ROWS for text in (row.attack, row.missing) if text]
    assert [text for text in sentences if not text.endswith(".") or "|" in text] == []
    assert [row.id for row in ROWS if not row.attack or not row.tests or len(set(row.tests)) < len(row.tests)] == []


def test_every_test_that_is_named_exists() -> None:
    assert [(row.id, name) for row in ROWS for name in row.tests if not _exists(name)] == []


def test_every_row_is_shown_by_an_ordinary_run() -> None:
    assert [row.id for row in ROWS if all(map(threats.is_long, row.tests))] == []


def test_the_page_says_which_tests_an_ordinary_run_leaves_out() -> None:
    """A promise that only `scripts/test --long` shows must not look like one that every run shows."""
    named = re.findall(r"`(tests/[^`:]+::[^`]+)`( \(with `--long`\))?", threats.PAGE.read_text(encoding="utf-8"))
    assert len(named) > 100
    assert [name for name, _ in named if not _exists(name)] == []
    assert [name for name, says in named if threats.is_long(name) != bool(says)] == []


def test_the_page_shows_the_list_as_it_is() -> None:
    text = threats.PAGE.read_text(encoding="utf-8")
    assert threats.BLOCK.search(text)
    assert text == threats.rewritten(text), "run scripts/threats.py"


def _exists(name: str) -> bool:
    file, _, function = name.partition("::")
    return function in _tests_of(ROOT / file)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(name for name in functions if name.startswith("test_"))
