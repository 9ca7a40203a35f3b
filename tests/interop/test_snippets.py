"""Use this agent: every snippet that the pages show for every sample agent is run against a server of its protocol.

The samples are registered with the addresses of servers on this machine: A2A 1.0 and 0.3 (each of the a2a-sdk of that
version), MCP over HTTP, SSE and stdio (MCP SDK), plain HTTP, JSON-RPC, WebSocket, TCP, and agents that talk AGP.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import io
import json
import os
import re
import shlex
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_websocket

from support.agp import key_of
from support.callable_agents import a2a_app, mcp_app, serving, serving_a2a_0_3
from support.command_process import run as run_command
from support.fake_programs import write_fake_programs
from support.judges import A2A_SDK_0_3, python_packages
from support.server import RunningServer, running_server
from waypost import LiveAgent
from waypost.client.chat import ChatMessage
from waypost.client.identity import key_only_agent, load_chat_key
from waypost.model.names import slug
from waypost.model.record import AgentRecord, Binding, Example
from waypost.protocols.dialects import DecodeContext, decode_document
from waypost.samples import Sample, load
from waypost.server.web.snippets import AgentInterface, SnippetContext, make_interfaces
from waypost.trust.document_signatures import sign_adp_public_key

SAMPLES = {f"{sample.dialect}/{sample.name}": sample for sample in load()}
SECRETS = {"TOKEN": "t", "X_API_KEY": "k", "AUTHORIZATION": "a", "X_WEATHER_KEY": "w", "DATABASE_URL": "d"}
STOPPED = frozenset(("grpc", "a2a+grpc"))  # these have no snippets: they need stubs of the agent
PATIENCE_SECONDS = 120.0
TENANT = "127.0.0.1"  # what a user would put in the place of {tenant}


# --- The servers ----------------------------------------------------------------------------------


async def _answer(request: Request) -> Response:
    """Plain HTTP with JSON or text, JSON-RPC, and documents to read."""
    if request.method == "GET":
        return JSONResponse({"name": "a document"})
    if not request.headers["content-type"].startswith("application/json"):
        return PlainTextResponse(f"echo: {(await request.body()).decode()}")
    body = await request.json()
    if "jsonrpc" in body:
        assert isinstance(body["method"], str)
        return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": {"output": "echo"}})
    return JSONResponse({"output": f"echo: {body['input']}"})


def _each_under_its_name(app: Any) -> Starlette:
    """The ids of A2A samples come from their addresses, so each needs one of its own."""
    return Starlette(routes=[Mount("/{name}", app=app)])


def _sse_app() -> Any:
    server = MCPServer("echo", log_level="ERROR")

    @server.tool()
    def echo(text: str) -> str:
        return f"echo: {text}"

    return server.sse_app()


class _TcpEcho(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"echo: " + self.rfile.readline())


@contextmanager
def _tcp_echo() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _TcpEcho) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _echo_messages(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(f"echo: {message!s}")


@contextmanager
def _websocket_echo() -> Iterator[str]:
    with serve_websocket(_echo_messages, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


@contextmanager
def _attached_agents(server: RunningServer, agents: list[str]) -> Iterator[None]:
    """Agents that talk AGP through the registry, in a thread of their own."""
    ready, done = threading.Event(), threading.Event()
    caller = load_chat_key(server.data)

    async def echo(message: ChatMessage) -> str:
        return f"echo: {message.text}"

    async def live() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for agent in agents:
                one = LiveAgent(agent, key_of(agent), registry=server.url, token=server.admin_token)
                one.on_chat(echo)
                one.knows(key_only_agent(caller), fingerprint=caller.public.fingerprint())
                await (await stack.enter_async_context(one)).attach()
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        done.set()
        thread.join(PATIENCE_SECONDS)


# --- The samples, at addresses of this machine ----------------------------------------------------


@dataclass
class Fakes:
    a2a: str
    older: str
    mcp: str
    sse: str
    http: str
    tcp: str
    socket: str

    def address(self, binding: Binding, name: str) -> str | None:
        """The address that replaces that of a sample; None: it stays."""
        protocol = binding.protocol
        residue = binding.extra.get("org.waypost.mcp") or {}
        is_older = "org.waypost.a2a" in binding.extra
        if binding.extra.get("unresolved"):
            return f"{self.http}/{name}.json"
        if protocol == "mcp":
            if "{tenant}" in binding.endpoint:
                return self.mcp.replace(TENANT, "{tenant}") + "/mcp"
            return f"{self.sse}/sse" if residue.get("type") == "sse" else f"{self.mcp}/mcp"
        path = {"a2a+jsonrpc": "rpc", "a2a+http-json": "rest"}.get(protocol)
        if path is not None:
            return f"{self.older if is_older else self.a2a}/{name}/{path}"
        if protocol in ("http", "https", "http-rest", "json-rpc") and "org.waypost.adp" not in binding.extra:
            return f"{self.http}/{name}"
        return {"ws": self.socket, "websocket": self.socket, "tcp": self.tcp}.get(protocol)


def decoded(sample: Sample) -> AgentRecord:
    return decode_document(sample.data, None, DecodeContext(now=time.time()))[2].record


def moved(sample: Sample, fakes: Fakes) -> bytes:
    """The document with the addresses of the fakes; an ADP document with a key whose private half is known here."""
    text = sample.data.decode()
    bindings = sorted(decoded(sample).bindings, key=lambda binding: -len(binding.endpoint))
    for number, binding in enumerate(bindings):
        address = fakes.address(binding, f"{sample.name}-{number}")
        if address is not None:
            text = text.replace(f'"{binding.endpoint}"', f'"{address}"')
            text = text.replace(f'"{binding.endpoint.removeprefix("tcp://")}"', f'"{address.removeprefix("tcp://")}"')
    if sample.dialect == "adp":
        document = json.loads(text)
        identity = document["identity"]
        identity["publicKey"] = sign_adp_public_key(key_of(identity["id"]), identity["domain"])
        return json.dumps(document).encode()
    return text.encode()


@dataclass
class Registered:
    server: RunningServer
    ids: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    with ExitStack() as stack:

        def start(app: Any) -> str:
            return stack.enter_context(serving(app))

        fakes = Fakes(
            a2a=start(_each_under_its_name(a2a_app())),
            older=stack.enter_context(serving_a2a_0_3(tmp_path_factory.mktemp("a2a"))),
            mcp=start(mcp_app()),
            sse=start(_sse_app()),
            http=start(Starlette(routes=[Route("/{path:path}", _answer, methods=["GET", "POST"])])),
            tcp=stack.enter_context(_tcp_echo()),
            socket=stack.enter_context(_websocket_echo()),
        )
        server = stack.enter_context(running_server("--store", "memory", "--no-health-checks"))
        found = Registered(server)
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
            for name, sample in SAMPLES.items():
                answer = http.post("/api/v1/agents", content=moved(sample, fakes))
                assert answer.status_code == 201, (name, answer.text)
                found.ids[name] = answer.json()["id"]
        agents = [agent_id for agent_id in found.ids.values() if agent_id.startswith("agent:")]
        stack.enter_context(_attached_agents(server, agents))
        yield found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_programs(tmp_path_factory.mktemp("programs"))


# --- What a page shows ----------------------------------------------------------------------------


@dataclass
class Shown:
    interface: str
    language: str
    code: str


class UseSection(HTMLParser):
    """The snippets and links of the section "Use this agent", as a browser shows them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.snippets: list[Shown] = []
        self.links: list[str] = []
        self.interfaces: list[str] = []
        self._is_inside = False
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "section":
            self._is_inside = named.get("id") == "use"
        if not self._is_inside:
            return
        if tag == "label":
            self.interfaces.append("")
            self._open = "label"
        elif tag == "pre":
            self.snippets.append(Shown(self.interfaces[-1], named.get("class") or "", ""))
            self._open = "pre"
        elif tag == "a" and str(named.get("href")).startswith(("cursor:", "vscode:", "https://claude.ai/")):
            self.links.append(str(named["href"]))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "label":
            self.interfaces[-1] += data
        elif self._open == "pre":
            self.snippets[-1].code += data


