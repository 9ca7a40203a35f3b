"""The OpenAPI description, generated from the routes, the operation table and the response types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from waypost import __version__
from waypost.errors import error_codes
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPES
from waypost.protocols.dialects import DIALECTS
from waypost.registry.operations import OPERATIONS
from waypost.responses.service import Problem
from waypost.server.http.openapi_examples import REQUEST_EXAMPLES
from waypost.server.http.routing import BodySpec, ParameterSpec, Route

_COMPONENTS = "#/components/schemas/"
_COMMON_STATUSES = frozenset((400, 405, 414, 431))  # requests that are rejected before the operation is known

# The API of a path, by its beginning; the longest counts. Generated clients have a module or class for each.
_TAGS = {
    "/": "pages",
    "/.well-known/agent-capabilities": "adp",
    "/.well-known/agent-card": "agent_framework",
    "/.well-known/agent-card.json": "a2a",
    "/.well-known/agent.json": "adp",
    "/.well-known/agentframework/": "agent_framework",
    "/.well-known/agents/": "adp",
    "/.well-known/ai-catalog.json": "ard",
    "/.well-known/oauth-protected-resource": "service",
    "/a2a": "a2a",
    "/agent/": "adp",
    "/agents": "announce",
    "/api/": "registry",
    "/ard/": "ard",
    "/audit/": "registry",
    "/docs": "service",
    "/healthz": "service",
    "/mcp": "mcp",
    "/metrics": "service",
    "/openapi.json": "service",
    "/profile/": "profile",
    "/readyz": "service",
    "/rtfs": "rtfs",
    "/schemas/": "service",
    "/v0": "mcp_registry",
}
_TAG_DESCRIPTIONS = {
    "a2a": "Agent2Agent (A2A): agent cards, and the service as an agent",
    "adp": "Agent Discovery Protocol: documents, tasks, swarms and chat",
    "agent_framework": "The well-known endpoints of the agent framework",
    "announce": "Announcements over HTTP",
    "ard": "AI Catalog and Agentic Resource Discovery",
    "mcp": "Model Context Protocol: the tools of the service",
    "mcp_registry": "The registry API of MCP, read-only",
    "pages": "Web pages and what they need",
    "profile": "The discovery profile",
    "registry": "The API of Waypost itself",
    "rtfs": "The RTFS registry (JSON-RPC)",
    "service": "Health, metrics, schemas and the description of the service",
}

_PATH_PARAMETERS = {"id": "an id, a path-safe id or an alias", "version": "`latest`, or an exact version"}

DIALECT_SCHEMA: JsonObject = {"type": "string", "enum": list(DIALECTS)}
JSON_LINES = BodySpec(
    schema={"type": "string", "description": "JSON lines"}, content_type="application/x-ndjson", required=False
)


def document_schema(dialect: str | None = None) -> JsonObject:
    """The schema of a document of one dialect, or of any."""
    if dialect is not None:
        return {"$ref": f"{_COMPONENTS}{dialect}"}
    return {"anyOf": [document_schema(name) for name in DIALECTS]}


def served_schema(dialect: str | None = None) -> JsonObject:
    """The schema of an agent in the profile, or in any dialect, as it is read: other dialects register agents without an
    endpoint, which PRO-3 forbids in a document that is published."""
    without_endpoint = {
        "type": "object",
        "required": ["id", "name", "description", "bindings"],
        "properties": {"bindings": {"type": "array", "maxItems": 0}},
    }
    return {"anyOf": [document_schema(dialect), without_endpoint]}


def answer_schema(kind: type[msgspec.Struct]) -> JsonObject:
    """The schema of a response type, complete in itself. A member with a default is absent when it has that value."""
    _, definitions = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    definitions = _without_examples(definitions)
    schema = definitions.pop(kind.__name__)
    return {**schema, "$defs": definitions} if definitions else schema


def build_openapi(routes: Sequence[Route], base_url: str) -> JsonObject:
    described = [route for route in routes if route.described]
    paths: dict[str, Any] = {}
    for route in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    description: JsonObject = {
        "openapi": "3.1.0",
        "info": {
            "title": "Waypost",
            "version": __version__,
            "summary": "Register an agent once, in any protocol, and find it through all of them.",
            "description": "The HTTP APIs of the service. Documents of agents have their schemas at `/schemas/{dialect}.json`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_url}],
        "tags": [{"name": name, "description": _TAG_DESCRIPTIONS[name]} for name in sorted(set(map(_tag, paths)))],
        "paths": paths,
        "components": {
            "schemas": {**_response_schemas(described), **_dialect_schemas()},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": f"Scopes: {', '.join(SCOPES)}.",
                }
            },
        },
    }
    tidy: JsonObject = _tidy(description)
    return tidy


_COMBINATORS = ("allOf", "anyOf", "not", "oneOf")
_TYPE_WORDS = ("type", "$ref", "enum", "const", "items", *_COMBINATORS)


def _tidy(part: Any) -> Any:
    """The description as generators of clients need it: `items` of an array, a default that its enum has, no union for
    conditions such as "one of these members", and each member in one spelling. `/schemas/{dialect}.json` has the complete
    conditions."""
    if isinstance(part, list):
        return [_tidy(item) for item in part]
    if not isinstance(part, dict):
        return part
    tidy = {name: _tidy(value) for name, value in part.items() if not _is_condition(name, value)}
    if isinstance(tidy.get("properties"), dict):
        tidy["properties"] = _without_second_spellings(tidy["properties"])
    if "array" in (tidy["type"] if isinstance(tidy.get("type"), list) else [tidy.get("type")]):
        tidy.setdefault("items", {})
    if isinstance(tidy.get("enum"), list) and tidy.get("default", tidy["enum"][0]) not in tidy["enum"]:
        del tidy["default"]
    return tidy


def _without_second_spellings(properties: JsonObject) -> JsonObject:
    """The members without the snake_case of others: both would be one name in a generated class."""
    return {
        name: schema
        for name, schema in properties.items()
        if "_" not in name.strip("_") or re.sub("_([a-z0-9])", lambda found: found[1].upper(), name) not in properties
    }


def _is_condition(name: str, value: Any) -> bool:
    """Whether a member of a schema only restricts values: it has no branch that is a type of its own."""
    if name not in _COMBINATORS:
        return False
    branches = value if isinstance(value, list) else [value]
    return all(isinstance(each, dict) and _restricts_only(each) for each in branches)


def _restricts_only(schema: JsonObject) -> bool:
    named = [word for word in _TYPE_WORDS if word in schema]
    return all(word in _COMBINATORS and _is_condition(word, schema[word]) for word in named)


def _response_schemas(routes: Iterable[Route]) -> JsonObject:
    types = {_body(answer).type for route in routes for answer in route.answers.values()} - {None}
    named = sorted((Problem, *types), key=lambda kind: kind.__name__)  # type: ignore[union-attr]
    _, schemas = msgspec.json.schema_components(named, ref_template=f"{_COMPONENTS}{{name}}")
    return _without_examples(schemas)


def _without_examples(schemas: JsonObject) -> JsonObject:
    """Descriptions come from docstrings, whose examples in Python are for users of the SDK."""
    return {name: {**schema, **_description_of(schema)} for name, schema in schemas.items()}


def _description_of(schema: JsonObject) -> JsonObject:
    text, mark, _ = str(schema.get("description", "")).partition("\n\nExample:")
    return {"description": text} if mark else {}


def _dialect_schemas() -> JsonObject:
    """The dialects' schemas. Their definitions become components, so that every reference resolves."""
    schemas: JsonObject = {}
    for name, dialect in DIALECTS.items():
        schema = dialect.codec.schema()
        for part, definition in schema.get("$defs", {}).items():
            schemas[f"{name}.{part}"] = _relocate_refs(definition, name)
        members = {key: value for key, value in schema.items() if key not in ("$defs", "$schema", "$id")}
        schemas[name] = _relocate_refs(members, name)
    return schemas


