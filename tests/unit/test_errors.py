"""The error tree and its table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import waypost
from waypost import errors
from waypost.errors import ERROR_CODES, WaypostError, error_codes

PROFILE_CODES = {
    "invalid_request", "unsupported_filter", "unauthorized", "forbidden", "conflict", "not_found", "stale_metadata",
    "rate_limited",
}  # fmt: skip


def tree(kind: type[WaypostError] = WaypostError) -> Iterator[type[WaypostError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from tree(child)


@pytest.mark.parametrize("kind", sorted(tree(), key=lambda kind: kind.__name__))
def test_every_error_has_a_row_of_codes_and_a_line_in_the_docstring(kind: type[WaypostError]) -> None:
    assert kind in ERROR_CODES, f"add a row for {kind.__name__} to ERROR_CODES"
    listed = f" {kind.__name__} " in (errors.__doc__ or "")
    assert listed, f"add a line for {kind.__name__} to the tree in the docstring of errors.py"
    codes = PROFILE_CODES | {"unavailable", "internal", "configuration"}
    assert kind.code in codes, f"inherit the code of {kind.__name__}: the profile has no others"


def test_the_table_has_no_other_rows() -> None:
    assert set(ERROR_CODES) == set(tree())


@pytest.mark.parametrize("kind", [kind for kind in ERROR_CODES if kind.__base__ in ERROR_CODES])
def test_a_row_stands_below_that_of_its_parent(kind: type[WaypostError]) -> None:
    rows = list(ERROR_CODES)
    parents = [rows.index(parent) for parent in kind.__bases__ if parent in ERROR_CODES]
    assert max(parents) < rows.index(kind), f"move the row of {kind.__name__} below that of its parent"


def test_an_error_without_a_row_of_its_own_takes_that_of_its_nearest_ancestor() -> None:
    class Special(errors.NotFound):
        pass

    assert error_codes(Special("x")) == ERROR_CODES[errors.NotFound]


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = errors.InvalidDocument("The name is empty.", path="$.name", hint="Give it a text.")
    assert str(error) == "The name is empty. (at $.name) Give it a text."


@pytest.mark.parametrize("kind", sorted(ERROR_CODES, key=lambda kind: kind.__name__))
def test_exit_codes_are_those_that_the_command_promises(kind: type[WaypostError]) -> None:
    assert ERROR_CODES[kind].exit in (1, 64, 69, 75, 77, 78)
    assert 400 <= ERROR_CODES[kind].http <= 599


def test_no_hint_refers_to_papers_that_a_reader_does_not_have() -> None:
    """A hint says what to do; the numbered proposals and restatements of the specifications are not published."""
    unknown = re.compile(r"\bP-\d{1,2}\b|\b(adp|agentframework|announce|ard|dns-aid|neighbours|profile|rtfs)\.md\b")
    found = [
        f"{path.name}:{part.lineno}"
        for path in Path(waypost.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "hint"
        for part in ast.walk(node.value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and unknown.search(part.value)
    ]
    assert found == []
