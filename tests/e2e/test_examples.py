"""Every program in `examples/`, run as a reader starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgresql import running_postgresql
from support.server import RunningServer, clean_environment, running_server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MOST_LINES = 80  # two minutes of reading

# What each program must have printed, in this order.
PRINTED = {
    "keep_registered.py": ("registered morning-greeter", "called: Good morning, Ada!", "withdrawn: True"),
    "find_and_call.py": (": Trail Packer at http://127.0.0.1", "For 'a hike in the rain': boots"),
    "watch_loop.py": ("registered: sprinkler is a ", "sprinkler is gone"),
    "mcp_host.py": ("tools: ", "find_agents", "Invoice Translator", "its A2A card: {"),
    "fastapi_app.py": ("found Summarizer 1.0.0",),
    "lan.py": ("udp: announced", "found ", " by udp: signed", "withdrawn"),
    "dns.py": ("agent:alice.example.test is key-verified", "passed", "dane-verified"),
}
SEPARATE = {"two_registries.py", "langgraph_tool_picker.py", "three_nodes.py"}


@pytest.fixture(scope="module")
def demo() -> Iterator[RunningServer]:
    with running_server(command="demo") as server:
        yield server


def run(program: str, *arguments: str, environment: dict[str, str], python: str = sys.executable) -> str:
    done = subprocess.run(
        [python, str(EXAMPLES / program), *arguments],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_in_order(output: str, parts: tuple[str, ...]) -> None:
    at = 0
    for part in parts:
        assert part in output[at:], output
        at = output.index(part, at) + len(part)


def test_every_program_is_run_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == set(PRINTED) | SEPARATE
    assert len(programs) == 10
    overview = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in programs if f"[{name}]({name})" not in overview] == []


@pytest.mark.parametrize("program", sorted({*PRINTED, *SEPARATE}))
def test_a_program_is_short_and_says_how_to_start_it(program: str) -> None:
    text = (EXAMPLES / program).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert f"python examples/{program}" in text.partition('"""\n\n')[0]


@pytest.mark.parametrize("program", PRINTED)
def test_the_program_does_what_it_shows_and_ends(demo: RunningServer, program: str) -> None:
    assert_in_order(run(program, environment=demo.environment()), PRINTED[program])


def test_three_nodes_share_one_postgresql() -> None:
    with running_postgresql() as database:
        output = run("three_nodes.py", database.create_database(), environment=clean_environment())
    assert_in_order(output, ("node 1: created", "node 3: Greets guests.", "node 3: cluster-greeter"))


def test_one_registry_follows_and_asks_another() -> None:
    output = run("two_registries.py", environment=clean_environment())
    parts = (
        "here follows there, whose key is sha256:",
        "found here after ",
        "its origin is there: True",
        "gone here after ",
        "asked by default: False",
        "asked when the search says so: ['Ledger Keeper']",
    )
    assert_in_order(output, parts)


@pytest.mark.long
def test_langgraph_picks_and_calls_a_tool(demo: RunningServer, tmp_path: Path) -> None:
    """In an environment of its own: LangGraph brings packages that Waypost does not pin."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "langgraph", str(ROOT)], check=True, timeout=900)
    environment = {**demo.environment(), "PATH": os.environ["PATH"]}
    output = run("langgraph_tool_picker.py", environment=environment, python=python)
    assert_in_order(output, ("Currency Converter", "20 euros are about 3,300 yen."))