def _relocate_refs(schema: Any, dialect: str) -> Any:
    if isinstance(schema, dict):
        return {
            key: _relocate_ref(value, dialect) if key == "$ref" else _relocate_refs(value, dialect)
            for key, value in schema.items()
        }
    return [_relocate_refs(item, dialect) for item in schema] if isinstance(schema, list) else schema


def _relocate_ref(target: Any, dialect: str) -> Any:
    if isinstance(target, str) and target.startswith("#/$defs/"):
        return f"{_COMPONENTS}{dialect}.{target.removeprefix('#/$defs/')}"
    return f"{_COMPONENTS}{dialect}" if target == "#" else target


def _operation(route: Route) -> JsonObject:
    operation = OPERATIONS[route.operation]
    described: JsonObject = {
        "operationId": _operation_id(route),
        "summary": route.summary or operation.summary,
        "description": _description(route),
        "tags": [_tag(route.path)],
        "parameters": [_parameter(item) for item in _parameters(route)],
        "responses": _responses(route),
    }
    if route.body is not None:
        content = _with_examples(_content(route.body), route)
        described["requestBody"] = {"required": route.body.required, "content": content}
    scope = route.scope or operation.scope
    described["security"] = [] if route.open or scope is None else [{"bearer": []}]
    if scope is not None and not route.open:
        described["x-scope"] = scope
    return described


