"""The API description, generated from the routes and the table of operations: it cannot drift from what is served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waypost import __version__
from waypost.errors import error_codes
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPES
from waypost.protocols.dialects import DIALECTS
from waypost.registry.operations import OPERATIONS
from waypost.server.http.routing import BodySpec, ParameterSpec, Route
from waypost.server.response_schemas import PROBLEM


def build_openapi(routes: Sequence[Route], base_url: str) -> JsonObject:
    paths: dict[str, Any] = {}
    for route in routes:
        if route.described:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Waypost",
            "version": __version__,
            "summary": "Register an agent once, in any protocol, and find it through all of them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_url}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM, **_dialects()},
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


def _dialects() -> JsonObject:
    """The dialects' schemas, with their own definitions lifted beside them so that every reference resolves."""
    schemas: JsonObject = {}
    for name, dialect in DIALECTS.items():
        schema = dialect.codec.schema()
        for part, definition in schema.get("$defs", {}).items():
            schemas[f"{name}.{part}"] = _relocate_refs(definition, name)
        kept = {key: value for key, value in schema.items() if key not in ("$defs", "$schema", "$id")}
        schemas[name] = _relocate_refs(kept, name)
    return schemas


def _relocate_refs(schema: Any, dialect: str) -> Any:
    if isinstance(schema, dict):
        return {
            key: _reference(value, dialect) if key == "$ref" else _relocate_refs(value, dialect)
            for key, value in schema.items()
        }
    return [_relocate_refs(item, dialect) for item in schema] if isinstance(schema, list) else schema


def _reference(target: Any, dialect: str) -> Any:
    if isinstance(target, str) and target.startswith("#/$defs/"):
        return f"#/components/schemas/{dialect}.{target.removeprefix('#/$defs/')}"
    return f"#/components/schemas/{dialect}" if target == "#" else target


def _operation(route: Route) -> JsonObject:
    operation = OPERATIONS[route.operation]
    described: JsonObject = {
        "operationId": _operation_id(route),
        "summary": route.summary or operation.summary,
        "tags": [route.path.split("/")[1] or "page"],
        "parameters": [_parameter(item) for item in _parameters(route)],
        "responses": _responses(route),
    }
    if route.body is not None:
        described["requestBody"] = {"required": route.body.required, "content": _content(route.body)}
    scope = route.scope or operation.scope
    described["security"] = [] if route.open or scope is None else [{"bearer": []}]
    if scope is not None and not route.open:
        described["x-scope"] = scope
    return described


def _operation_id(route: Route) -> str:
    words = [part.strip("{}").replace(".", "_") for part in route.path.replace(":", "/").split("/") if part]
    return "_".join([route.method.lower(), *words])


def _parameters(route: Route) -> list[ParameterSpec]:
    own = [ParameterSpec(name="id", place="path", required=True, description="an id, a path-safe id or an alias")]
    return [*(own if "{id}" in route.path else []), *route.parameters]


def _parameter(item: ParameterSpec) -> JsonObject:
    return {
        "name": item.name,
        "in": item.place,
        "required": item.required,
        "description": item.description,
        "schema": item.schema,
    }


def _content(body: BodySpec) -> JsonObject:
    schema = body.schema if body.schema is not None else {}
    content: JsonObject = {kind: {"schema": schema} for kind in (body.content_type, *body.also)}
    return content if body.text is None else content | {body.text: {"schema": {"type": "string"}}}


_COMMON_STATUSES = frozenset((400, 405, 414, 431))  # what is refused before anybody knows which operation is meant


def _responses(route: Route) -> JsonObject:
    responses: JsonObject = {}
    for status, body in route.answers.items():
        responses[str(status)] = {"description": body.description or "done"}
        if body.schema is not None:
            responses[str(status)]["content"] = _content(body)
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    statuses = {error_codes(kind("")).http for kind in OPERATIONS[route.operation].errors}
    for status in sorted(statuses | _COMMON_STATUSES):
        responses.setdefault(str(status), {"description": "refused", "content": problem})
    if route.method == "GET" and not route.open:
        responses["304"] = {"description": "not modified"}
    return responses
