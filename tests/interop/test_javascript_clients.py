"""The official SDKs for JavaScript: A2A resolves every card and sends messages, MCP uses every tool."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.judges import npm_packages
from support.server import RunningServer, running_server
from waypost.samples import load

PROGRAMS = Path(__file__).parent / "javascript_clients"
A2A, A2A_0_3, MCP = "1.3.0", "0.3.14", "1.32.2"
SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--anonymous-read") as running:
        for sample in load():
            answer = httpx.post(f"{running.url}/api/v1/agents", content=sample.data, headers=running.headers)
            assert answer.status_code == 201
        yield running


def run_program(name: str, package: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON that a program prints. It lies beside its packages, where Node looks for them."""
    (folder / "node_modules").symlink_to(npm_packages(package))
    program = shutil.copy(PROGRAMS / name, folder)
    done = subprocess.run(
        ["node", str(program), *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.judge(
    "@a2a-js/sdk", A2A, "resolves the card of every sample agent by its base URL, and searches by a message"
)
def test_the_a2a_sdk_resolves_every_card_and_searches(
    server: RunningServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = run_program("a2a_sdk.mjs", f"@a2a-js/sdk@{A2A}", tmp_path, server.url)
    assert len(told["names"]) == len(load())
    for name, interfaces, agent, bindings in told["names"].values():
        assert (name, interfaces) == (agent, bindings)
    assert "1. Invoice Translator: " in json.dumps(told["answer"])
    record_property("total", len(load()) + 1)


@pytest.mark.judge(
    "@a2a-js/sdk", A2A_0_3, "resolves the card of every sample agent by its base URL, and searches by a message"
)
def test_the_a2a_sdk_0_3_resolves_every_card_and_searches(
    server: RunningServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = run_program("a2a_sdk_0_3.mjs", f"@a2a-js/sdk@{A2A_0_3}", tmp_path, server.url)
    assert len(told["cards"]) == len(load())
    for name, agent, is_endpoint, transport in told["cards"].values():
        assert (name, is_endpoint, transport) == (agent, True, "string")
    assert told["answer"]["kind"] == "message"
    assert told["answer"]["parts"][0]["text"].startswith("1. Invoice Translator: ")
    record_property("total", len(load()) + 1)


@pytest.mark.judge("MCP TypeScript SDK", MCP, "lists the tools and uses every one over HTTP")
def test_the_mcp_sdk_uses_every_tool(
    server: RunningServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    package = f"@modelcontextprotocol/sdk@{MCP}"
    told = run_program("mcp_sdk.mjs", package, tmp_path, server.url, server.admin_token)
    assert told["tools"] == ["find_agents", "get_agent", "register_agent", "ard_search"]
    assert (told["outcome"], told["name"]) == ("created", "Harp Tuner")
    assert "by-typescript" in told["ids"]
    assert told["entries"] > 0
    record_property("total", len(told["tools"]))
