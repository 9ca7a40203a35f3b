"""`scripts/serve` on a fresh machine: from any folder, with a minimal PATH, whatever the default data folder holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server import STOP_SECONDS

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a login. The default data folder holds keys that no service can use: the demo has its own."""
    keys = tmp_path / "home" / ".local" / "share" / "waypost" / "keys"
    keys.mkdir(parents=True)
    for name in ("identity.pem", "token.pem", "../admin.token"):
        (keys / name).write_text("poison")
    return {"HOME": str(tmp_path / "home"), "PATH": SYSTEM_PATH}


@pytest.fixture
def served(tmp_path: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    ready = subprocess.run([ROOT / "scripts" / "environment", "test", "check"], env=environment, check=False)
    assert ready.returncode == 0, "the environment is not the pinned one: run scripts/environment test"
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [ROOT / "scripts" / "serve", "--port", "0"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    yield process
    process.terminate()
    process.communicate(timeout=STOP_SECONDS)


def test_it_prints_the_ready_line_and_the_three_suggestions_work(
    served: subprocess.Popen[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    assert served.stdout is not None
    first = served.stdout.readline()
    progress = (tmp_path / "stderr").read_text()
    assert first.startswith("waypost ready http://127.0.0.1:"), progress
    assert progress.startswith("waypost: checking the environment")
    assert "waypost: starting a service" in progress
    trials = _trials(served)
    assert len(trials) == 3
    for trial in trials:
        assert _first_output(trial, tmp_path, environment), trial
    left = [path for path in (tmp_path / "home" / ".local").rglob("*") if path.is_file()]
    assert [path.name for path in left if path.read_text() != "poison"] == []
    assert len(left) == 3


def test_a_first_start_reports_what_is_installed_and_how_long_it_took(tmp_path: Path) -> None:
    """pip is replaced: it needs a network, or minutes of a processor. It says what pip says, and pauses."""
    for name in ("scripts/environment", "pyproject.toml", "hatch_build.py", "requirements/build.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "requirements" / "runtime.txt").write_text("anyone==1.0\nanother==2.0\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"""#!/bin/sh
        case "$*" in
            *"pip --version"*) ;;
            *" --editable "*) echo "Obtaining file:///waypost" ;;
            *" install "*) echo "Collecting anyone==1.0"; sleep 4; echo "Collecting another==2.0"; sleep 4 ;;
            *) exec {sys.executable} "$@" ;;
        esac
        """
    )
    python.chmod(0o755)
    command = [tmp_path / "scripts" / "environment", "runtime"]
    environment = {"PATH": SYSTEM_PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    first, *reports, last = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, "")
    assert re.match(r"waypost: installing \d+ packages into \.venv", first)
    assert [line.split(" of ")[0] for line in reports][:2] == ["waypost:   1", "waypost:   2"]
    assert re.fullmatch(r"waypost: installed in \d+ s", last)
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (again.returncode, again.stderr) == (0, "")


def _trials(served: subprocess.Popen[str]) -> list[str]:
    """The indented lines after the ready line, up to the blank line behind them."""
    assert served.stdout is not None
    trials: list[str] = []
    for line in served.stdout:
        if line.startswith("  "):
            trials.append(line.strip())
        elif trials:
            break
    return trials


def _first_output(trial: str, folder: Path, environment: dict[str, str]) -> bool:
    """Types the line. One that goes on by itself counts when it is still running after a while."""
    typed = subprocess.Popen(
        ["bash", "-c", trial],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = typed.communicate(timeout=5 if " watch" in trial else 120)
    except subprocess.TimeoutExpired:
        os.killpg(typed.pid, 15)
        typed.communicate(timeout=STOP_SECONDS)
        return " watch" in trial
    return typed.returncode == 0 and bool(output.strip())
