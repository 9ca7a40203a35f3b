"""Calls of agents by their own bindings, without I/O: A2A (1.0 and 0.3), MCP (streamable HTTP) and plain HTTP. AGP is a
conversation: `agp_call.py`.

A call is a generator: it yields the requests to send (or the pause before the next one), receives their responses, and returns
the answer. `Client.call` and `SyncClient.call` drive it.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.client.binding_policy import TRUST_ORDER, BindingPolicy
from waypost.client.http import EventStreamDecoder
from waypost.errors import (
    FetchFailed,
    InvalidParameter,
    InvalidRequest,
    NotAllowed,
    Timeout,
    Unauthorized,
    Unavailable,
)
from waypost.model.json import JsonObject, dump_json
from waypost.responses.agents import Agent

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_TEXT: Final = "text/plain"
_A2A_JSON: Final = "application/a2a+json"  # of the REST binding in 1.0
_ADP_RESIDUE: Final = "org.waypost.adp"
_MCP_RESIDUE: Final = "org.waypost.mcp"
_MCP_VERSION: Final = "2025-06-18"
_METHOD_NOT_FOUND: Final = -32601
_VERSION_NOT_SUPPORTED: Final = -32009  # A2A 1.0
_UNFINISHED: Final = frozenset(("submitted", "working", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"))
_FAILED: Final = frozenset(("failed", "rejected", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"))
_ANSWER_MEMBERS: Final = ("output", "text", "answer", "message", "response", "result")

CALLABLE_SCHEMES: Final = ("https", "http", "wss", "ws")
AGP: Final = "agp"  # a signed conversation, see agp_call.py

AddressCheck: TypeAlias = Callable[[str, int], None]


class AgentAnswer(str):
    """The answer of an agent: its text. The attributes say where it came from.

    Attributes:
        agent_id: The id of the agent.
        protocol: The protocol of the binding that was called.
        endpoint: The URL that was called.
        data: The whole result as JSON, or None if it was no JSON.

    Example:
        >>> answer = AgentAnswer("Bonjour", agent_id="a", protocol="https", endpoint="https://agents.example.net/")
        >>> answer.upper(), answer.protocol
        ('BONJOUR', 'https')
    """

    agent_id: str
    protocol: str
    endpoint: str
    data: Any

    def __new__(cls, text: str, *, agent_id: str, protocol: str, endpoint: str, data: Any = None) -> AgentAnswer:
        """Make an answer of its text."""
        answer = super().__new__(cls, text)
        answer.agent_id, answer.protocol, answer.endpoint, answer.data = agent_id, protocol, endpoint, data
        return answer

    @property
    def text(self) -> str:
        """The answer as a plain string."""
        return str.__str__(self)


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request to an agent."""

    url: str
    body: bytes
    headers: dict[str, str]
    method: str = "POST"


class Pause(msgspec.Struct, frozen=True):
    """Wait before the next request."""

    seconds: float


class AgentResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to an `AgentRequest`."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


Call: TypeAlias = "Generator[AgentRequest | Pause, AgentResponse | None, tuple[str, Any]]"


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may say besides the text."""

    tool: str | None = None  # of an MCP server
    arguments: Mapping[str, Any] | None = None  # of the tool
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)  # for the agent, such as credentials


class CallTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The binding to call."""

    agent_id: str
    protocol: str
    endpoint: str
    version: str = ""  # of A2A
    media_types: tuple[str, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.endpoint)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


# --- Which binding --------------------------------------------------------------------------------


def choose_target(agent: Agent, policy: BindingPolicy, trust: str | None) -> CallTarget:
    """The preferred binding that can be called and that the policy allows.

    Args:
        agent: The agent.
        policy: Which bindings may be used.
        trust: Its trust level.
    """
    level = trust or "self_asserted"
    if level in TRUST_ORDER and TRUST_ORDER.index(level) < TRUST_ORDER.index(policy.least_trust):
        raise NotAllowed(
            f"{agent.id!r} is not called: its trust is {level}.",
            path="trust",
            hint="`waypost verify` shows why. A policy with a lower least_trust calls it nevertheless.",
        )
    reasons: list[str] = []
    for binding in sorted(agent.bindings, key=lambda binding: binding.get("priority") or 0):
        protocol, endpoint = str(binding.get("protocol", "")), str(binding.get("endpoint", ""))
        problem = _reason_not_callable(binding) or next(policy.problems(binding), None)
        if problem is None:
            return CallTarget(
                agent_id=agent.id,
                protocol=protocol,
                endpoint=endpoint,
                media_types=tuple(binding.get("media_types") or ()),
            )
        reasons.append(f"{protocol} {endpoint}: {problem}")
    raise InvalidRequest(
        f"No binding of {agent.id!r} can be called: {'; '.join(reasons) or 'it has none'}.",
        path="bindings",
        hint="A2A (JSON-RPC and REST), MCP over HTTP, AGP and plain HTTP can be called.",
    )


