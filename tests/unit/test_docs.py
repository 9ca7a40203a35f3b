"""The documentation is complete, current, and has no broken links."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import reference
import requirements
from support.markdown import fenced_blocks
from support.records import CODECS
from waypost.cli.main import COMMANDS
from waypost.errors import ERROR_CODES, WaypostError
from waypost.registry.operations import OPERATIONS
from waypost.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
WALK_FILE = re.compile(r"\b[a-z_]+(?:/[a-z_0-9]+)+\.py\b")  # a file in a diagram
FILE = re.compile(r"`((?:src|tests|scripts|docs|bench|requirements|[a-z_]+)/[\w./*<>-]*|\w+\.py)`")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(path: Path) -> None:
    targets = [found[1] for found in LINK.finditer(FENCE.sub("", path.read_text(encoding="utf-8")))]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_blocks_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == reference.rewritten(text), "run scripts/reference.py"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_in_a_document_compiles_and_its_imports_exist(path: Path) -> None:
    for block in fenced_blocks(path, "python"):
        tree = compile(block, str(path), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("waypost"):
                module = import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_every_setting_is_documented_with_flag_and_variable() -> None:
    text = page("reference/settings.md")
    missing = [
        row.name
        for row in SETTINGS
        if not all(f"`{word}`" in text for word in (row.name, *(() if row.in_file_only else (row.flag, row.variable))))
    ]
    assert not missing, f"run scripts/reference.py: settings.md lacks {missing}"


def test_every_command_is_documented() -> None:
    text = page("reference/commands.md")
    missing = [name for name in COMMANDS if f"## waypost {name}\n" not in text]
    assert not missing, f"run scripts/reference.py: commands.md lacks {missing}"


def test_every_error_has_a_row_and_is_documented() -> None:
    text = page("reference/errors.md")
    leaves = [kind for kind in _subclasses(WaypostError) if kind.__module__ == "waypost.errors"]
    without_row = [kind.__name__ for kind in leaves if kind not in ERROR_CODES]
    assert not without_row, f"add {without_row} to ERROR_CODES in errors.py"
    missing = [kind.__name__ for kind in leaves if f"`{kind.__name__}`" not in text]
    assert not missing, f"run scripts/reference.py: errors.md lacks {missing}"


def test_every_operation_and_route_is_documented() -> None:
    text = page("reference/http-api.md")
    names = [*OPERATIONS, *(f"{route.method} {route.path}" for route in reference.routes())]
    missing = [name for name in names if f"`{name}`" not in text]
    assert not missing, f"run scripts/reference.py: http-api.md lacks {missing}"


def test_every_dialect_is_documented_with_its_losses() -> None:
    text = page("reference/dialects.md")
    assert [name for name in CODECS if f"## `{name}`" not in text] == []
    lost = [path for codec in CODECS.values() for path in codec.loses]
    assert [path for path in lost if f"`{path}`" not in text] == []


def test_the_readme_is_short_and_starts_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert max(map(len, text.splitlines())) <= 120
    assert len(re.findall(r"(?<!!)\[[^\]]+\]\([^)]+\)", text)) == 6
    assert text.index("scripts/serve") < text.index("scripts/test") < text.index("## ")


def test_the_architecture_fits_on_a_few_screens() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 12 * 1024


def test_the_architecture_has_every_package_in_its_tree() -> None:
    tree = FENCE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))[0]
    listed = set(re.findall(r"(?:^  |  )(\w+/|\w+\.py)(?= )", tree, re.MULTILINE))
    package = ROOT / "src" / "waypost"
    present = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    present |= {path.name for path in package.glob("[!_]*.py")}
    assert not present - listed, f"add {present - listed} to the tree in ARCHITECTURE.md"


@pytest.mark.parametrize(
    "path", [ROOT / "ARCHITECTURE.md", *sorted((DOCS / "internals").glob("*.md"))], ids=lambda p: p.name
)
def test_pages_about_the_code_name_only_files_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = {found[1] for found in FILE.finditer(FENCE.sub("", text))}
    named |= {found[0] for block in FENCE.findall(text) for found in WALK_FILE.finditer(block)}
    assert len(named) >= 5
    missing = [name for name in sorted(named) if not _exists(name)]
    assert not missing, f"{missing} are neither in the project's folder nor in src/waypost"


def test_each_invariant_of_the_architecture_names_its_test() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\d+\. .*`tests/[\w/]+\.py::\w+`", text, re.MULTILINE)) == 10


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`(tests/[\w/-]+\.py)::(\w+)`", path.read_text(encoding="utf-8"))
    assert [name for file, name in named if not _defines(ROOT / file, name)] == []


def test_every_promise_names_its_tests() -> None:
    rows = re.findall(r"^\| (P\d+) \|.*$", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.startswith("| P")]
    assert rows == [f"P{number}" for number in range(1, 12)]
    assert all("::test_" in line for line in lines)


def test_every_decision_is_in_the_index() -> None:
    index = page("decisions/README.md")
    files = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert [name for name in files if f"({name})" not in index] == []


def test_every_departure_is_documented() -> None:
    text = page("not-supported.md")
    rows = [row for spec in requirements.read_specifications() for row in spec.requirements]
    assert [row.id for row in rows if row.status == "departed" and row.reason not in text.replace("\\|", "|")] == []


def _subclasses(kind: type[WaypostError]) -> list[type[WaypostError]]:
    return [leaf for child in kind.__subclasses__() for leaf in (child, *_subclasses(child))]


def _defines(path: Path, name: str) -> bool:
    return re.search(rf"^(?:async )?(?:def|class) {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def _exists(name: str) -> bool:
    if "<" in name:
        return True
    return any(next(base.glob(name.rstrip("/")), None) is not None for base in (ROOT, ROOT / "src" / "waypost"))


def test_each_rule_of_federation_names_tests_that_exist() -> None:
    rows = [line for line in (DOCS / "internals" / "federation.md").read_text("utf-8").splitlines() if "| FED-" in line]
    assert [row.split("|")[1].strip() for row in rows] == [f"FED-{number}" for number in range(1, 23)]
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, test in named:
            assert f"def {test}(" in (ROOT / path).read_text("utf-8"), f"{path}::{test}"
