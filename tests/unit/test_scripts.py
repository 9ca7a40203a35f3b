"""The scripts and the pinned requirements: what a fresh machine relies on."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINNED = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==[^ ;\\]+", re.MULTILINE)


def pins(path: Path) -> set[str]:
    return {_normal(found[1]) for found in PIN.finditer(path.read_text(encoding="utf-8"))}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(extra: str | None = None) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return {_normal(re.match(r"[A-Za-z0-9._-]+", line)[0]) for line in lines}  # type: ignore[index]


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_pinned_requirements_name_no_address_and_hash_every_package(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    blocks = [block for block in re.split(r"\n(?=\S)", text) if "==" in block.split("\n")[0]]
    assert len(blocks) == len(pins(path))
    assert [block.split("\n")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_everything_that_is_declared_is_pinned() -> None:
    assert declared() - pins(ROOT / "requirements" / "runtime.txt") == set()
    assert declared("test") - pins(ROOT / "requirements" / "test.txt") == set()


def test_runtime_and_test_requirements_pin_the_same_versions() -> None:
    def versions(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        return {found[1]: found[0] for found in PIN.finditer(text)}

    tested = versions("test.txt")
    assert {name: pin for name, pin in versions("runtime.txt").items() if tested.get(name) != pin} == {}


@pytest.mark.parametrize(
    "name",
    [
        "scripts/serve",
        "scripts/test",
        "scripts/environment",
        "scripts/sanitize",
        "scripts/lock",
        "scripts/build",
        "scripts/fuzz",
        ".ci/run",
    ],
)
def test_a_script_can_be_executed_and_stops_at_errors(name: str) -> None:
    path = ROOT / name
    assert os.access(path, os.X_OK)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -" in text


PROGRAMS = sorted(path for path in (ROOT / "scripts").glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_python_script_can_be_executed(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n"), "start the script with a #! line"
    assert os.access(path, os.X_OK), f"run chmod +x scripts/{path.name}"


def test_contributing_lists_exactly_the_scripts_that_there_are() -> None:
    listed = set(re.findall(r"scripts/([\w.-]+\w)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    present = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file()}
    modules = {path.name for path in (ROOT / "scripts").glob("*.py")} - {path.name for path in PROGRAMS}
    assert not listed - present, f"CONTRIBUTING.md names {listed - present}, which scripts/ lacks"
    assert not present - modules - listed, f"add {present - modules - listed} to the commands in CONTRIBUTING.md"