def _reason_not_callable(binding: Mapping[str, Any]) -> str | None:
    protocol, endpoint = str(binding.get("protocol", "")), str(binding.get("endpoint", ""))
    residue = binding.get(_MCP_RESIDUE)
    if binding.get("unresolved") is True:
        return "only a link to its document is known: register the document itself"
    if protocol == "mcp" and isinstance(residue, dict) and residue.get("type") == "sse":
        return "its transport (HTTP+SSE of 2024) is outdated"
    if protocol in ("a2a+grpc", "grpc"):
        return "gRPC needs a client of its own"
    if protocol == "mcp-package" or endpoint.startswith("pkg:"):
        return "the MCP server is a program that runs on your machine: add it to your MCP host"
    if protocol == AGP:
        return None
    if _ADP_RESIDUE in binding:
        return "an ADP endpoint for tasks: use `waypost task send` or `Client.send_task`"
    if protocol not in _CALLS:
        return "the protocol is not supported"
    return None


def with_a2a_version(target: CallTarget, card: JsonObject) -> CallTarget:
    """The target with the version of A2A that its card states for the endpoint.

    Args:
        target: An A2A binding.
        card: The card of the agent.
    """
    interfaces = [item for item in card.get("supportedInterfaces") or () if isinstance(item, dict)]
    stated = [str(item.get("protocolVersion") or "1.0") for item in interfaces if item.get("url") == target.endpoint]
    version = stated[0] if stated else str(card.get("protocolVersion") or "0.3") if "url" in card else "1.0"
    return msgspec.structs.replace(target, version=version)


def check_public(address: str, port: int) -> None:
    """Raise NotAllowed for an address that is not a public one.

    Args:
        address: The IP address that a name was resolved to.
        port: The port.
    """
    if not ip_address(address).is_global:
        raise NotAllowed(
            f"{address} is not a public address.",
            path="bindings",
            hint="BindingPolicy(local_addresses=True) permits agents on your own machine and network.",
        )


def check_local(address: str, port: int) -> None:
    """The same, but permit loopback and private networks: not those addresses at which clouds hand out credentials.

    Args:
        address: The IP address that a name was resolved to.
        port: The port.
    """
    found = ip_address(address)
    if found.is_link_local or found.is_multicast or found.is_unspecified:
        raise NotAllowed(
            f"{address} is not called: clouds hand out credentials at such addresses.",
            path="bindings",
            hint="Does the record of the agent name the right endpoint?",
        )


def choose_address(host: str, port: int, found: Sequence[Any], check: AddressCheck) -> str:
    """The address to connect to. Every address of the name must be permitted.

    Args:
        host: The name.
        port: The port.
        found: The answer of `getaddrinfo`.
        check: Raises an error for an address that is not permitted.
    """
    addresses = [str(item[4][0]).partition("%")[0] for item in found if item[0] in (socket.AF_INET, socket.AF_INET6)]
    if not addresses:
        raise Unavailable(f"The name {host!r} of the agent has no address.", path="bindings")
    for address in addresses:
        check(address, port)
    return addresses[0]


# --- One call -------------------------------------------------------------------------------------


def start_call(target: CallTarget, text: str, options: CallOptions) -> Call:
    """The requests of a call.

    Args:
        target: The binding.
        text: What the agent is asked.
        options: Tool, arguments and headers.
    """
    return _CALLS[target.protocol](target, text, options)


def _call_a2a(target: CallTarget, text: str, options: CallOptions) -> Call:
    """SendMessage of 1.0, or message/send of 0.3. If the agent does not know the method, the other version is tried."""
    is_current = _is_current(target.version)
    answer = yield from _send_a2a(target, text, options, is_current)
    if answer is None:
        answer = yield from _send_a2a(target, text, options, not is_current)
    if answer is None:
        raise FetchFailed(f"{target.endpoint} knows neither the method of A2A 1.0 nor that of 0.3.", path="bindings")
    return answer


