"""The API reference: the operations of the OpenAPI description in groups, with examples to copy and a form to try each.

A viewer such as Scalar or Redoc would need inline styles, which the content security policy refuses (decision 0047).
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

import msgspec

from waypost.model.json import JsonObject

_FIRST: Final = ("registry", "profile", "a2a", "mcp", "mcp_registry", "ard")  # groups that most readers look for
_TITLES: Final = {
    "a2a": "A2A",
    "adp": "ADP",
    "agent_framework": "Agent Framework",
    "announce": "Announce",
    "ard": "AI Catalog and ARD",
    "mcp": "MCP",
    "mcp_registry": "MCP registry",
    "pages": "Pages",
    "profile": "Discovery profile",
    "registry": "Registry",
    "rtfs": "RTFS",
    "service": "Service",
}
_MAX_DEPTH: Final = 4  # of an example made from a schema
_SCHEMA_CHARS: Final = 6000
_AGENT: Final = "invoice-translator"
_ANY_TEXT: Final = "text"
_TEXTS: Final = {  # what a member of this name may look like
    "agent": "agent:agent.example.com",
    "id": "https://agents.example.com/id/invoice-translator",
    "domain": "agent.example.com",
    "url": "https://registry.example.org",
    "sub": "alice",
    "query": "translate an invoice",
}
_DOCUMENT: Final[JsonObject] = {
    "id": "https://agents.example.com/id/invoice-translator",
    "name": "Invoice Translator",
    "description": "Translates invoices between languages.",
    "tags": ["translation", "finance"],
    "bindings": [{"protocol": "https", "endpoint": "https://translate.example.com/invoices"}],
}
_DISCOVER: Final[JsonObject] = {"query": "translate an invoice", "limit": 3, "include_evidence": True}
# Bodies that do something, where a schema alone would give an empty object.
_BODIES: Final[dict[tuple[str, str], Any]] = {
    ("post", "/api/v1/agents"): _DOCUMENT,
    ("put", "/profile/v1/agents/{id}"): _DOCUMENT,
    ("post", "/profile/v1/discover"): _DISCOVER,
    ("post", "/ard/search"): {"query": {"text": "translate an invoice"}},
    ("post", "/rtfs"): {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "rtfs.registry.discover",
        "params": {"query": {"text": "translate an invoice"}},
    },
    ("post", "/a2a"): {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "translate an invoice"}]}},
    },
    ("post", "/mcp"): {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    ("post", "/agent/tasks"): {"task": "discover", "input": {"query": "translate an invoice"}},
}


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    place: str
    type: str
    description: str
    required: bool
    default: str
    choices: list[str]


class ResponseView(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    description: str
    schema: str


class ReferenceOperation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    method: str
    path: str
    summary: str
    scope: str | None
    parameters: list[ParameterView]
    body_type: str | None
    body: str
    responses: list[ResponseView]  # of success
    errors: list[str]  # the status codes of errors, which all have the form of a problem
    curl: str
    can_be_tried: bool


class ReferenceGroup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    text: str
    operations: list[ReferenceOperation]


def make_reference(description: JsonObject) -> list[ReferenceGroup]:
    """The groups of an OpenAPI description."""
    texts = {tag["name"]: tag["description"] for tag in description["tags"]}
    base_url = description["servers"][0]["url"]
    schemas = description["components"]["schemas"]
    operations: dict[str, list[ReferenceOperation]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            made = _operation(path, method, operation, base_url, schemas)
            operations.setdefault(operation["tags"][0], []).append(made)
    for found in operations.values():
        found.sort(key=_place)
    names = sorted(operations, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return [
        ReferenceGroup(name=name, title=_TITLES.get(name, name), text=texts[name], operations=operations[name])
        for name in names
    ]


def _place(operation: ReferenceOperation) -> tuple[bool, str]:
    """Operations on agents first, then by path; the methods of a path keep their order."""
    return not operation.path.startswith("/api/v1/agents"), operation.path


def _operation(path: str, method: str, operation: JsonObject, base_url: str, schemas: JsonObject) -> ReferenceOperation:
    parameters = [_parameter(item) for item in operation["parameters"]]
    content: JsonObject = operation.get("requestBody", {}).get("content", {})
    body_type = next(iter(content), None)
    body = "" if body_type is None else _body(path, method, body_type, content[body_type].get("schema", {}), schemas)
    scope = operation.get("x-scope")
    answers: JsonObject = operation["responses"]
    return ReferenceOperation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        scope=scope,
        parameters=parameters,
        body_type=body_type,
        body=body,
        responses=[_response(status, answer) for status, answer in answers.items() if status < "400"],
        errors=[status for status in answers if status >= "400"],
        curl=_curl(base_url, path, method, scope, body_type, body),
        can_be_tried=not path.endswith(("/watch", "/chat", "/ws", "/stream"))
        and "form-urlencoded" not in (body_type or ""),
    )


def _parameter(item: JsonObject) -> ParameterView:
    schema: JsonObject = item.get("schema", {})
    choices = schema.get("enum") or []
    default = schema.get("default")
    return ParameterView(
        name=item["name"],
        place=item["in"],
        type=_type_of(schema),
        description=item.get("description", ""),
        required=bool(item.get("required")),
        default="" if default is None else str(default),
        choices=[str(choice) for choice in choices],
    )


def _type_of(schema: JsonObject) -> str:
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _response(status: str, answer: JsonObject) -> ResponseView:
    content: JsonObject = answer.get("content", {})
    schema = next((media.get("schema") for media in content.values()), None)
    text = json.dumps(schema, indent=2) if schema else ""
    return ResponseView(
        status=status,
        description=answer.get("description", ""),
        schema=text if len(text) <= _SCHEMA_CHARS else f"{text[:_SCHEMA_CHARS]}\n…",
    )


def _body(path: str, method: str, media_type: str, schema: JsonObject, schemas: JsonObject) -> str:
    if media_type == "application/x-ndjson":
        return json.dumps(_DOCUMENT)
    if (method, path) in _BODIES:
        return json.dumps(_BODIES[method, path], indent=2)
    if "json" not in media_type:
        return ""
    return json.dumps(_example_of(schema, schemas), indent=2, ensure_ascii=False)


def _example_of(schema: Any, schemas: JsonObject, depth: int = 0) -> Any:
    """A small value that a schema describes: required members, or all if none is required."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    if "$ref" in schema:
        return _example_of(schemas.get(str(schema["$ref"]).rpartition("/")[2], {}), schemas, depth + 1)
    for known in ("default", "const"):
        if known in schema:
            return schema[known]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return _example_of(schema[choice][0], schemas, depth + 1)
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("examples"):
        return schema["examples"][0]
    return _example_of_type(schema, schemas, depth)


