"""Use this agent: calls to copy, made from each binding and its version. The tests run every one of them.

Endpoints and names are written by the publisher, so they are quoted for the language that they appear in. Where no call would
be true (gRPC needs the agent's own stubs), there is none.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from waypost.model.json import JsonObject
from waypost.model.names import slug
from waypost.model.record import AgentRecord, Binding

_MCP_RESIDUE: Final = "org.waypost.mcp"
_A2A_RESIDUE: Final = "org.waypost.a2a"
_ADP_RESIDUE: Final = "org.waypost.adp"
_RTFS_RESIDUE: Final = "org.waypost.rtfs"
_TEXT_CHARS: Final = 160
_LINE_CHARS: Final = 90
_HEADER_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}\Z")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}\Z")
_SERVER_NAME: Final = re.compile(r"[^a-z0-9-]+")
_A2A_TRANSPORTS: Final = {"a2a": "JSONRPC", "a2a+jsonrpc": "JSONRPC", "a2a+http-json": "HTTP+JSON"}
# A package is run only if its name is one that its ecosystem allows: nothing else reaches a shell.
_NPM: Final = re.compile(r"(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*\Z")
_PYPI: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_IMAGE: Final = re.compile(
    r"[a-z0-9][a-z0-9.-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?\Z"
)
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,80}\Z")
# Names that only a local network resolves: RFC 6761, RFC 6762, RFC 8375, and .internal, which ICANN reserved.
_LOCAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".home.arpa", ".lan")
_REVIEW: Final = "This runs a program of its publisher on your machine. Review it first."


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    language: str  # shell, python or json
    code: str
    note: str = ""


class DeepLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that makes an MCP host of the visitor add a server."""

    title: str
    href: str


class AgentInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One way to use an agent: a binding with its calls, or the registry itself."""

    title: str
    protocol: str = ""
    endpoint: str = ""
    snippets: list[Snippet] = []
    links: list[DeepLink] = []
    note: str = ""


class SnippetContext(msgspec.Struct, frozen=True, kw_only=True):
    """What snippets need besides the binding."""

    record: AgentRecord
    base_url: str
    is_public: bool = True

    @property
    def text(self) -> str:
        """What to ask: a short example of the agent. PRO-38: private ones are not quoted."""
        for example in self.record.examples:
            text = example.text.strip()
            is_short = 0 < len(text) <= _TEXT_CHARS and text.isprintable() and not text.startswith("-")
            if is_short and not example.extra.get("private"):
                return text
        return "Hello"

    @property
    def server_name(self) -> str:
        """A name for the configuration of an MCP host."""
        name = (self.record.name or self.record.id).rsplit("/", 1)[-1].lower()
        return _SERVER_NAME.sub("-", name).strip("-")[:40] or "agent"

    @property
    def card_url(self) -> str:
        """Where A2A SDKs find the card: open for public agents."""
        return f"{self.base_url}/a2a/{slug(self.record.id)}"


def make_interfaces(context: SnippetContext) -> list[AgentInterface]:
    """The interfaces in the agent's own order of preference, then the registry."""
    ordered = sorted(context.record.bindings, key=lambda binding: binding.priority or 0)
    own = [_interface(binding, context) for binding in ordered]
    return [*own, _registry_interface(context, ordered)]


def _interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    if binding.is_link:
        return _link_interface(binding)
    if binding.extra.get(_ADP_RESIDUE) == "tasks":
        return _task_interface(binding, context)
    family = binding.protocol.lower()
    make = _MAKERS.get(family) or _MAKERS.get(family.partition("+")[0])
    if make is None or not binding.endpoint.isprintable():
        make = _unknown_interface
    return make(binding, context)


def _named(
    binding: Binding, title: str, *snippets: Snippet, note: str = "", links: list[DeepLink] | None = None
) -> AgentInterface:
    return AgentInterface(
        title=title,
        protocol=binding.protocol,
        endpoint=binding.endpoint,
        snippets=list(snippets),
        links=links or [],
        note=note,
    )


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://")) and url.isprintable()


# --- A2A ------------------------------------------------------------------------------------------