def use_section(server: RunningServer, agent_id: str) -> UseSection:
    answer = httpx2.get(f"{server.url}/a/{slug(agent_id)}", timeout=60)
    assert answer.status_code == 200
    section = UseSection()
    section.feed(answer.text)
    return section


# --- Running --------------------------------------------------------------------------------------


@dataclass
class Runner:
    server: RunningServer
    programs: Path
    folder: Path
    answers: dict[str, str] = field(default_factory=dict)  # of MCP servers, by their configuration

    @property
    def environment(self) -> dict[str, str]:
        own = self.server.environment()
        return {**own, **SECRETS, "PATH": f"{self.programs}{os.pathsep}{own.get('PATH', os.environ['PATH'])}"}

    def run(self, snippet: Shown) -> str:
        code = snippet.code.replace("{tenant}", TENANT)
        if snippet.language == "json":
            (config,) = json.loads(code)["mcpServers"].values()
            return self.use_mcp_server(config)
        if snippet.language == "python":
            return self.run_python(code)
        assert snippet.language == "shell"
        return self.run_shell(code)

    def run_shell(self, code: str) -> str:
        if code.startswith("waypost "):
            return self.run_waypost(shlex.split(code.replace("\\\n", " "))[1:])
        if code.startswith("claude "):
            return self.use_mcp_server(json.loads(self.bash(code)))
        if code.splitlines()[-1].startswith(("npx ", "uvx ", "dnx ", "docker run -i")):
            return self.use_mcp_server({"command": "bash", "args": ["-c", code]})
        return self.bash(code)

    def bash(self, code: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=self.environment,
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout or "ok"

    def run_waypost(self, words: list[str]) -> str:
        said = b"hello\n" if words[0] == "chat" else b""
        code, out, err = run_command(words, self.folder, self.environment, said, PATIENCE_SECONDS)
        assert code == 0, err.decode()
        return out.decode()

    def run_python(self, code: str) -> str:
        """In a process of its own, because of the other version of a2a-sdk; else here, which is faster."""
        if "TextPart" in code:
            packages = {"PYTHONPATH": str(python_packages(A2A_SDK_0_3))}
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                env={**self.environment, **packages},
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "snippet", "exec"), {"__name__": "__main__"})
        return out.getvalue()

    def use_mcp_server(self, config: dict[str, Any]) -> str:
        """The same configuration, as JSON and in two links, is used once."""
        key = json.dumps({name: value for name, value in config.items() if value}, sort_keys=True)
        if key not in self.answers:
            self.answers[key] = asyncio.run(self._use_mcp_server(config))
        return self.answers[key]

    async def _use_mcp_server(self, config: dict[str, Any]) -> str:
        """What an MCP host does with its configuration."""
        if "command" in config:
            env = {**self.environment, **{k: self._expand(v) for k, v in (config.get("env") or {}).items()}}
            target: Any = StdioServerParameters(command=config["command"], args=config["args"], env=env)
            return await self._call_echo(target)
        headers = {name: self._expand(value) for name, value in (config.get("headers") or {}).items()}
        if config["type"] == "sse":
            return await self._call_echo(sse_client(config["url"], headers=headers))
        async with httpx2.AsyncClient(headers=headers) as http:
            return await self._call_echo(streamable_http_client(config["url"], http_client=http))

    async def _call_echo(self, target: Any) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS), McpClient(target) as client:
            answer = await client.call_tool("echo", {"text": "hi"})
            return str(answer.content[0].text)  # type: ignore[union-attr]

    def _expand(self, value: str) -> str:
        for name, secret in SECRETS.items():
            value = value.replace(f"${{{name}}}", secret).replace(f"${{env:{name}}}", secret)
        assert "${" not in value
        return value


