"""`call`: agents of the real SDKs are called by their own bindings, from the clients and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from support.callable_agents import a2a_app, http_app, mcp_app, serving, serving_a2a_0_3
from support.judges import A2A_SDK_0_3_VERSION
from support.server import RunningServer, running_server
from support.shell import Shell
from waypost import Client, SyncClient
from waypost.client.binding_policy import BindingPolicy
from waypost.errors import (
    FetchFailed,
    InvalidParameter,
    InvalidRequest,
    NotAllowed,
    NotFound,
    Unauthorized,
    Unavailable,
    WaypostError,
)


def current_card(name: str, url: str, binding: str, version: str = "1.0") -> dict[str, Any]:
    return {
        "name": name,
        "description": "Repeats the message.",
        "version": "1.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": version}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


def older_card(name: str, url: str, transport: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Repeats the message.",
        "version": "1.0",
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": transport,
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


def profile(name: str, protocol: str, endpoint: str, **members: Any) -> dict[str, Any]:
    binding = {"protocol": protocol, "endpoint": endpoint, **members}
    return {"id": name, "name": name, "description": "Repeats the message.", "bindings": [binding]}


def server_json(name: str, url: str, transport: str = "streamable-http") -> dict[str, Any]:
    remote = {"type": transport, "url": url}
    return {"name": f"io.example/{name}", "description": "Repeats.", "version": "1.0.0", "remotes": [remote]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with ExitStack() as stack:

        def start(app: Any) -> str:
            return stack.enter_context(serving(app))

        a2a, older, second = start(a2a_app()), start(a2a_app(older=True)), start(a2a_app(older=True))
        one, many, plain = start(mcp_app(json_response=True)), start(mcp_app(tools=3)), start(http_app())
        two = start(mcp_app(tools=2))
        oldest = stack.enter_context(serving_a2a_0_3(tmp_path_factory.mktemp("a2a")))
        running = stack.enter_context(running_server("--store", "memory", "--no-health-checks"))
        with SyncClient(running.url, running.admin_token) as wp:
            for document in (
                current_card("a2a", f"{a2a}/rpc", "JSONRPC"),
                current_card("a2a-rest", f"{a2a}/rest", "HTTP+JSON"),
                older_card("a2a-older", f"{older}/rpc", "JSONRPC"),
                older_card("a2a-older-rest", f"{older}/rest", "HTTP+JSON"),
                older_card("a2a-sdk-0.3", f"{oldest}/a/rpc", "JSONRPC"),
                older_card("a2a-sdk-0.3-rest", f"{oldest}/b/rest", "HTTP+JSON"),
                current_card("a2a-mixed", f"{second}/rpc", "JSONRPC", "0.3"),
                profile("a2a-bare", "a2a", f"{a2a}/rpc"),
                profile("a2a-bare-older", "a2a+jsonrpc", f"{older}/rpc"),
                server_json("mcp-one", f"{one}/mcp"),
                server_json("mcp-two", f"{two}/mcp"),
                server_json("mcp-many", f"{many}/mcp"),
                server_json("mcp-sse", f"{one}/sse", "sse"),
                profile("http-text", "https", f"{plain}/plain"),
                profile("http-json", "http", f"{plain}/json", media_types=["application/json"]),
                *(profile(f"http-{name}", "http", f"{plain}/{name}") for name in ("locked", "redirect", "broken")),
                profile("http-gone", "http", "http://127.0.0.1:1/"),
                profile("http-metadata", "http", "http://169.254.169.254/latest/meta-data"),
                profile("grpc", "grpc", "https://agents.example.net"),
            ):
                wp.register(document)
        yield running


CALLED_WITH = "agents made with it are called by their cards, over JSON-RPC and REST"
CURRENT_SDK = pytest.mark.judge("a2a-sdk", version("a2a-sdk"), CALLED_WITH)
OLDER_SDK = pytest.mark.judge("a2a-sdk", A2A_SDK_0_3_VERSION, CALLED_WITH)
CALLED = [
    pytest.param("a2a", marks=CURRENT_SDK),
    pytest.param("a2a-rest", marks=CURRENT_SDK),
    "a2a-older",
    "a2a-older-rest",
    pytest.param("a2a-sdk-0.3", marks=OLDER_SDK),
    pytest.param("a2a-sdk-0.3-rest", marks=OLDER_SDK),
    "a2a-mixed",
    "a2a-bare",
    "a2a-bare-older",
    "mcp-one",
    "mcp-two",
    "http-text",
    "http-json",
]


@pytest.mark.parametrize("name", CALLED)
async def test_an_agent_is_called_by_its_own_binding(server: RunningServer, name: str) -> None:
    async with Client(server.url, server.admin_token) as wp:
        answer = await wp.call(name, "grüß dich")
    assert answer == "echo: grüß dich"
    assert answer.protocol.partition("+")[0] in (name.partition("-")[0], "https")
    assert answer.endpoint.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("name", CALLED)
def test_the_blocking_client_does_the_same(server: RunningServer, name: str) -> None:
    with SyncClient(server.url, server.admin_token) as wp:
        assert wp.call(name, "hello").text == "echo: hello"


@pytest.mark.parametrize("name", ["a2a", "a2a-rest", "a2a-older", "a2a-older-rest", "a2a-sdk-0.3", "a2a-sdk-0.3-rest"])
def test_the_artifacts_of_a_task_are_the_answer(server: RunningServer, name: str) -> None:
    with SyncClient(server.url, server.admin_token) as wp:
        assert wp.call(name, "slow work") == "echo: slow work"
        with pytest.raises(FetchFailed, match="no such invoice"):
            wp.call(name, "fail now")


def test_tools_are_chosen_by_name_and_get_arguments(server: RunningServer) -> None:
    with SyncClient(server.url, server.admin_token) as wp:
        assert wp.call("mcp-many", "hello", tool="echo") == "echo: hello"
        assert wp.call("mcp-many", tool="add", arguments={"a": 1, "b": 2}) == "3"
        assert wp.call("mcp-many", '{"a": 1, "b": 5}', tool="add") == "6"
        with pytest.raises(InvalidParameter, match=r"3 tools.*--tool NAME.*add \{a: integer, b: integer\}"):
            wp.call("mcp-many", "hello")
        with pytest.raises(InvalidParameter, match=r"more than one text.*add \{a: integer, b: integer\}"):
            wp.call("mcp-many", "hello", tool="add")
        with pytest.raises(InvalidParameter, match="no tool 'subtract'"):
            wp.call("mcp-many", "hello", tool="subtract")
        with pytest.raises(FetchFailed, match="'shout' failed"):
            wp.call("mcp-many", "hello", tool="shout")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("http-locked", Unauthorized, "asks for credentials"),
        ("http-redirect", FetchFailed, "status 307"),
        ("http-broken", FetchFailed, "status 500"),
        ("http-gone", Unavailable, "cannot be reached"),
        ("http-metadata", NotAllowed, "169.254.169.254"),
        ("grpc", InvalidRequest, "gRPC"),
        ("mcp-sse", InvalidRequest, "outdated"),
        ("no-such-agent", NotFound, "No agent"),
    ],
)
def test_what_cannot_be_called_is_explained(
    server: RunningServer, name: str, error: type[WaypostError], message: str
) -> None:
    with SyncClient(server.url, server.admin_token) as wp, pytest.raises(error, match=message):
        wp.call(name, "hello")


def test_the_credentials_of_the_service_are_not_sent(server: RunningServer) -> None:
    with SyncClient(server.url, server.admin_token) as wp:
        assert wp.call("http-text", "hi") == "echo: hi"
        assert wp.call("http-text", "hi", headers={"Authorization": "Bearer mine"}) == "Bearer mine: hi"


def test_a_policy_limits_what_is_called(server: RunningServer) -> None:
    with SyncClient(server.url, server.admin_token) as wp:
        with pytest.raises(InvalidRequest, match="local address"):
            wp.call("http-text", "hi", policy=BindingPolicy(schemes=("http", "https")))
        with pytest.raises(InvalidRequest, match="scheme"):
            wp.call("http-text", "hi", policy=BindingPolicy(local_addresses=True))

        def refuse(address: str, port: int) -> None:
            raise NotAllowed(f"Not {address}.")

        with pytest.raises(NotAllowed, match=r"Not 127\.0\.0\.1"):
            wp.call("http-text", "hi", check_address=refuse)


@pytest.fixture
def shell(tmp_path: Path, server: RunningServer) -> Shell:
    return Shell(tmp_path, server.environment())


@pytest.mark.parametrize("name", ["a2a", "a2a-older", "mcp-one", "http-text"])
def test_the_command_calls_agents(shell: Shell, name: str) -> None:
    ran = shell("call", name, "hello", "there")
    assert (ran.code, ran.out) == (0, "echo: hello there\n")
    value = shell("call", name, "-o", "json", stdin=b"hello\n").json
    assert value["text"] == "echo: hello"
    assert value["protocol"].startswith(name.partition("-")[0])


def test_the_command_explains_what_to_pass(shell: Shell) -> None:
    ran = shell("call", "mcp-many", "hello")
    assert ran.code == 64
    assert "--tool" in ran.err
    assert shell("call", "mcp-many", "--tool", "add", "--arguments", '{"a": 1, "b": 2}').out == "3\n"
    assert shell("call", "mcp-many", "--tool", "add", "--arguments", "[").code == 64
    assert shell("call", "http-text", "hi", "-H", "Authorization: Bearer 7").out == "Bearer 7: hi\n"
    assert shell("call", "http-gone", "hi").code == 69
    assert shell("call", "http-metadata", "hi").code == 77
    error = json.loads(shell("call", "http-locked", "hi", "-o", "json").err.splitlines()[-1])["error"]
    assert error["code"] == "unauthorized"
    assert "--header" in error["hint"]