def _is_current(version: str) -> bool:
    return not version.startswith("0")


def _send_a2a(
    target: CallTarget, text: str, options: CallOptions, is_current: bool
) -> Generator[AgentRequest | Pause, AgentResponse | None, tuple[str, Any] | None]:
    method = "SendMessage" if is_current else "message/send"
    result = yield from _ask_a2a(target, options, is_current, method, {"message": _a2a_message(text, is_current)})
    if result is None:
        return None
    waited = 0.0
    while (task := _unfinished_task(result)) is not None:
        if waited >= limits.CALL_TASK_SECONDS:
            raise Timeout(
                f"The task {task} of the agent has not finished within {limits.CALL_TASK_SECONDS} s.", path="task"
            )
        yield Pause(limits.CALL_POLL_SECONDS)
        waited += limits.CALL_POLL_SECONDS
        method = "GetTask" if is_current else "tasks/get"
        result = (yield from _ask_a2a(target, options, is_current, method, {"id": task})) or {}
    return _a2a_text(result), result


def _a2a_message(text: str, is_current: bool) -> JsonObject:
    message: JsonObject = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
    if is_current:
        return message
    return {**message, "kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}


def _ask_a2a(
    target: CallTarget, options: CallOptions, is_current: bool, method: str, params: JsonObject
) -> Generator[AgentRequest | Pause, AgentResponse | None, JsonObject | None]:
    """The result of a method; None if the agent does not know it."""
    headers = {"A2A-Version": "1.0"} if is_current else {}
    if target.protocol == "a2a+http-json":
        request = _a2a_rest_request(target, is_current, method, params, {**headers, **options.headers})
        response = yield request
        if response is not None and response.status in (404, 405) and method in ("SendMessage", "message/send"):
            return None
        result = _json_of(response, target)
    else:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = yield _post(target.endpoint, dump_json(call), {**headers, **options.headers})
        answer = _json_of(response, target)
        error = answer.get("error")
        if isinstance(error, dict) and error.get("code") in (_METHOD_NOT_FOUND, _VERSION_NOT_SUPPORTED):
            return None
        result = _result_of(answer, target)
    return result if isinstance(result, dict) else {}


def _a2a_rest_request(
    target: CallTarget, is_current: bool, method: str, params: JsonObject, headers: dict[str, str]
) -> AgentRequest:
    base = target.endpoint.rstrip("/") + ("" if is_current or target.endpoint.rstrip("/").endswith("/v1") else "/v1")
    if method in ("GetTask", "tasks/get"):
        return AgentRequest(
            url=f"{base}/tasks/{params['id']}", method="GET", body=b"", headers={"Accept": _JSON, **headers}
        )
    if is_current:
        return _post(f"{base}/message:send", dump_json(params), {"Content-Type": _A2A_JSON, **headers})
    message = dict(params["message"])  # the REST binding of 0.3 has the form of its protocol buffers
    parts = [{"text": part["text"]} for part in message.pop("parts")]
    older = {"messageId": message["messageId"], "role": "ROLE_USER", "content": parts}
    return _post(f"{base}/message:send", dump_json({"message": older}), headers)


def _unfinished_task(result: JsonObject) -> str | None:
    task = result.get("task", result)
    status = task.get("status") if isinstance(task, dict) else None
    if isinstance(status, dict) and status.get("state") in _UNFINISHED:
        return str(task.get("id", ""))
    return None


def _a2a_text(result: JsonObject) -> str:
    """The text of a message, or of the artifacts of a task, else of its status."""
    message = result.get("message", result)
    task = result.get("task", result)
    status = task.get("status") if isinstance(task, dict) else None
    if isinstance(status, dict) and status.get("state") in _FAILED:
        text = _parts_text(status.get("message"))
        raise FetchFailed(f"The agent failed: {text or status['state']}.", path="task", details={"result": result})
    artifacts = task.get("artifacts") if isinstance(task, dict) else None
    found = "\n".join(filter(None, map(_parts_text, artifacts or ())))
    if found:
        return found
    return _parts_text(message) or (_parts_text(status.get("message")) if isinstance(status, dict) else "")


def _parts_text(holder: Any) -> str:
    parts = holder.get("parts") or holder.get("content") if isinstance(holder, dict) else None
    return "\n".join(_part_texts(parts if isinstance(parts, list) else ()))


def _part_texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
        elif isinstance(part, dict) and "data" in part:
            yield dump_json(part["data"]).decode()


# --- MCP ------------------------------------------------------------------------------------------


def _call_mcp(target: CallTarget, text: str, options: CallOptions) -> Call:
    session = _McpSession(target, options)
    yield from session.open()
    tools = yield from session.list_tools()
    name, arguments = _choose_tool(tools, text, options)
    result = yield from session.ask("tools/call", {"name": name, "arguments": arguments})
    yield from session.close()
    answer = "\n".join(_part_texts(result.get("content") or ()))
    if result.get("isError"):
        raise FetchFailed(f"The tool {name!r} failed: {answer or 'without a reason'}", path="tool")
    return answer or dump_json(result.get("structuredContent")).decode(), result


class _McpSession:
    """A session of MCP's streamable HTTP."""

    def __init__(self, target: CallTarget, options: CallOptions) -> None:
        self._target = target
        self._headers = {"Accept": f"{_JSON}, {_EVENTS}", **options.headers}
        self._number = 0

    def open(self) -> Generator[AgentRequest | Pause, AgentResponse | None, None]:
        client = {"name": "waypost", "version": "0.2"}
        params = {"protocolVersion": _MCP_VERSION, "capabilities": {}, "clientInfo": client}
        response = yield self._request("initialize", params)
        result = _result_of(_json_of(response, self._target), self._target)
        if response is not None and "mcp-session-id" in response.headers:
            self._headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
        self._headers["MCP-Protocol-Version"] = str(result.get("protocolVersion") or _MCP_VERSION)
        call = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        yield _post(self._target.endpoint, dump_json(call), self._headers)

    def list_tools(self) -> Generator[AgentRequest | Pause, AgentResponse | None, list[JsonObject]]:
        tools: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(limits.CALL_TOOL_PAGES):
            result = yield from self.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            tools += [tool for tool in result.get("tools") or () if isinstance(tool, dict)]
            cursor = result.get("nextCursor")
            if not cursor:
                break
        return tools

    def ask(self, method: str, params: JsonObject) -> Generator[AgentRequest | Pause, AgentResponse | None, JsonObject]:
        response = yield self._request(method, params)
        return _result_of(_json_of(response, self._target), self._target)

    def close(self) -> Generator[AgentRequest | Pause, AgentResponse | None, None]:
        if "Mcp-Session-Id" in self._headers:
            yield AgentRequest(url=self._target.endpoint, method="DELETE", body=b"", headers=self._headers)

    def _request(self, method: str, params: JsonObject) -> AgentRequest:
        self._number += 1
        call = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        return _post(self._target.endpoint, dump_json(call), self._headers)


def _choose_tool(tools: list[JsonObject], text: str, options: CallOptions) -> tuple[str, JsonObject]:
    """The tool and its arguments: the named one, else the only one; a text is its one text argument."""
    names = [str(tool.get("name", "")) for tool in tools]
    if options.tool is not None and options.tool not in names:
        raise InvalidParameter(
            f"The MCP server has no tool {options.tool!r}.", path="tool", hint=f"It has {_listed(tools)}."
        )
    chosen = [tool for tool in tools if options.tool in (None, tool.get("name"))]
    if options.tool is None and len(chosen) > 1:
        fitting = [tool for tool in chosen if _text_argument(tool) is not None]
        chosen = fitting if len(fitting) == 1 and options.arguments is None else chosen
    if len(chosen) != 1:
        raise InvalidParameter(
            f"The MCP server has {len(tools)} tools: say which one to call.",
            path="tool",
            hint=f"Pass the tool (--tool NAME) and, if it takes more than a text, its arguments. It has {_listed(tools)}.",
        )
    tool = chosen[0]
    if options.arguments is not None:
        return str(tool["name"]), dict(options.arguments)
    argument = _text_argument(tool)
    if argument is not None:
        return str(tool["name"]), {argument: text}
    parsed = _parse_json(text.encode())
    if isinstance(parsed, dict):
        return str(tool["name"]), parsed
    raise InvalidParameter(
        f"The tool {tool['name']!r} takes more than one text.",
        path="arguments",
        hint=f"Pass its arguments as a JSON object: {_signature(tool)}.",
    )


def _text_argument(tool: JsonObject) -> str | None:
    """The name of the one text that a tool takes."""
    schema = tool.get("inputSchema") or {}
    properties: JsonObject = schema.get("properties") or {}
    required = schema.get("required") or ()
    names = list(required) if required else list(properties)
    if len(names) != 1:
        return None
    kind = properties.get(names[0], {}).get("type", "string")
    return str(names[0]) if kind == "string" else None


def _listed(tools: list[JsonObject]) -> str:
    shown = ", ".join(_signature(tool) for tool in tools[: limits.CALL_TOOLS_SHOWN])
    return shown + (", …" if len(tools) > limits.CALL_TOOLS_SHOWN else "") if tools else "none"


def _signature(tool: JsonObject) -> str:
    properties: JsonObject = (tool.get("inputSchema") or {}).get("properties") or {}
    members = ", ".join(f"{name}: {value.get('type', 'any')}" for name, value in properties.items())
    return f"{tool.get('name')} {{{members}}}"


# --- Plain HTTP -----------------------------------------------------------------------------------


def _call_http(target: CallTarget, text: str, options: CallOptions) -> Call:
    """POST the text; if the agent takes JSON only, as JSON: as it is, or as the member `input`."""
    takes_json = _JSON in target.media_types and _TEXT not in target.media_types
    if takes_json:
        parsed = _parse_json(text.encode())
        body = text.encode() if isinstance(parsed, dict | list) else dump_json({"input": text})
    else:
        body = text.encode()
    headers = {
        "Content-Type": _JSON if takes_json else f"{_TEXT}; charset=utf-8",
        "Accept": f"{_TEXT}, {_JSON};q=0.9, */*;q=0.1",
    }
    response = _checked((yield _post(target.endpoint, body, {**headers, **options.headers})), target)
    parsed = _parse_json(response.body)
    if isinstance(parsed, dict):
        for member in _ANSWER_MEMBERS:
            if isinstance(parsed.get(member), str):
                return parsed[member], parsed
    if isinstance(parsed, str):
        return parsed, parsed
    return response.body.decode("utf-8", "replace"), parsed


_CALLS: dict[str, Callable[[CallTarget, str, CallOptions], Call]] = {
    "a2a": _call_a2a,
    "a2a+jsonrpc": _call_a2a,
    "a2a+http-json": _call_a2a,
    "mcp": _call_mcp,
    "http": _call_http,
    "https": _call_http,
}


# --- Responses ------------------------------------------------------------------------------------


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> AgentRequest:
    return AgentRequest(url=url, body=body, headers={"Content-Type": _JSON, "Accept": _JSON, **headers})


def _checked(response: AgentResponse | None, target: CallTarget) -> AgentResponse:
    if response is None:
        raise Unavailable(f"{target.endpoint} did not answer.", path="bindings")
    if response.status in (401, 403):
        raise Unauthorized(
            f"The agent asks for credentials: {target.endpoint} answered with status {response.status}.",
            path="headers",
            hint="Pass them in a header: `--header 'Authorization: Bearer …'`, or `headers=` in Python.",
        )
    if not 200 <= response.status < 300:
        detail = response.body[: limits.CALL_ERROR_CHARS].decode("utf-8", "replace").strip()
        raise FetchFailed(
            f"{target.endpoint} answered with status {response.status}{': ' + detail if detail else '.'}",
            path="bindings",
            hint="Is this the address of the agent, and does it speak this protocol?",
            details={"answered": response.status},
        )
    return response


def _json_of(response: AgentResponse | None, target: CallTarget) -> JsonObject:
    """The JSON object of a response, or of the last event of an event stream that answers the request."""
    checked = _checked(response, target)
    body = checked.body
    if checked.headers.get("content-type", "").startswith(_EVENTS):
        events = [_parse_json(event.data.encode()) for event in EventStreamDecoder().feed(body + b"\n\n")]
        value = next((event for event in reversed(events) if isinstance(event, dict) and "id" in event), None)
    else:
        value = _parse_json(body)
    if not isinstance(value, dict):
        raise FetchFailed(
            f"{target.endpoint} did not answer with {target.protocol}: no JSON object.",
            path="bindings",
            hint="Is this the address of the agent, and does it speak this protocol?",
        )
    return value


def _result_of(answer: JsonObject, target: CallTarget) -> JsonObject:
    error = answer.get("error")
    if error is not None:
        message = error.get("message") if isinstance(error, dict) else error
        raise FetchFailed(f"The agent answered with an error: {message}", path="bindings", details={"error": error})
    result = answer.get("result")
    return result if isinstance(result, dict) else {}


def _parse_json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