def _description(route: Route) -> str:
    """What the operation does, and what it needs."""
    operation = OPERATIONS[route.operation]
    scope = route.scope or operation.scope
    needs = "Open to everybody; shows public agents only." if route.open or scope is None else f"Needs `{scope}`."
    summary = operation.summary.rstrip(".")
    return f"{summary}. {needs}"


def _with_examples(content: JsonObject, route: Route) -> JsonObject:
    """The content with examples beside its JSON schema: one of each dialect for a document, else that of the table."""
    media_type, first = next(iter(content.items()))
    example = REQUEST_EXAMPLES.get(f"{route.method} {route.path}")
    if example is not None:
        return content | {media_type: {**first, "example": example}}
    schema = first["schema"]
    refs = [item.get("$ref", "") for item in schema.get("anyOf", [schema])]
    dialects = [name for name in DIALECTS if f"{_COMPONENTS}{name}" in refs]
    examples = {name: {"value": DIALECTS[name].codec.examples()[0]} for name in dialects}
    return content | ({media_type: {**first, "examples": examples}} if examples else {})


def _operation_id(route: Route) -> str:
    """The method and the words of the path: a name in every programming language."""
    words = re.findall("[A-Za-z0-9]+", route.path) or ["page"]
    return "_".join([route.method.lower(), *words])


def _tag(path: str) -> str:
    return _TAGS[max((start for start in _TAGS if path.startswith(start)), key=len)]


def _parameters(route: Route) -> list[ParameterSpec]:
    own = [
        ParameterSpec(name=name, place="path", required=True, description=_PATH_PARAMETERS.get(name, ""))
        for name in re.findall(r"{(\w+)}", route.path)
        if not any(item.name == name and item.place == "path" for item in route.parameters)
    ]
    return [*own, *route.parameters]


def _parameter(item: ParameterSpec) -> JsonObject:
    return {
        "name": item.name,
        "in": item.place,
        "required": item.required,
        "description": item.description,
        "schema": item.schema,
    }


def _body(answer: type[msgspec.Struct] | BodySpec) -> BodySpec:
    return answer if isinstance(answer, BodySpec) else BodySpec(type=answer)


def _content(body: BodySpec) -> JsonObject:
    schema = body.schema or {} if body.type is None else {"$ref": f"{_COMPONENTS}{body.type.__name__}"}
    content: JsonObject = {media_type: {"schema": schema} for media_type in (body.content_type, *body.also)}
    return content if body.text is None else content | {body.text: {"schema": {"type": "string"}}}


def _responses(route: Route) -> JsonObject:
    responses: JsonObject = {}
    for status, answer in route.answers.items():
        body = _body(answer)
        responses[str(status)] = {"description": body.description or "done"}
        if body.schema is not None or body.type is not None:
            responses[str(status)]["content"] = _content(body)
    problem = {"application/problem+json": {"schema": {"$ref": f"{_COMPONENTS}Problem"}}}
    statuses = {error_codes(kind("")).http for kind in OPERATIONS[route.operation].errors}
    if route.body is not None:
        statuses.add(415)
    for status in sorted(statuses | _COMMON_STATUSES):
        responses.setdefault(str(status), {"description": "refused", "content": problem})
    if route.method == "GET" and not route.open:
        responses["304"] = {"description": "not modified"}
    return responses
