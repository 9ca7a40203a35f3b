"""The adapters for frameworks: each example runs with its framework, in an environment of its own, against a service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.judges import python_packages
from support.server import RunningServer, clean_environment, running_server
from waypost.adapters.mcp_hosts import HOSTS
from waypost.samples import load

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"
SECONDS = 300
FOUND = "Invoice Translator"
LANGCHAIN, OPENAI_AGENTS = "1.7.2", "0.24.0"
GOOGLE_ADK, AGENT_FRAMEWORK = "2.13.0", "1.23.0"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--open") as running:
        for sample in load():
            assert httpx.post(f"{running.url}/api/v1/agents", content=sample.data).status_code == 201
        yield running


def run_example(server: RunningServer, name: str, *requirements: str) -> str:
    environment = clean_environment({"WAYPOST_SERVER": server.url, "WAYPOST_DATA": str(server.data)})
    if requirements:
        environment["PYTHONPATH"] = str(python_packages(*requirements))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.judge("LangChain", LANGCHAIN, "tools and retriever of `waypost.adapters.langchain` find agents")
def test_langchain_finds_agents_with_tools_and_a_retriever(server: RunningServer) -> None:
    told = run_example(server, "langchain_tools", f"langchain-core=={LANGCHAIN}")
    assert "find_agents takes task and call_agent takes id, text" in told
    assert f"strong {FOUND} at https://translate.example.com/invoices" in told


@pytest.mark.long
@pytest.mark.judge("OpenAI Agents SDK", OPENAI_AGENTS, "tools of `waypost.adapters.openai_agents` find agents")
def test_the_openai_agents_sdk_finds_agents_with_tools(server: RunningServer) -> None:
    told = run_example(server, "openai_agents_tools", f"openai-agents=={OPENAI_AGENTS}")
    assert "Dispatcher has find_agents, call_agent" in told
    assert FOUND in told


@pytest.mark.long
@pytest.mark.judge("Google ADK", GOOGLE_ADK, "`RemoteA2aAgent` asks the service, and agents found are sub-agents")
def test_google_adk_asks_the_service_and_takes_agents_as_sub_agents(server: RunningServer) -> None:
    told = run_example(server, "google_adk_agents", f"google-adk=={GOOGLE_ADK}", "a2a-sdk==1.3.0")
    tools, sub_agents, answer = told.split("\n", 2)
    assert tools == "tools: find_agents, call_agent"
    assert sub_agents.removeprefix("sub-agents: ")
    assert answer.startswith(f"1. {FOUND}: ")


@pytest.mark.long
@pytest.mark.judge(
    "Microsoft Agent Framework", AGENT_FRAMEWORK, "tools of `waypost.adapters.agent_framework` find agents"
)
def test_the_microsoft_agent_framework_finds_agents_with_tools(server: RunningServer) -> None:
    told = run_example(server, "agent_framework_tools", f"agent-framework-core=={AGENT_FRAMEWORK}")
    assert told.startswith("tools: find_agents call_agent")
    assert FOUND in told


def test_the_configuration_of_mcp_hosts_leads_to_the_tools(server: RunningServer) -> None:
    told = run_example(server, "mcp_host_config")
    assert [line for line in told.splitlines() if line.startswith("# ")] == [f"# {name}" for name in HOSTS]
    for name in HOSTS:
        command = [sys.executable, "-m", "waypost.cli.main", "mcp", "--print-config", name, "--token", "t-1"]
        done = subprocess.run(command, env=server.environment(), capture_output=True, text=True, check=True)
        [entry] = json.loads(done.stdout)["servers" if name == "vscode" else "mcpServers"].values()
        if "command" in entry:
            assert (entry["command"], entry["args"]) == ("waypost", ["mcp"])
            assert entry["env"] == {"WAYPOST_SERVER": server.url, "WAYPOST_TOKEN": "t-1"}
        else:
            assert entry["url"] == f"{server.url}/mcp"
            assert entry["headers"] == {"Authorization": "Bearer t-1"}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            accept = {"Accept": "application/json, text/event-stream"}
            answer = httpx.post(entry["url"], json=ping, headers=accept).json()
            assert "find_agents" in [tool["name"] for tool in answer["result"]["tools"]]


@pytest.mark.parametrize("name", ["agent_framework", "google_adk", "langchain", "openai_agents"])
def test_the_core_imports_no_framework(name: str) -> None:
    program = (
        "import sys, waypost, waypost.cli.main, waypost.app, waypost.adapters.toolbox\n"
        "found = [name for name in ('langchain_core', 'agents', 'google.adk', 'agent_framework') if name in sys.modules]\n"
        "assert not found, found\n"
        f"try:\n    import waypost.adapters.{name}\nexcept ImportError as error:\n    print(error.name)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=SECONDS)