@pytest.fixture
def runner(registered: Registered, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    made = Runner(registered.server, programs, tmp_path)
    for name, value in made.environment.items():
        if name.startswith("WAYPOST"):
            monkeypatch.setenv(name, value)
    return made


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", SAMPLES)
def test_every_snippet_of_every_sample_succeeds(registered: Registered, runner: Runner, name: str) -> None:
    section = use_section(registered.server, registered.ids[name])
    record = decoded(SAMPLES[name])
    assert len(section.interfaces) == len(record.bindings) + 1, "one for each binding, and the registry"
    callable_bindings = [each for each in record.bindings if each.protocol not in STOPPED]
    assert len({shown.interface for shown in section.snippets}) >= min(1, len(callable_bindings))
    assert section.interfaces[-1] == "Waypost"
    assert len(section.snippets) >= len(callable_bindings) + 2
    for snippet in section.snippets:
        told = runner.run(snippet)
        assert told.strip(), snippet
        assert not _is_rpc_error(told), (snippet, told)
        if snippet.interface.startswith("A2A"):
            assert "echo: " in told, (snippet, told)
    assert not any("claude.ai" in link for link in section.links), "Claude cannot reach this machine"
    for link in section.links:
        config = _config_of(link.replace("%7Btenant%7D", TENANT))
        config = json.loads(json.dumps(config).replace("{tenant}", TENANT))
        assert runner.use_mcp_server(config) == "echo: hi"


def _is_rpc_error(told: str) -> bool:
    """JSON-RPC answers an error with the status 200, so curl succeeds."""
    try:
        answer = json.loads(told)
    except ValueError:
        return False
    return isinstance(answer, dict) and "jsonrpc" in answer and "error" in answer


def _config_of(link: str) -> dict[str, Any]:
    """What Cursor and VS Code read from a link."""
    parts = urlsplit(link)
    if parts.scheme == "cursor":
        found: dict[str, Any] = json.loads(base64.b64decode(parse_qs(parts.query)["config"][0]))
        return found
    return {key: value for key, value in json.loads(unquote(parts.query)).items() if key != "name"}


# --- Links to MCP hosts ---------------------------------------------------------------------------


def mcp_interface(url: str, name: str = "Weather", **residue: Any) -> AgentInterface:
    binding = Binding(protocol="mcp", endpoint=url, extra={"org.waypost.mcp": residue})
    record = AgentRecord(id="com.example/weather", name=name, description="x", bindings=(binding,))
    return make_interfaces(SnippetContext(record=record, base_url="http://127.0.0.1:8440"))[0]


def claude_links(interface: AgentInterface) -> list[str]:
    return [link.href for link in interface.links if link.title == "Add to Claude"]


@pytest.mark.parametrize("kind", ["streamable-http", "sse"])
@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("Weather", "https://weather.example.com/mcp"),
        ("com.example/weather", "https://weather.example.com:8443/mcp?key=a&b=c%20d#part"),
        ("Wetter & Straße + 100 % = 天气?", "https://weather.example.com/ä/mcp?x=y&connectorUrl=https://evil.example/"),
        ("a&modal=other#", "https://8.8.8.8/mcp"),
    ],
)
def test_the_link_to_claude_fills_in_the_name_and_the_address(kind: str, name: str, url: str) -> None:
    (link,) = claude_links(mcp_interface(url, name, type=kind))
    parts = urlsplit(link)
    assert link.isascii()
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == (
        "https",
        "claude.ai",
        "/customize/connectors",
        "",
    )
    assert parse_qs(parts.query, strict_parsing=True) == {
        "modal": ["add-custom-connector"],
        "connectorName": [name],
        "connectorUrl": [url],
    }


