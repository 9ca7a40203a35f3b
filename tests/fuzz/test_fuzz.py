"""Parsers of strangers' bytes, fuzzed: the kept inputs, then new ones from coverage-guided mutation.

A normal run tries the same few new inputs each time; CI goes on from them for CI_SECONDS. `--long` looks for others, longer;
`scripts/fuzz` does so for hours.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.inventory import CORPUS, ROOT, TARGETS

CI_SECONDS, LONG_SECONDS = 30, 45
EVERY_TARGET = pytest.mark.parametrize("name", TARGETS)


@EVERY_TARGET
def test_every_kept_input_is_handled(name: str) -> None:
    fuzz = importlib.import_module(f"fuzz.targets.{name}").fuzz
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        fuzz(path.read_bytes())


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this system")
@EVERY_TARGET
def test_fuzzing_finds_nothing(name: str, is_long: bool, tmp_path: Path) -> None:
    options = ["-max_len=4096", "-timeout=60"]
    if is_long:
        options += [f"-max_total_time={LONG_SECONDS}"]
    elif os.environ.get("CI") == "true":
        options += ["-seed=1", f"-max_total_time={CI_SECONDS}"]
    else:
        options += ["-seed=1", "-runs=2000", "-max_total_time=5"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-m", "fuzz.run", name, str(tmp_path), *options],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    report = result.stdout.decode("utf-8", "replace")
    broken = {path.name: path.read_bytes() for path in tmp_path.glob("broken-*")}
    assert result.returncode == 0, f"{broken}\n{report[-4000:]}"


def test_every_target_has_a_corpus_of_small_files_and_no_corpus_is_left_over() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == TARGETS
    assert [path for path in CORPUS.rglob("*") if path.is_file() and path.stat().st_size > 2048] == []


def test_a_target_that_breaks_is_reported_with_its_input(tmp_path: Path) -> None:
    """The harness itself: an assertion of a target is a failure of the run."""
    pytest.importorskip("atheris")
    package = tmp_path / "fuzz"
    (package / "targets").mkdir(parents=True)
    for file in ("run.py", "inventory.py"):
        (package / file).write_bytes((ROOT / "tests" / "fuzz" / file).read_bytes())
    (package / "targets" / "fragile.py").write_text("def fuzz(data):\n    assert not data.startswith(b'a')\n")
    result = subprocess.run(
        [sys.executable, "-m", "fuzz.run", "fragile", str(tmp_path / "new"), "-max_total_time=60", "-seed=1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert result.returncode != 0
    (broken,) = (tmp_path / "new").glob("broken-*")
    assert broken.read_bytes().startswith(b"a")
