"""Compiled kernels: built where there is a compiler, missed by nobody where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hatch_build import BuildError, compile_kernels

ROOM = Path(__file__).parents[3] / "src" / "waypost" / "search" / "kernels"
SUPPORT = Path(__file__).parents[2] / "support"
KERNELS = sorted(path.stem for path in ROOM.glob("*.pyx"))

needs_a_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and "CI" not in os.environ, reason="there is no C compiler here"
)


@needs_a_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_compiled_and_says_its_types(name: str) -> None:
    assert import_module(f"waypost.search.kernels.{name}").__file__.endswith((".so", ".pyd"))
    assert (ROOM / f"{name}.pyi").exists()


def _answers(*mode: str) -> list[str]:
    program = [sys.executable, str(SUPPORT / "plain_answers.py"), *mode]
    return subprocess.run(program, check=True, capture_output=True, text=True, timeout=300).stdout.splitlines()


def test_without_kernels_the_same_agents_are_found_for_the_same_reasons() -> None:
    plain = _answers("plain")
    assert len(plain) > 5
    assert any("translat" in line for line in plain)
    assert plain == _answers()


def test_without_a_compiler_the_package_is_installed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.pyx").write_text("def one():\n    return 1\n")
    monkeypatch.setenv("CC", "false")  # a compiler that refuses everything
    with pytest.raises(BuildError):
        compile_kernels(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.pyx"]


@needs_a_compiler
def test_a_kernel_is_compiled_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.pyx").write_text("def one():\n    return 1\n")
    made = compile_kernels(tmp_path)
    assert [path.name.partition(".")[0] for path in made] == ["kernel"]
    assert compile_kernels(tmp_path) == []
