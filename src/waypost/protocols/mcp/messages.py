"""Model Context Protocol messages, without sockets: the revision of a request, and the results.

Two generations are supported. Since 2026-07-28 every request carries its revision (`params._meta`), headers repeat the
routing members, and there is no session. Before, a client starts with `initialize`. Neither needs state in the server.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waypost.errors import InvalidCall, InvalidParameter, MethodNotAllowed, WaypostError, error_codes
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.jsonrpc import RpcCall, error_object

HANDSHAKE: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = ("2026-07-28",)
VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"

_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_HEADER_MISMATCH: Final = -32020
_UNSUPPORTED_VERSION: Final = -32022
_INTERNAL: Final = -32603
_STATUSES: Final = {
    -32700: 400,
    -32600: 400,
    -32602: 400,
    _HEADER_MISMATCH: 400,
    _UNSUPPORTED_VERSION: 400,
    -32601: 404,
}
_UNREADABLE: Final = (-32700, -32600, _UNSUPPORTED_VERSION)
_ENCODED: Final = ("=?base64?", "?=")  # around a header value that is not plain ASCII
_CACHE_MS: Final = 300_000  # tools change only with the version of the service


class McpHeaderMismatch(InvalidCall):
    """A header contradicts the message."""


class UnsupportedMcpVersion(InvalidCall):
    """A revision of the protocol that is not supported."""


class UnknownMethod(InvalidCall):
    """A method that this server does not have."""


class McpEnvelope(msgspec.Struct, frozen=True):
    """The revision of a request, which decides the form of the response."""

    version: str
    is_modern: bool


def parse_envelope(call: RpcCall, headers: Mapping[str, str] | None) -> McpEnvelope:
    """Return the revision of a message. Over stdio there are no headers to compare with."""
    if not looks_modern(call, headers):
        return _handshake(call, None if headers is None else headers.get(VERSION_HEADER))
    params = call.params if isinstance(call.params, dict) else {}
    version = _checked_version(params.get("_meta"))
    if headers is not None:
        _check_headers(call, params, version, headers)
    if version not in MODERN:
        raise _unsupported(version)
    return McpEnvelope(version, is_modern=True)


def looks_modern(call: RpcCall, headers: Mapping[str, str] | None) -> bool:
    """Return whether a message or its headers state a revision since 2026-07-28."""
    meta = call.params.get("_meta") if isinstance(call.params, dict) else None
    header = None if headers is None else headers.get(VERSION_HEADER)
    return header in MODERN or (isinstance(meta, dict) and _VERSION in meta)


def _handshake(call: RpcCall, header: str | None) -> McpEnvelope:
    if header is not None and header not in HANDSHAKE and call.method != "initialize":
        raise _unsupported(header)
    return McpEnvelope(header or HANDSHAKE[1], is_modern=False)


def _checked_version(meta: object) -> str:
    members: JsonObject = meta if isinstance(meta, dict) else {}
    missing = [key for key in (_VERSION, _CAPABILITIES) if key not in members]
    if missing:
        raise InvalidParameter(
            f"params._meta lacks {', '.join(missing)}.",
            path="$.params._meta",
            hint=f"Every request of {MODERN[-1]} carries them; older clients start with initialize.",
        )
    version = members[_VERSION]
    if not isinstance(version, str):
        raise InvalidParameter("The protocol version must be a string.", path=f"$.params._meta[{_VERSION!r}]")
    return version


def _check_headers(call: RpcCall, params: JsonObject, version: str, headers: Mapping[str, str]) -> None:
    expected: dict[str, object] = {VERSION_HEADER: version, METHOD_HEADER: call.method}
    if call.method == "tools/call" and params.get("name") is not None:
        expected[NAME_HEADER] = params["name"]
    for name, value in expected.items():
        if _decoded(headers.get(name)) != value:
            raise McpHeaderMismatch(
                f"The header {name} differs from the message.", path=name, hint="Send the same value in both."
            )


def _decoded(value: str | None) -> str | None:
    begin, end = _ENCODED
    if value is None or not (value.startswith(begin) and value.endswith(end)):
        return value
    try:
        return base64.b64decode(value[len(begin) : -len(end)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def encode_header(value: str) -> str:
    """Encode a header value; in base64 if it is not plain ASCII."""
    plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith(_ENCODED[0])
    return value if plain else _ENCODED[0] + base64.b64encode(value.encode()).decode() + _ENCODED[1]


def routing_headers(message: object) -> dict[str, str]:
    """Return the headers that repeat a message's routing members."""
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return {}
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(_VERSION) if isinstance(meta, dict) else None
    if not isinstance(version, str):
        return {}
    headers = {VERSION_HEADER: encode_header(version), METHOD_HEADER: encode_header(message["method"])}
    name = params.get("name") if isinstance(params, dict) else None
    return headers | ({NAME_HEADER: encode_header(name)} if isinstance(name, str) else {})


