"""JSON Schema and examples of AgentMetadata v1 (agentframework.md §4; P-20 names the definitions)."""

from __future__ import annotations

from typing import Final

from waypost.model.json import JsonObject

# A reader takes null for absent (AF-19); a writer leaves the member out.
_TEXT: Final[JsonObject] = {"type": ["string", "null"]}
_OBJECT: Final[JsonObject] = {"type": ["object", "null"]}
_TIME: Final[JsonObject] = {"type": ["string", "null"], "format": "date-time"}

_DEFINITIONS: Final[JsonObject] = {
    "AgentSummary": {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"},
            "name": {"type": ["string", "null"], "maxLength": 256},
            "version": _TEXT,
            "summary": _TEXT,
            "tags": {"type": ["array", "null"], "maxItems": 64, "items": {"type": "string", "maxLength": 64}},
        },
    },
    "AgentMetadata": {
        "type": "object",
        "allOf": [{"$ref": "#/$defs/AgentSummary"}],
        "properties": {
            "description": _TEXT,
            "owner": {"$ref": "#/$defs/Owner"},
            "endpoints": {"type": ["array", "null"], "maxItems": 128, "items": {"$ref": "#/$defs/Endpoint"}},
            "capabilities": _OBJECT,
            "created_at": _TIME,
            "updated_at": _TIME,
            "metadata": _OBJECT,
        },
    },
    "Endpoint": {
        "type": "object",
        "if": {"not": {"required": ["transport"]}},
        "then": {"required": ["method", "path"]},
        "properties": {
            "method": {"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"},
            "path": {"type": "string", "pattern": "^/([^/?#\\s][^?#\\s]*)?$"},
            "description": _TEXT,
        },
    },
    "Owner": {
        "type": ["object", "null"],
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "email": _TEXT, "url": _TEXT},
    },
    "AgentList": {
        "type": "object",
        "required": ["agents"],
        "properties": {
            "agents": {"type": "array", "items": {"$ref": "#/$defs/AgentSummary"}},
            "page": {"type": "integer", "minimum": 1},
            "per_page": {"type": "integer", "minimum": 1},
            "total": {"type": "integer", "minimum": 0},
        },
    },
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": {"type": "string"},
            "correlation_id": {"type": "string"},
        },
    },
}

SCHEMA: Final[JsonObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "AgentMetadata v1",
    "$ref": "#/$defs/AgentMetadata",
    "$defs": _DEFINITIONS,
}

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