def _a2a_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    transport = _A2A_TRANSPORTS.get(binding.protocol.lower())
    if transport is None or not _is_web(binding.endpoint):
        return _grpc_interface(binding, context)
    residue = binding.extra.get(_A2A_RESIDUE)
    version = str(residue.get("protocolVersion") or "1.0") if isinstance(residue, dict) else "1.0"
    is_current = not version.startswith("0")
    title = f"A2A {'.'.join(version.split('.')[:2])}{'' if transport == 'JSONRPC' else ' (REST)'}"
    call = _a2a_rpc(binding, context, is_current) if transport == "JSONRPC" else _a2a_rest(binding, context, is_current)
    snippets = [Snippet(title="curl", language="shell", code=call)]
    if context.is_public:
        sdk = _a2a_sdk(context, transport) if is_current else _a2a_sdk_older(context, transport)
        snippets.append(sdk)
    return _named(binding, title, *snippets)


def _a2a_rpc(binding: Binding, context: SnippetContext, is_current: bool) -> str:
    message: JsonObject = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": context.text}]}
    if is_current:
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        return _curl(binding.endpoint, body, ("A2A-Version: 1.0",))
    older = {**message, "kind": "message", "role": "user", "parts": [{"kind": "text", "text": context.text}]}
    return _curl(binding.endpoint, {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": older}})


def _a2a_rest(binding: Binding, context: SnippetContext, is_current: bool) -> str:
    base = binding.endpoint.rstrip("/")
    if is_current:
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": context.text}]}
        return _curl(f"{base}/message:send", {"message": message}, ("A2A-Version: 1.0",), "application/a2a+json")
    message = {"messageId": "1", "role": "ROLE_USER", "content": [{"text": context.text}]}
    return _curl(f"{base if base.endswith('/v1') else f'{base}/v1'}/message:send", {"message": message})


def _a2a_sdk(context: SnippetContext, transport: str) -> Snippet:
    bindings = "" if transport == "JSONRPC" else f", supported_protocol_bindings=[{transport!r}]"
    code = f"""\
import asyncio

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest

AGENT = {context.card_url!a}
TEXT = {context.text!a}


async def main() -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, AGENT).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False{bindings})).create(card)
        message = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text=TEXT)])
        async for event in client.send_message(SendMessageRequest(message=message)):
            print(event)


asyncio.run(main())
"""
    return Snippet(title="Python, a2a-sdk 1", language="python", code=code, note="`pip install 'a2a-sdk>=1'`")


def _a2a_sdk_older(context: SnippetContext, transport: str) -> Snippet:
    transports = "" if transport == "JSONRPC" else f", supported_transports=[{transport!r}]"
    code = f"""\
import asyncio

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TextPart

AGENT = {context.card_url!a}
TEXT = {context.text!a}


async def main() -> None:
    async with httpx.AsyncClient() as http:
        resolver = A2ACardResolver(http, AGENT, "/.well-known/agent-card.json?v=0.3")
        card = await resolver.get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False{transports})).create(card)
        message = Message(message_id="1", role=Role.user, parts=[Part(root=TextPart(text=TEXT))])
        async for event in client.send_message(message):
            print(event)


asyncio.run(main())
"""
    return Snippet(title="Python, a2a-sdk 0.3", language="python", code=code, note="`pip install 'a2a-sdk<1'`")


def _grpc_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    title = "A2A (gRPC)" if binding.protocol.lower().startswith("a2a") else "gRPC"
    return _named(
        binding, title, note="gRPC needs a client with the stubs of the service; there is nothing to paste here."
    )


# --- MCP ------------------------------------------------------------------------------------------


def _mcp_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    if not _is_web(binding.endpoint):
        return _package_interface(binding, context)
    residue: Any = binding.extra.get(_MCP_RESIDUE)
    residue = residue if isinstance(residue, dict) else {}
    kind = "sse" if residue.get("type") == "sse" else "http"
    headers = _required_names(residue.get("headers"), _HEADER_NAME)
    server = _remote_server(binding.endpoint, kind, headers, "${%s}")
    name = context.server_name
    is_plain = not headers and "{" not in binding.endpoint
    is_for_claude = is_plain and _is_on_the_internet(binding.endpoint)
    snippets = [
        Snippet(
            title="MCP host",
            language="json",
            code=_json({"mcpServers": {name: server}}),
            note=_host_note(residue, is_for_claude),
        ),
        Snippet(title="Claude Code", language="shell", code=_claude_command(name, kind, binding.endpoint, headers)),
    ]
    if kind == "http" and is_plain:
        snippets.append(_mcp_sdk(binding))
    links = _editor_links(name, _remote_server(binding.endpoint, kind, headers, "${env:%s}"))
    if is_for_claude:
        links.insert(0, _claude_link(context.record.name or context.record.id, binding.endpoint))
    return _named(binding, f"MCP{' (SSE)' if kind == 'sse' else ''}", *snippets, links=links)


def _remote_server(url: str, kind: str, headers: list[str], reference: str) -> JsonObject:
    """The configuration of a remote server. `reference` is how the host refers to a variable of the environment."""
    values = {header: reference % _variable_of(header) for header in headers}
    return {"type": kind, "url": url, **({"headers": values} if values else {})}


def _host_note(residue: JsonObject, is_for_claude: bool) -> str:
    variables = residue.get("variables")
    # Claude Desktop reads only local servers from its file, and removes entries with a URL.
    told = "For hosts that connect over HTTP, such as Claude Code and Cursor."
    if is_for_claude:
        told += " Claude on the web, desktop and phone takes the address as a custom connector."
    if isinstance(variables, dict) and variables:
        told += f" Replace {', '.join(f'{{{name}}}' for name in variables if _VARIABLE_NAME.match(name))} in the URL."
    if residue.get("headers"):
        told += " Set the secrets in the environment (Cursor and VS Code read them as `${env:NAME}`), or write them in."
    return told


def _is_on_the_internet(url: str) -> bool:
    """Claude connects from the servers of its vendor, over https only."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme != "https":
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(_LOCAL_SUFFIXES)


def _claude_link(name: str, url: str) -> DeepLink:
    """Claude's dialog for a custom connector, with name and address filled in."""
    filled = {"modal": "add-custom-connector", "connectorName": name, "connectorUrl": url}
    return DeepLink(
        title="Add to Claude",
        href=f"https://claude.ai/customize/connectors?{urlencode(filled, quote_via=quote, safe='')}",
    )


def _claude_command(name: str, kind: str, url: str, headers: list[str]) -> str:
    lines = [f"claude mcp add --transport {kind} {name} {shlex.quote(url)}"]
    lines += [f'  --header "{header}: ${{{_variable_of(header)}}}"' for header in headers]
    return " \\\n".join(lines)


def _mcp_sdk(binding: Binding) -> Snippet:
    code = f"""\
import asyncio

from mcp import Client


async def main() -> None:
    async with Client({binding.endpoint!a}) as client:
        for tool in (await client.list_tools()).tools:
            print(tool.name, "-", tool.description)


asyncio.run(main())
"""
    return Snippet(title="Python, MCP SDK", language="python", code=code, note="`pip install 'mcp>=2'`")


def _editor_links(name: str, server: JsonObject) -> list[DeepLink]:
    config = base64.b64encode(json.dumps(server).encode()).decode()
    code = quote(json.dumps({"name": name, **server}), safe="")
    return [
        DeepLink(
            title="Add to Cursor",
            href=f"cursor://anysphere.cursor-deeplink/mcp/install?name={quote(name)}&config={quote(config, safe='')}",
        ),
        DeepLink(title="Add to VS Code", href=f"vscode:mcp/install?{code}"),
    ]


# --- Packages -------------------------------------------------------------------------------------


def _package_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    residue: Any = binding.extra.get(_MCP_RESIDUE)
    residue = residue if isinstance(residue, dict) else {}
    command = _package_command(binding.endpoint, residue)
    if command is None:
        return _named(binding, "Package", note="A package that an MCP host runs on its own machine.")
    variables = _required_names(residue.get("environmentVariables"), _VARIABLE_NAME)
    if command[0] == "docker":
        command = [*command[:-1], *(part for name in variables for part in ("-e", name)), command[-1]]
    name = context.server_name
    shown = [f"export {variable}=…" for variable in variables]
    return _named(
        binding,
        command[0],
        Snippet(
            title="MCP host",
            language="json",
            code=_json({"mcpServers": {name: _local_server(command, variables, "${%s}")}}),
            note=_REVIEW,
        ),
        Snippet(
            title="Run it",
            language="shell",
            code="\n".join([*shown, shlex.join(command)]),
            note="It speaks MCP over stdio.",
        ),
        Snippet(title="Claude Code", language="shell", code=_claude_package_command(name, variables, command)),
        links=_editor_links(name, _local_server(command, variables, "${env:%s}")),
    )


def _local_server(command: list[str], variables: list[str], reference: str) -> JsonObject:
    env = {variable: reference % variable for variable in variables}
    return {"command": command[0], "args": command[1:], **({"env": env} if env else {})}


def _claude_package_command(name: str, variables: list[str], command: list[str]) -> str:
    # --env takes any number of values: another option has to stand between it and the name.
    env = "".join(f'--env "{variable}=${variable}" ' for variable in variables)
    return f"claude mcp add {env}--transport stdio {name} -- {shlex.join(command)}"


def _package_command(purl: str, residue: JsonObject) -> list[str] | None:
    """The command that runs a package URL (`pkg:npm/%40scope/name@1.0`), or None if it is not one that can be trusted to a
    shell."""
    kind, _, rest = purl.removeprefix("pkg:").partition("/")
    path, _, version = rest.rpartition("@") if "@" in rest else (rest, "", "")
    name, version = unquote(path), unquote(version)
    if not purl.startswith("pkg:") or (version and not _VERSION.match(version)):
        return None
    at = f"@{version}" if version else ""
    if kind == "npm" and _NPM.match(name):
        return ["npx", "-y", f"{name}{at}"]
    if kind == "pypi" and _PYPI.match(name):
        return ["uvx", f"{name}{at}"]
    if kind == "nuget" and _PYPI.match(name):
        return ["dnx", f"{name}{at}", "--yes"]
    image = str(residue.get("identifier") or (f"{name}:{version}" if version else name))
    if kind in ("oci", "docker") and _IMAGE.match(image):
        return ["docker", "run", "-i", "--rm", image]
    return None


def _required_names(listed: Any, pattern: re.Pattern[str]) -> list[str]:
    """The names of headers or variables that a package needs, if they are harmless in a shell."""
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    names = [str(item.get("name", "")) for item in items if item.get("isRequired") or item.get("isSecret")]
    return [name for name in names if pattern.match(name)]


def _variable_of(header: str) -> str:
    return header.upper().replace("-", "_")


# --- ADP ------------------------------------------------------------------------------------------


def _agp_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    server = f"--server {shlex.quote(context.base_url)}"
    agent = shlex.quote(context.record.id)
    return _named(
        binding,
        "AGP",
        Snippet(
            title="One message", language="shell", code=f"waypost call {agent} {shlex.quote(context.text)} {server}"
        ),
        Snippet(title="A conversation", language="shell", code=f"waypost chat {agent} {server}"),
        note="Every message is signed; both sides prove their keys.",
    )


def _task_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    name = next(iter(context.record.tags), "echo")
    value = json.dumps({"text": context.text}, ensure_ascii=True)
    code = (
        f"waypost task send {shlex.quote(context.record.id)} {shlex.quote(name)} {shlex.quote(value)} \\\n"
        f"  --server {shlex.quote(context.base_url)}"
    )
    return _named(
        binding,
        "ADP tasks",
        Snippet(title="Send a task", language="shell", code=code, note="`waypost task status ID` shows the result."),
    )


# --- HTTP and the rest ----------------------------------------------------------------------------


def _http_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    if not _is_web(binding.endpoint):
        return _unknown_interface(binding, context)
    takes_text = "text/plain" in binding.media_types or (
        binding.media_types and not any("json" in kind for kind in binding.media_types)
    )
    headers = _credential_headers(binding, context)
    if takes_text and "application/json" not in binding.media_types:
        code = _curl_text(binding.endpoint, context.text, headers)
    else:
        code = _curl(binding.endpoint, {"input": context.text}, headers)
    note = "" if takes_text else "The member `input` is a guess: the agent defines what it reads."
    return _named(binding, "HTTP", Snippet(title="curl", language="shell", code=code, note=note))


def _rpc_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    if not _is_web(binding.endpoint):
        return _unknown_interface(binding, context)
    method = next(_capabilities(binding, context.record), "describe")
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    code = _curl(binding.endpoint, body, _credential_headers(binding, context))
    note = "The agent defines the parameters of its methods."
    return _named(binding, "JSON-RPC", Snippet(title="curl", language="shell", code=code, note=note))


def _capabilities(binding: Binding, record: AgentRecord) -> Iterator[str]:
    details = _rtfs_details(binding)
    for source in (details.get("provides_capabilities"), _rtfs_capabilities(record)):
        for name in source if isinstance(source, list | tuple) else ():
            if isinstance(name, str):
                yield name


def _rtfs_details(binding: Binding) -> JsonObject:
    residue = binding.extra.get(_RTFS_RESIDUE)
    details = residue.get("details") if isinstance(residue, dict) else None
    return details if isinstance(details, dict) else {}


def _rtfs_capabilities(record: AgentRecord) -> list[str]:
    residue = record.extra.get(_RTFS_RESIDUE)
    listed = residue.get("capabilities") if isinstance(residue, dict) else None
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return [item["capability_id"] for item in items if isinstance(item.get("capability_id"), str)]


def _credential_headers(binding: Binding, context: SnippetContext) -> tuple[str, ...]:
    """A header for the credentials that the agent asks for, with a variable of the shell as its value."""
    asked = _rtfs_details(binding).get("authentication")
    name = asked.get("header") if isinstance(asked, dict) else None
    if isinstance(name, str) and _HEADER_NAME.match(name):
        return (f"{name}: ${_variable_of(name)}",)
    return ("Authorization: Bearer $TOKEN",) if context.record.auth else ()


def _socket_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    code = f"""\
from websockets.sync.client import connect

with connect({binding.endpoint!a}) as socket:
    socket.send({context.text!a})
    print(socket.recv())
"""
    note = "`pip install websockets`. The agent defines its messages."
    return _named(binding, "WebSocket", Snippet(title="Python", language="python", code=code, note=note))


def _tcp_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    parts = urlsplit(binding.endpoint)
    try:
        address = (parts.hostname or "", parts.port or 0)
    except ValueError:
        return _unknown_interface(binding, context)
    code = f"""\
import socket

with socket.create_connection(({address[0]!a}, {address[1]}), timeout=10) as connection:
    connection.sendall({context.text!a}.encode() + b"\\n")
    print(connection.recv(65536).decode())
"""
    return _named(
        binding, "TCP", Snippet(title="Python", language="python", code=code, note="The agent defines its messages.")
    )


def _image_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    image = re.sub(r"\A(?:https?|docker|oci)://", "", binding.endpoint)
    if not _IMAGE.match(image):
        return _unknown_interface(binding, context)
    return _named(
        binding, "Container", Snippet(title="Run it", language="shell", code=f"docker run --rm {image}", note=_REVIEW)
    )


def _source_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    code = f"git clone -- {shlex.quote(binding.endpoint)}"
    return _named(binding, "Source code", Snippet(title="Get it", language="shell", code=code, note=_REVIEW))


def _chart_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    repository, _, chart = binding.endpoint.rstrip("/").rpartition("/")
    code = f"helm install {context.server_name} {shlex.quote(chart)} --repo {shlex.quote(repository)}"
    return _named(binding, "Helm chart", Snippet(title="Install it", language="shell", code=code, note=_REVIEW))


def _link_interface(binding: Binding) -> AgentInterface:
    """A catalog entry that only links to a document of the agent."""
    note = "The catalog entry links to a document of the agent, which says how to call it."
    if not _is_web(binding.endpoint):
        return _named(binding, "Document", note=note)
    code = f"curl -s {_curl_url(binding.endpoint)}"
    return _named(binding, "Document", Snippet(title="Read it", language="shell", code=code), note=note)


def _unknown_interface(binding: Binding, context: SnippetContext) -> AgentInterface:
    return _named(binding, binding.protocol, note="Waypost knows no call for this protocol.")


_MAKERS: Final[dict[str, Callable[[Binding, SnippetContext], AgentInterface]]] = {
    "a2a": _a2a_interface,
    "mcp": _mcp_interface,
    "mcp-package": _package_interface,
    "agp": _agp_interface,
    "http": _http_interface,
    "https": _http_interface,
    "http-rest": _http_interface,
    "json-rpc": _rpc_interface,
    "grpc": _grpc_interface,
    "ws": _socket_interface,
    "wss": _socket_interface,
    "websocket": _socket_interface,
    "tcp": _tcp_interface,
    "container_image": _image_interface,
    "source_code": _source_interface,
    "helm_chart": _chart_interface,
}


def _curl(url: str, body: object, headers: tuple[str, ...] = (), media_type: str = "application/json") -> str:
    lines = [
        f"curl -s {_curl_url(url)}",
        f"-H 'Content-Type: {media_type}'",
        *(f'-H "{header}"' for header in headers),
        f"-d {shlex.quote(_json_argument(body))}",
    ]
    return " \\\n  ".join(lines)


def _json_argument(body: object) -> str:
    """On one line if it fits, else on several: a shell takes both."""
    line = json.dumps(body, ensure_ascii=True)
    return line if len(line) <= _LINE_CHARS else json.dumps(body, indent=2, ensure_ascii=True)


def _curl_url(url: str) -> str:
    """Braces and brackets are patterns to curl, unless it is told otherwise."""
    return f"-g {shlex.quote(url)}" if set(url) & set("{}[]") else shlex.quote(url)


def _curl_text(url: str, text: str, headers: tuple[str, ...]) -> str:
    lines = [
        f"curl -s {_curl_url(url)}",
        "-H 'Content-Type: text/plain; charset=utf-8'",
        *(f'-H "{header}"' for header in headers),
        f"--data-raw {shlex.quote(text)}",
    ]
    return " \\\n  ".join(lines)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True)


# --- Through the registry -------------------------------------------------------------------------


def _registry_interface(context: SnippetContext, bindings: list[Binding]) -> AgentInterface:
    """The command, the SDK and the record: the same for every agent."""
    snippets: list[Snippet] = []
    if context.record.id.startswith("-"):  # the command would read it as an option
        return AgentInterface(title="Waypost", endpoint=context.base_url, snippets=[_record_command(context)])
    if any(_can_call(binding) for binding in bindings):
        snippets += [_call_command(context), _call_program(context)]
    snippets += [_get_command(context), _record_command(context)]
    return AgentInterface(title="Waypost", endpoint=context.base_url, snippets=snippets)


def _can_call(binding: Binding) -> bool:
    """Whether `Client.call` knows the protocol; a server with variables in its URL needs them first."""
    protocol = binding.protocol.lower()
    if protocol == "agp":
        return True
    residue = binding.extra.get(_MCP_RESIDUE)
    is_outdated = isinstance(residue, dict) and residue.get("type") == "sse"
    is_known = protocol in ("a2a", "a2a+jsonrpc", "a2a+http-json", "mcp", "http", "https")
    has_variables = "{" in binding.endpoint
    is_task = _ADP_RESIDUE in binding.extra
    return is_known and _is_web(binding.endpoint) and not (has_variables or is_task or is_outdated or binding.is_link)


def _call_command(context: SnippetContext) -> Snippet:
    words = f"{shlex.quote(context.record.id)} {shlex.quote(context.text)}"
    code = f"waypost call {words} --server {shlex.quote(context.base_url)}"
    return Snippet(
        title="Command", language="shell", code=code, note="It calls the agent by its own binding, from your machine."
    )


def _call_program(context: SnippetContext) -> Snippet:
    code = f"""\
from waypost import SyncClient

with SyncClient({context.base_url!a}) as waypost:
    print(waypost.call({context.record.id!a}, {context.text!a}))
"""
    return Snippet(title="Python", language="python", code=code, note="Client has the same methods with await.")


def _get_command(context: SnippetContext) -> Snippet:
    code = f"waypost get {shlex.quote(context.record.id)} --server {shlex.quote(context.base_url)}"
    return Snippet(title="Its record", language="shell", code=code)


def _record_command(context: SnippetContext) -> Snippet:
    if context.is_public:
        url = f"{context.card_url}/.well-known/agent-card.json"
        return Snippet(title="As an A2A card", language="shell", code=f"curl -s {shlex.quote(url)}")
    url = f"{context.base_url}/api/v1/agents/{slug(context.record.id)}?as=a2a"
    code = f'curl -s -H "Authorization: Bearer $WAYPOST_TOKEN" \\\n  {shlex.quote(url)}'
    return Snippet(title="As an A2A card", language="shell", code=code)