@pytest.mark.parametrize(
    "url",
    [
        "http://weather.example.com/mcp",
        "https://localhost/mcp",
        "https://127.0.0.1:8443/mcp",
        "https://[::1]/mcp",
        "https://10.1.2.3/mcp",
        "https://192.168.0.4/mcp",
        "https://169.254.1.1/mcp",
        "https://[fd00::1]/mcp",
        "https://intranet/mcp",
        "https://printer.local/mcp",
        "https://weather.corp.internal./mcp",
        "https://{tenant}.example.com/mcp",
        "https://[broken/mcp",
    ],
)
def test_no_link_leads_claude_to_an_address_that_it_cannot_reach(url: str) -> None:
    interface = mcp_interface(url)
    assert claude_links(interface) == []
    assert [link.title for link in interface.links] == ["Add to Cursor", "Add to VS Code"]
    assert "custom connector" not in interface.snippets[0].note


def test_no_link_to_claude_if_the_server_needs_a_header() -> None:
    """Claude's dialog has no field for headers."""
    interface = mcp_interface("https://weather.example.com/mcp", headers=[{"name": "X-Key", "isRequired": True}])
    assert claude_links(interface) == []
    for link in interface.links:
        assert _config_of(link.href)["headers"] == {"X-Key": "${env:X_KEY}"}, link.title
    assert json.loads(interface.snippets[0].code)["mcpServers"]["weather"]["headers"] == {"X-Key": "${X_KEY}"}


