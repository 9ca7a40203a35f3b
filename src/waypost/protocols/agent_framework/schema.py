"""JSON Schemas and examples of AgentMetadata v1 (agentframework.md §4), and of all that the surface answers (AF-32, P-20)."""

from __future__ import annotations

from typing import Any, Final

from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions

_TEXT: Final[JsonObject] = {"type": "string"}
_OBJECT: Final[JsonObject] = {"type": "object"}
_TIME: Final[JsonObject] = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$",  # P-14
}
_COUNT: Final[JsonObject] = {"type": "integer", "minimum": 0}


def _object(properties: JsonObject, *required: str, **more: Any) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": True,
        **more,
    }


_SUMMARY: Final[JsonObject] = {
    "id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"},
    "name": {"type": "string", "minLength": 1, "maxLength": 256},
    "version": _TEXT,
    "summary": {"type": "string", "maxLength": 512},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 64}, "maxItems": 64},
}
_METADATA: Final[JsonObject] = {
    **_SUMMARY,
    "description": {"type": "string", "maxLength": 16 * limits.KIB},
    "owner": {"$ref": "#/$defs/Owner"},
    "endpoints": {"type": "array", "items": {"$ref": "#/$defs/Endpoint"}, "maxItems": 128},
    "capabilities": _OBJECT,
    "created_at": _TIME,
    "updated_at": _TIME,
    "metadata": _OBJECT,
}
_METHOD_AND_PATH: Final = _object(
    {
        "method": {"type": "string", "pattern": "^[A-Z0-9!#$%&'*+.^_`|~-]+$"},
        "path": {"type": "string", "pattern": r"^/(?!/)[^\s?#\u0000-\u001f\u007f]*$"},
        "description": _TEXT,
    },
    "method",
    "path",
)
_NAMES_TRANSPORT: Final[JsonObject] = {
    "required": ["transport"],
    "properties": {"transport": {"not": {"type": "null"}}},
}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "AgentSummary": _object(_SUMMARY, "id", "name", "tags"),
    "AgentMetadata": _object(_METADATA, "id", "name", "tags"),
    "Endpoint": {
        "description": "An endpoint that names a transport is given back as it came and is not called (AF-17).",
        "type": "object",
        "if": _NAMES_TRANSPORT,
        "else": _METHOD_AND_PATH,
    },
    "Owner": _object({"name": _TEXT, "email": _TEXT, "url": _TEXT}, "name"),
}

_PROBLEM: Final = _object(
    {
        "type": {"type": "string", "format": "uri-reference"},
        "title": _TEXT,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": _TEXT,
        "instance": {"type": "string", "format": "uri-reference"},
        "code": _TEXT,
        "message": _TEXT,
        "correlation_id": _TEXT,
        "retry_after": _COUNT,
        "invalid_params": {
            "type": "array",
            "items": _object({"name": _TEXT, "reason": _TEXT}, "name", "reason"),
        },
        "available": {"type": "array", "items": _TEXT},
        "supported_versions": {"type": "array", "items": _TEXT},
        "links": {"type": "object", "additionalProperties": _TEXT},
    },
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "correlation_id",
)
_LIST: Final = _object(
    {
        "agents": {"type": "array", "items": {"$ref": "#/$defs/AgentMetadata"}},
        "page": {"type": "integer", "minimum": 1},
        "per_page": {"type": "integer", "minimum": 1, "maximum": 200},
        "total": _COUNT,
    },
    "agents",
    dependentRequired={"page": ["per_page", "total"]},
)

# A reader fills in a name and takes null for absent (AF-19); the lengths of AF-20 and the spelling of times are a writer's.
_READ_TEXT: Final[JsonObject] = {"type": "string", "maxLength": limits.DESCRIPTION_CHARS}
_READ_TIME: Final[JsonObject] = {"type": "string", "format": "date-time"}
_ACCEPTED: Final = relax_definitions(
    _DEFINITIONS,
    {
        "AgentSummary": {"required": ["id"], "properties": {"summary": _READ_TEXT}},
        "AgentMetadata": {
            "required": ["id"],
            "properties": {
                "summary": _READ_TEXT,
                "endpoints": {**_METADATA["endpoints"], "maxItems": limits.JSON_ARRAY_ITEMS},
                "created_at": _READ_TIME,
                "updated_at": _READ_TIME,
            },
        },
        "Endpoint": {
            "else": {
                **_METHOD_AND_PATH,
                "properties": {
                    **_METHOD_AND_PATH["properties"],
                    "method": {"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"},
                },
            }
        },
    },
)

SCHEMA: Final[JsonObject] = build_schema("AgentMetadata v1", ["AcceptedAgentMetadata"], _DEFINITIONS | _ACCEPTED)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("AgentMetadata v1", ["AgentMetadata"], _DEFINITIONS)


def surface_schema(url: str) -> JsonObject:
    """The schema of every answer of the surface, named by its own address."""
    definitions = {**_DEFINITIONS, "AgentList": _LIST, "Problem": _PROBLEM}
    answers = build_schema("Agent discovery, version 1", ["AgentList", "AgentMetadata", "Problem"], definitions)
    return {**answers, "$id": url}


EXAMPLES: Final[tuple[JsonObject, ...]] = (
    {
        "id": "image-annotator",
        "name": "Image Annotator",
        "version": "1.4.2",
        "description": "Annotates images with labels and boxes. Takes one image for each message.",
        "tags": ["vision", "annotation"],
        "owner": {"name": "Vision Team", "email": "vision@example.com"},
        "endpoints": [{"method": "POST", "path": "/v1/message:send", "description": "Send message to agent"}],
        "capabilities": {},
        "created_at": "2025-06-12T08:15:00Z",
        "updated_at": "2025-08-15T10:01:03Z",
        "metadata": {},
    },
    {
        "id": "image-annotator",
        "name": "Image Annotator",
        "version": "1.4.2",
        "summary": "Annotates images with labels and boxes.",
        "tags": ["vision", "annotation"],
    },
)