def _unsupported(requested: object) -> UnsupportedMcpVersion:
    supported = [*MODERN, *HANDSHAKE]
    return UnsupportedMcpVersion(
        f"The protocol version {str(requested)[:40]!r} is not supported.",
        path=VERSION_HEADER,
        hint=f"Use one of {', '.join(supported)}.",
        details={"supported": supported, "requested": requested},
    )


# --- Results --------------------------------------------------------------------------------------


def initialize_result(params: JsonObject, server: JsonObject, instructions: str) -> JsonObject:
    """Return the client's revision if it is supported, else the newest of its generation."""
    offered = params.get("protocolVersion")
    return {
        "protocolVersion": offered if offered in HANDSHAKE else HANDSHAKE[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": server,
        "instructions": instructions,
    }


def discover_result(instructions: str) -> JsonObject:
    return {
        "supportedVersions": [*MODERN, *HANDSHAKE],
        "capabilities": {"tools": {"listChanged": False}},
        "instructions": instructions,
        "ttlMs": _CACHE_MS,
        "cacheScope": "public",
    }


def tools_list_result(tools: list[JsonObject], envelope: McpEnvelope) -> JsonObject:
    return {"tools": tools} | ({"ttlMs": _CACHE_MS, "cacheScope": "public"} if envelope.is_modern else {})


def tool_result(value: Any) -> JsonObject:
    """Return the result of a tool, as text and, for an object, as structured content."""
    result: JsonObject = {"content": [{"type": "text", "text": dump_json(value).decode()}], "isError": False}
    return result | ({"structuredContent": value} if isinstance(value, dict) else {})


def tool_error(error: WaypostError) -> JsonObject:
    """Return an error of a tool as a result, so that the model can correct its call (§ tools)."""
    shown: JsonObject = {"code": error.code, "message": error.message}
    for name, value in (("path", error.path), ("hint", error.hint), ("retry_after", error.retry_after)):
        if value is not None:
            shown[name] = value
    return {"content": [{"type": "text", "text": str(error)}], "structuredContent": {"error": shown}, "isError": True}


def result_of(result: JsonObject, envelope: McpEnvelope) -> JsonObject:
    return {"resultType": "complete", **result} if envelope.is_modern else result


def error_response(call_id: bytes, error: WaypostError, *, is_modern: bool) -> tuple[int, bytes]:
    """Return status and body for a request that was not executed."""
    number = _number_of(error)
    shown = error_object(error, code=number)
    for name in ("supported", "requested"):
        if name in error.details:
            shown["data"][name] = error.details[name]
    body = dump_json({"jsonrpc": "2.0", "id": msgspec.Raw(call_id), "error": shown})
    status = _STATUSES.get(number, 200) if is_modern or number in _UNREADABLE else 200
    return status, body


def _number_of(error: WaypostError) -> int:
    match error:
        case McpHeaderMismatch():
            return _HEADER_MISMATCH
        case UnsupportedMcpVersion():
            return _UNSUPPORTED_VERSION
        case UnknownMethod():
            return error_codes(MethodNotAllowed("")).jsonrpc
        case _:
            number = error_codes(error).jsonrpc
            return number if number in _STATUSES else _INTERNAL
