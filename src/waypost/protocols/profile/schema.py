"""JSON Schema and examples of the profile's Agent Metadata (profile.md Tables 2–4)."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject
from waypost.model.record import STATUSES
from waypost.protocols.json_schema import build_schema, relax_definitions

_TEXT: Final[JsonObject] = {"type": "string"}
_OBJECT: Final[JsonObject] = {"type": "object"}
_TIME: Final[JsonObject] = {"type": "string", "format": "date-time"}
_TAGS: Final[JsonObject] = {
    "type": "array",
    "maxItems": limits.TAGS,
    "items": {"type": "string", "minLength": 1, "maxLength": limits.TAG_CHARS},
}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "Agent": {
        "type": "object",
        "required": ["id", "name", "description", "bindings"],
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": limits.ID_CHARS},
            "name": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS},
            "description": {"type": "string", "minLength": 1, "maxLength": limits.DESCRIPTION_CHARS},
            "tags": _TAGS,
            "examples": {"type": "array", "maxItems": limits.EXAMPLES, "items": {"$ref": "#/$defs/Example"}},
            "bindings": {
                "type": "array",
                "minItems": 1,
                "maxItems": limits.BINDINGS,
                "items": {"$ref": "#/$defs/Binding"},
            },
            "auth": _OBJECT,
            "constraints": _OBJECT,
            "status": {"enum": [*STATUSES]},
            "expires_at": _TIME,
            "version": {"type": "string", "maxLength": limits.VERSION_CHARS},
            "updated_at": _TIME,
            "signature": _OBJECT,
        },
    },
    "Example": {
        "type": "object",
        "required": ["text"],
        "properties": {
            "id": _TEXT,
            "text": {"type": "string", "minLength": 1, "maxLength": limits.EXAMPLE_CHARS},
            "tags": _TAGS,
            "input_schema": _OBJECT,
            "output_schema": _OBJECT,
            "language": {"type": "string", "description": "A language tag."},
        },
    },
    "Binding": {
        "type": "object",
        "required": ["protocol", "endpoint"],
        "properties": {
            "protocol": {
                "type": "string",
                "minLength": 1,
                "description": "An id of the binding profile, such as https.",
            },
            "endpoint": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS},
            "media_types": {"type": "array", "items": {"type": "string"}},
            "interaction_model": _TEXT,
            "priority": {"type": "integer", "description": "Lower is preferred."},
        },
    },
}

SCHEMA: Final[JsonObject] = build_schema(
    "Agent Metadata", ["AcceptedAgent"], _DEFINITIONS | relax_definitions(_DEFINITIONS)
)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("Agent Metadata", ["Agent"], _DEFINITIONS)

EXAMPLES: Final[tuple[JsonObject, ...]] = (
    {
        "id": "https://agents.example.net/id/hr-core-automator",
        "name": "HR Core Automator",
        "description": "Optimizes HR workflows and onboarding checks.",
        "tags": ["hr", "workflow", "onboarding", "hcm", "api-automation"],
        "examples": [
            {
                "id": "ex-1",
                "text": "Prepare a new employee onboarding workflow.",
                "tags": ["onboarding", "workflow"],
            },
            {
                "id": "ex-2",
                "text": "Check an employee record for missing payroll fields.",
                "tags": ["employee-record", "validation"],
            },
        ],
        "bindings": [
            {
                "protocol": "https",
                "endpoint": "https://agents.example.net/hr-core/invoke",
                "media_types": ["application/json"],
                "interaction_model": "request-response",
            }
        ],
        "status": "active",
        "version": "1.0.0",
        "updated_at": "2026-05-08T00:00:00Z",
    },
    {
        "id": "https://example.net/agents/minimal",
        "name": "Minimal Agent",
        "description": "Answers short factual questions.",
        "bindings": [{"protocol": "https", "endpoint": "https://example.net/agent/invoke"}],
    },
)