def _example_of_type(schema: JsonObject, schemas: JsonObject, depth: int) -> Any:
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [_example_of(schema.get("items", {}), schemas, depth + 1)] if schema.get("minItems") else []
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind in ("string", "boolean"):
        return _ANY_TEXT if kind == "string" else False
    members: JsonObject = schema.get("properties", {})
    names = schema.get("required") or list(members)[:3]
    return {name: _example_of_member(name, members.get(name, {}), schemas, depth) for name in names}


def _example_of_member(name: str, schema: Any, schemas: JsonObject, depth: int) -> Any:
    value = _example_of(schema, schemas, depth + 1)
    return _TEXTS.get(name, name) if value == _ANY_TEXT else value


def _curl(base_url: str, path: str, method: str, scope: str | None, body_type: str | None, body: str) -> str:
    url = f"{base_url}{path.replace('{id}', _AGENT)}"
    lines = ["curl -s" if method == "get" else f"curl -s -X {method.upper()}"]
    lines[0] += f" {shlex.quote(url)}"
    if scope is not None:
        lines.append('-H "Authorization: Bearer $WAYPOST_TOKEN"')
    if body_type is not None and body:
        lines += [f"-H {shlex.quote(f'Content-Type: {body_type}')}", f"-d {shlex.quote(_compact(body))}"]
    return " \\\n  ".join(lines)


def _compact(body: str) -> str:
    return json.dumps(json.loads(body), ensure_ascii=False)
