"""The conformance suite of the Model Context Protocol against `/mcp`.

Its other scenarios call tools, resources and prompts of the reference server, or features that this server does not declare:
logging, completion, sampling, elicitation, subscriptions.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.judges import npm_packages
from support.server import RunningServer, running_server

SUITE = ("node@22.23.3", "@modelcontextprotocol/conformance@0.1.16")  # the suite needs Node 22
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
SECONDS = 120


@pytest.fixture(scope="module")
def modules() -> Path:
    return npm_packages(*SUITE)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--open") as running:
        yield running


@pytest.mark.judge("MCP conformance suite", "0.1.16", "server scenarios that apply to a server with tools alone")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_server_passes_the_scenario(modules: Path, server: RunningServer, scenario: str) -> None:
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [
        str(modules / ".bin" / "node"),
        str(suite),
        "server",
        "--url",
        f"{server.url}/mcp",
        "--scenario",
        scenario,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"(\d+)/\1 passed, 0 failed|0 failed", done.stdout), done.stdout
