"""Compiled kernels: built where there is a compiler; without one the fallbacks give the same results, and this is reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hatch_build import BuildError, compile_kernels

from waypost.search.kernels import KERNELS, find_missing_kernels

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "src" / "waypost" / "search" / "kernels"
SUPPORT = Path(__file__).parents[2] / "support"
COMPILER = os.environ.get("CC", "cc")

needs_a_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and "CI" not in os.environ, reason="there is no C compiler here"
)


def test_the_table_of_kernels_lists_every_source() -> None:
    assert sorted(KERNELS) == sorted(path.stem for path in FOLDER.glob("*.pyx"))


@needs_a_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_compiled_and_has_type_stubs(name: str) -> None:
    assert import_module(f"waypost.search.kernels.{name}").__file__.endswith((".so", ".pyd"))
    assert (FOLDER / f"{name}.pyi").exists()


@needs_a_compiler
def test_compiled_kernels_are_not_missing() -> None:
    assert find_missing_kernels() == []


def _answers(*mode: str) -> list[str]:
    program = [sys.executable, str(SUPPORT / "fallback_answers.py"), *mode]
    return subprocess.run(program, check=True, capture_output=True, text=True, timeout=300).stdout.splitlines()


def test_without_kernels_the_same_agents_are_found_for_the_same_reasons() -> None:
    plain = _answers("plain")
    assert len(plain) > 5
    assert any("translat" in line for line in plain)
    assert plain == _answers()


@needs_a_compiler
@pytest.mark.parametrize(
    ("mode", "human", "machine"),
    [
        ("plain", "(search kernels: Python fallback", '"kernels": "fallback"'),
        ("compiled", "(search kernels: compiled)", '"kernels": "compiled"'),
    ],
)
def test_the_version_command_says_whether_the_kernels_are_in_use(mode: str, human: str, machine: str) -> None:
    program = [
        sys.executable,
        "-c",
        "import sys; from fallback_answers import NoKernels; from waypost.cli.main import run;"
        "sys.argv.pop(1) == 'plain' and sys.meta_path.insert(0, NoKernels()); run()",
        mode,
        "version",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])}
    for arguments, expected in ((["-o", "human"], human), (["-o", "json"], machine)):
        result = subprocess.run(
            [*program, *arguments], env=environment, check=True, capture_output=True, text=True, timeout=300
        )
        assert expected in result.stdout


def test_a_failed_compilation_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel.pyx").write_text("def one():\n    return 1\n")
    monkeypatch.setenv("CC", "false")  # a compiler that always fails
    with pytest.raises(BuildError):
        compile_kernels(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.pyx"]


def test_a_failed_compilation_prints_a_warning_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "kernel.pyx").write_text("def one():\n    return 1\n")
    program = [sys.executable, str(ROOT / "hatch_build.py"), "--sanitize", str(tmp_path)]
    result = subprocess.run(
        program, env={**os.environ, "CC": "false"}, check=False, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 1
    assert "waypost: WARNING: the search kernels were not compiled" in result.stderr


@needs_a_compiler
def test_a_kernel_is_compiled_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.pyx").write_text("def one():\n    return 1\n")
    built = compile_kernels(tmp_path)
    assert [path.name.partition(".")[0] for path in built] == ["kernel"]
    assert compile_kernels(tmp_path) == []


@needs_a_compiler
@pytest.mark.parametrize(
    ("expression", "at", "report"),
    [("numbers[at]", 3, "AddressSanitizer: heap-buffer-overflow"), ("at * at", 70_000, "signed integer overflow")],
)
def test_the_sanitizers_report_a_kernel_with_a_memory_error(
    tmp_path: Path, expression: str, at: int, report: str
) -> None:
    (tmp_path / "kernel.pyx").write_text(
        "# cython: boundscheck=False\n"
        f"def read(const int[::1] numbers, int at):\n    cdef int result = {expression}\n    return result\n"
    )
    compile_kernels(tmp_path, sanitize=True)
    runtime = subprocess.run([COMPILER, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(tmp_path),
    }
    program = [sys.executable, "-c", f"import array, kernel; kernel.read(array.array('i', [1, 2, 3]), {at})"]
    result = subprocess.run(program, env=environment, check=False, capture_output=True, text=True, timeout=300)
    assert result.returncode != 0
    assert report in result.stderr
