"""The requirement ids that tests cite, read from their source without importing them.

A citation is `pytest.mark.req("AF-5", …)` with literal ids: as a decorator of a test or its class, in a module's
`pytestmark`, or among the marks of a parameter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Citation:
    id: str
    where: str


@dataclass(frozen=True, slots=True)
class Scan:
    citations: tuple[Citation, ...]
    unmarked: tuple[str, ...]  # tests that cite nothing
    unreadable: tuple[str, ...]  # citations whose ids are not literals


def scan_tests(paths: list[Path], root: Path) -> Scan:
    """Parse every test module once."""
    scans = [scan_source(path.read_text(encoding="utf-8"), str(path.relative_to(root))) for path in paths]
    return Scan(
        citations=tuple(citation for scan in scans for citation in scan.citations),
        unmarked=tuple(name for scan in scans for name in scan.unmarked),
        unreadable=tuple(name for scan in scans for name in scan.unreadable),
    )


def scan_source(source: str, name: str) -> Scan:
    tree = ast.parse(source)
    citations: list[Citation] = []
    unreadable: list[str] = []
    for call in _req_calls(tree):
        where = f"{name}:{call.lineno}"
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                citations.append(Citation(argument.value, where))
            else:
                unreadable.append(where)
    module_marked = any(_is_pytestmark(node) and _cites(node) for node in tree.body)
    unmarked = () if module_marked else tuple(_unmarked(tree.body, name))
    return Scan(tuple(citations), unmarked, tuple(unreadable))


def _req_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
            yield node


def _cites(node: ast.AST) -> bool:
    return next(_req_calls(node), None) is not None


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets)


def _unmarked(body: list[ast.stmt], name: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(_cites(decorator) for decorator in node.decorator_list):
            continue
        if isinstance(node, ast.ClassDef):
            yield from _unmarked(node.body, name)
        elif node.name.startswith("test_"):
            yield f"{name}:{node.lineno} {node.name}"