def test_packages_have_no_link_to_claude() -> None:
    binding = Binding(
        protocol="mcp-package",
        endpoint="pkg:npm/weather@1.0.0",
        extra={"org.waypost.mcp": {"environmentVariables": [{"name": "KEY", "isRequired": True}]}},
    )
    record = AgentRecord(id="a", name="Weather", description="x", bindings=(binding,))
    (own, _) = make_interfaces(SnippetContext(record=record, base_url="http://127.0.0.1:8440"))
    assert claude_links(own) == []
    assert own.snippets[-1].code == 'claude mcp add --env "KEY=$KEY" --transport stdio weather -- npx -y weather@1.0.0'


# --- Text of strangers ----------------------------------------------------------------------------

HOSTILE = "https://x.example/'\"$(touch /tmp/x)`id`\\ &;|<b>"
PROTOCOLS = [
    "a2a", "a2a+jsonrpc", "a2a+http-json", "mcp", "mcp-package", "agp", "https", "json-rpc", "ws", "tcp", "container_image",
    "source_code", "helm_chart", "grpc", "else",
]  # fmt: skip


def hostile_interfaces(protocol: str, endpoint: str = HOSTILE) -> list[AgentInterface]:
    record = AgentRecord(
        id=HOSTILE,
        name="$(reboot)",
        description="x",
        tags=("$(id)",),
        bindings=(Binding(protocol=protocol, endpoint=endpoint),),
        examples=(Example(text='\'; touch /tmp/x; "$(id)" `id` \\'),),
    )
    return make_interfaces(SnippetContext(record=record, base_url="http://127.0.0.1:8440"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_text_of_the_publisher_leaves_its_quotes(protocol: str) -> None:
    for interface in hostile_interfaces(protocol):
        for link in interface.links:
            assert re.fullmatch(r"(cursor://|vscode:|https://claude\.ai/)[\w./?=&%~-]+", link.href)
        for snippet in interface.snippets:
            if snippet.language == "python":
                tree = ast.parse(snippet.code)
                called = {ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
                assert not called & {"eval", "exec", "id", "os.system"}
            elif snippet.language == "json":
                json.loads(snippet.code)
            else:
                words = shlex.split(snippet.code.replace("\\\n", " "))
                assert words[0] in ("curl", "waypost", "git", "helm", "claude", "docker")
                assert not {"touch", "id", "$(touch"} & set(words)
                lexer = shlex.shlex(snippet.code.replace("\\\n", " "), posix=True, punctuation_chars=True)
                assert not set(lexer) & {";", "|", "&", "&&", "||", "(", "`"}


@pytest.mark.parametrize(
    "package",
    [
        "pkg:npm/x; rm -rf ~",
        "pkg:npm/$(id)@1",
        "pkg:pypi/x@1;id",
        "pkg:oci/x y@1",
        "pkg:npm/x@1 --eval",
        "pkg:npm/-y@1",
        "x",
    ],
)
def test_a_package_with_another_name_than_packages_have_is_not_run(package: str) -> None:
    own, registry = hostile_interfaces("mcp-package", package)
    assert own.snippets == []
    assert own.links == []
    assert [snippet.title for snippet in registry.snippets] == ["Its record", "As an A2A card"]


def test_private_examples_and_options_are_not_the_text_of_a_call() -> None:
    examples = (Example(text="secret", extra={"private": True}), Example(text="--config x"), Example(text="Open"))
    record = AgentRecord(id="a", name="a", description="a", examples=examples)
    assert SnippetContext(record=record, base_url="http://h").text == "Open"
