"""Rules of the architecture that import-linter cannot see."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import waypost

PACKAGE = Path(waypost.__file__).parent
REACH_THROUGH = re.compile(r"registry\.(store|ranker|catalog|seal|_\w+)\b")


def test_nothing_reaches_through_the_registry_into_its_parts() -> None:
    """APIs talk to the facade; the parts behind it can change without them."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "registry" not in path.relative_to(PACKAGE).parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if REACH_THROUGH.search(line) and not line.lstrip().startswith(("from waypost.", "import waypost."))
    ]
    assert found == []


def test_no_public_class_name_is_defined_twice() -> None:
    names: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "sync" in path.parts:
            continue  # generated from client/aio
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


def test_no_folder_has_more_than_25_modules() -> None:
    folders = Counter(path.parent for path in PACKAGE.rglob("*.py"))
    assert {str(folder): count for folder, count in folders.items() if count > 25} == {}
