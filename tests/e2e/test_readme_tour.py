"""The commands of the README and the tutorial, run against a real service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.markdown import fenced_blocks
from support.server import RunningServer, running_server

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-agent.md"
ADDRESS = "http://127.0.0.1:8440"


@pytest.fixture(scope="module")
def demo() -> Iterator[RunningServer]:
    with running_server(command="demo") as server:
        yield server


def run(script: str, server: RunningServer, folder: Path) -> list[str]:
    """Runs the lines one after the other, as typed; each must succeed. What each wrote to stdout."""
    marked = "".join(f"{line}\nprintf '\\036'\n" for line in statements(script.replace(ADDRESS, server.url)))
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", marked],
        cwd=folder,
        env={**server.environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.split("\036")[:-1]


def statements(script: str) -> list[str]:
    """Lines, with those that a quote leaves open joined to the next ones."""
    found: list[str] = []
    for line in script.strip().splitlines():
        if found and found[-1].count("'") % 2:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def test_the_tour_of_the_readme_works_as_it_is_written(demo: RunningServer, tmp_path: Path) -> None:
    (tour,) = fenced_blocks(README, "sh tour")
    assert len(statements(tour)) <= 10
    _, found, _, registered, card, listed, discovered, rpc, _ = run(tour, demo, tmp_path)
    assert found.strip()
    assert "com.example/greeter" in registered
    assert json.loads(card)["supportedInterfaces"][0]["url"] == "https://greeter.example.com/mcp"
    assert [agent["name"] for agent in json.loads(listed)["agents"]] == ["com.example/greeter"]
    candidate = json.loads(discovered)["candidates"][0]
    assert candidate["id"] == "com.example/greeter"
    assert candidate["score_components"]
    assert json.loads(rpc)["result"]["agents"][0]["agent_id"] == "com.example/greeter"


def test_the_picture_of_the_readme_shows_real_output() -> None:
    """scripts/picture.py runs the commands on a terminal and compares the words."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "picture.py", "--check"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "docs/images/find.svg" in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("code", fenced_blocks(README, "python"))
def test_each_python_block_of_the_readme_is_a_whole_program(demo: RunningServer, tmp_path: Path, code: str) -> None:
    assert ADDRESS in code
    program = tmp_path / "program.py"
    program.write_text(code.replace(ADDRESS, demo.url))
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, env=demo.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "greeter" in done.stdout


def test_the_commands_of_the_tutorial_work_in_their_order(demo: RunningServer, tmp_path: Path) -> None:
    (card,) = fenced_blocks(TUTORIAL, "json")
    (tmp_path / "card.json").write_text(card)
    typed = "".join(fenced_blocks(TUTORIAL, "sh"))
    endless = ("scripts/serve\n", "waypost watch\n")
    assert all(line in typed for line in endless)
    for line in endless:
        typed = typed.replace(line, "")
    outputs = run(typed, demo, tmp_path)
    own_bytes = next(text for line, text in zip(statements(typed), outputs, strict=True) if "--as a2a" in line)
    assert json.loads(own_bytes) == json.loads(card)
    framework = next(text for line, text in zip(statements(typed), outputs, strict=True) if "agentframework" in line)
    assert [agent["name"] for agent in json.loads(framework)["agents"]] == ["Trail Guide"]


def test_the_python_of_the_tutorial_runs(demo: RunningServer, tmp_path: Path) -> None:
    (code,) = fenced_blocks(TUTORIAL, "python")
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, demo.url)],
        cwd=tmp_path,
        env=demo.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "trail-guide created"
    assert "trail-guide" in done.stdout.splitlines()[1]
