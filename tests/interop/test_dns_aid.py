"""The command of dns-aid finds agents in a zone of ours, by the protocol that each speaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.certificates import Authority
from support.dns_serve_process import served_zone
from support.judges import python_packages
from support.server import RunningServer, running_server
from support.shell import Shell

DNS_AID = "0.28.1"
COMMAND = Path(__file__).parents[1] / "support" / "dns_aid_process.py"
SPOKEN = {"desk": "mcp", "chat": "a2a+jsonrpc"}
ZONE = "example.test"
CARD = {
    "protocolVersion": "0.3.0",
    "name": "Chat",
    "description": "Finds agents.",
    "preferredTransport": "JSONRPC",
    "version": "1.0.0",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "find", "name": "Find", "description": "Finds an agent.", "tags": ["agents"]}],
}
SECONDS = 120

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def registry(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A service with two hosted agents. The one that speaks A2A is the service itself, under another name."""
    certificate, key = authority.server_files("127.0.0.1", *(f"{name}.{ZONE}" for name in SPOKEN))
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with running_server(*tls, "--anonymous-read") as server:
        port = urlsplit(server.url).port
        shell = _shell(server, authority, tmp_path_factory.mktemp("agents"))
        server_url = f"https://desk.{ZONE}:{port}/mcp"
        desk = {
            "id": "urn:agent:desk",
            "name": "Desk",
            "description": "Answers questions at the desk.",
            "bindings": [{"protocol": "mcp", "endpoint": server_url}],
        }
        chat = {**CARD, "url": f"https://chat.{ZONE}:{port}/a2a"}
        for name, document in {"desk": desk, "chat": chat}.items():
            made = shell("register", shell.write(f"{name}.json", document), "-o", "json")
            assert shell("host", f"{name}.{ZONE}", json.loads(made.out)["id"]).code == 0
        yield server


def _shell(server: RunningServer, authority: Authority, folder: Path) -> Shell:
    return Shell(folder, {**server.environment(), "WAYPOST_CA": str(authority.certificate)})


@pytest.fixture(scope="module")
def name_server(
    registry: RunningServer, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("zone")
    shell = _shell(registry, authority, folder)
    options = ("--address", "127.0.0.1", "--port", str(urlsplit(registry.url).port))
    desk = shell("dns", "zone", f"desk.{ZONE}", "--org", ZONE, *options)
    chat = shell("dns", "zone", f"chat.{ZONE}", *options)
    with served_zone(folder, f"{desk.out}\n{chat.out}") as (server, _):
        yield server.port


def dns_aid(name_server: int, authority: Authority, *arguments: str) -> str:
    packages = python_packages(f"dns-aid=={DNS_AID}", "typer", "rich")
    environment = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "SSL_CERT_FILE": str(authority.certificate),
        "DNS_AID_FETCH_ALLOWLIST": ",".join(f"{name}.{ZONE}" for name in SPOKEN),
    }
    command = [sys.executable, str(COMMAND), str(name_server), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.judge(
    "dns-aid", DNS_AID, "`dns-aid discover` finds agents of a zone of ours by the protocol that they speak"
)
@pytest.mark.parametrize(("protocol", "names"), [("mcp", {"desk"}), ("a2a", {"chat"}), (None, {"desk", "chat"})])
def test_agents_are_discovered_by_the_protocol_that_they_speak(
    name_server: int, authority: Authority, protocol: str | None, names: set[str]
) -> None:
    options = ("-p", protocol) if protocol else ()
    told: dict[str, Any] = json.loads(dns_aid(name_server, authority, "discover", ZONE, *options, "--json"))
    assert {agent["name"] for agent in told["agents"]} == names
    for agent in told["agents"]:
        assert agent["protocol"] == SPOKEN[agent["name"]].partition("+")[0]


@pytest.mark.judge(
    "dns-aid", DNS_AID, "`dns-aid message` reaches an agent of a zone of ours at the path of its endpoint"
)
def test_a_message_reaches_the_endpoint_of_the_agent(name_server: int, authority: Authority) -> None:
    told = dns_aid(name_server, authority, "message", "questions at the desk", "-d", ZONE, "-n", "chat")
    assert "Agent response" in told
    assert "urn:agent:desk" in told
