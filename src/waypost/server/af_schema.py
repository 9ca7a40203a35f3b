"""The JSON Schema of everything the AF surface answers (AF-32), and the bytes it is served as."""

from __future__ import annotations

from typing import Any

from waypost.dialects.af import MEMBERS, SUMMARY_MEMBERS
from waypost.model.json import JsonObject, dump_json

SCHEMA_MEDIA_TYPE = b"application/schema+json"

_TEXT: JsonObject = {"type": "string"}
_TIME: JsonObject = {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
_COUNT: JsonObject = {"type": "integer", "minimum": 0}


def _object(properties: JsonObject, *required: str, **more: Any) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": True,
        **more,
    }


_PROPERTIES: JsonObject = {
    "id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"},
    "name": {"type": "string", "minLength": 1, "maxLength": 256},
    "version": _TEXT,
    "summary": {"type": "string", "maxLength": 512},
    "description": {"type": "string", "maxLength": 16 * 1024},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 64}, "maxItems": 64},
    "owner": {"$ref": "#/$defs/Owner"},
    "endpoints": {"type": "array", "items": {"$ref": "#/$defs/Endpoint"}, "maxItems": 128},
    "capabilities": {"type": "object"},
    "created_at": _TIME,
    "updated_at": _TIME,
    "metadata": {"type": "object"},
}

_ENDPOINT = _object(
    {
        "method": {"type": "string", "pattern": "^[A-Z][A-Z0-9!#$%&'*+.^_`|~-]*$"},
        "path": {"type": "string", "pattern": r"^/(?!/)[^\s?#\u0000-\u001f\u007f]*$"},
        "description": _TEXT,
    },
    "method",
    "path",
)

_PROBLEM = _object(
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


def schema(url: str) -> JsonObject:
    """The schema, named by its own address."""
    summary = _object({name: _PROPERTIES[name] for name in SUMMARY_MEMBERS}, "id", "name", "tags")
    metadata = _object({name: _PROPERTIES[name] for name in MEMBERS}, "id", "name", "tags")
    listed = _object(
        {
            "agents": {"type": "array", "items": {"$ref": "#/$defs/AgentMetadata"}},
            "page": {"type": "integer", "minimum": 1},
            "per_page": {"type": "integer", "minimum": 1, "maximum": 200},
            "total": _COUNT,
        },
        "agents",
        dependentRequired={"page": ["per_page", "total"]},
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": url,
        "title": "Agent discovery, version 1",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("AgentList", "AgentMetadata", "Problem")],
        "$defs": {
            "AgentSummary": summary,
            "AgentMetadata": metadata,
            "Endpoint": _ENDPOINT,
            "Owner": _object({"name": _TEXT, "email": _TEXT, "url": _TEXT}, "name"),
            "AgentList": listed,
            "Problem": _PROBLEM,
        },
    }


def schema_bytes(url: str) -> bytes:
    return dump_json(schema(url))
