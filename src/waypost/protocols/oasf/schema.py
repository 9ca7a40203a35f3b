"""JSON Schema and examples of OASF records, v1 (neighbours.md §4). Open at every level."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions

SCHEMA_VERSION: Final = "1.0.0"

_TEXT: Final[JsonObject] = {"type": "string"}
_ANNOTATIONS: Final[JsonObject] = {
    "type": "object",
    "additionalProperties": _TEXT,
    "description": "Names that start with agntcy. are reserved.",
}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "Record": {
        "type": "object",
        "required": ["name", "version", "schema_version", "description", "authors", "created_at", "skills"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS},
            "version": {"type": "string", "minLength": 1, "maxLength": limits.VERSION_CHARS},
            "schema_version": {"type": "string", "minLength": 1},
            "description": {"type": "string", "minLength": 1, "maxLength": limits.DESCRIPTION_CHARS},
            "authors": {"type": "array", "items": _TEXT},
            "created_at": {"type": "string", "format": "date-time"},
            "skills": {"type": "array", "items": {"$ref": "#/$defs/Class"}},
            "domains": {"type": "array", "items": {"$ref": "#/$defs/Class"}},
            "locators": {"type": "array", "items": {"$ref": "#/$defs/Locator"}},
            "modules": {"type": "array", "items": {"$ref": "#/$defs/Module"}},
            "annotations": _ANNOTATIONS,
        },
    },
    "Class": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _TEXT, "id": {"type": "integer"}, "annotations": _ANNOTATIONS},
    },
    "Locator": {
        "type": "object",
        "required": ["type", "urls"],
        "properties": {
            "type": {
                "type": "string",
                "minLength": 1,
                "examples": ["helm_chart", "container_image", "package", "source_code", "binary", "url"],
            },
            "urls": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            "annotations": _ANNOTATIONS,
        },
    },
    "Module": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": _TEXT,
            "id": {"type": "integer"},
            "data": {"type": "object"},
            "artifact": {"type": "object"},
        },
    },
}
# Before 0.8 a locator had one `url`, and 0.3 named skills by `class_name`.
_OLDER_LOCATOR: Final[JsonObject] = {
    "required": ["type"],
    "properties": {"urls": {"type": "array", "items": {"type": "string", "minLength": 1}}},
    "anyOf": [
        {"required": ["urls"], "properties": {"urls": {"type": "array", "minItems": 1}}},
        {"required": ["url"], "properties": {"url": {"type": "string", "minLength": 1}}},
    ],
}
_ACCEPTED: Final = relax_definitions(
    _DEFINITIONS, {"Class": {"required": []}, "Module": {"required": []}, "Locator": _OLDER_LOCATOR}
)

SCHEMA: Final[JsonObject] = build_schema("OASF record", ["AcceptedRecord"], _DEFINITIONS | _ACCEPTED)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("OASF record", ["Record"], _DEFINITIONS)

_KITCHEN: Final[JsonObject] = {
    "name": "example.com/kitchen-orders",
    "version": "v1.4.0",
    "schema_version": "1.0.0",
    "description": "Takes orders for a kitchen and tells when they are ready.",
    "authors": ["Example Kitchens <agents@example.com>"],
    "created_at": "2026-03-01T09:30:00Z",
    "skills": [
        {"name": "natural_language_processing/natural_language_understanding/contextual_comprehension", "id": 10101},
        {"name": "tool_interaction/workflow_automation", "id": 1402, "annotations": {"level": "basic"}},
    ],
    "domains": [{"name": "hospitality_and_tourism/food_and_beverage", "id": 2303}],
    "locators": [
        {"type": "container_image", "urls": ["https://registry.example.com/kitchen/orders"]},
        {"type": "url", "urls": ["https://kitchen.example.com/orders", "https://backup.example.com/orders"]},
    ],
    "modules": [
        {
            "name": "integration/a2a",
            "id": 203,
            "data": {
                "card_schema_version": "v1.0.0",
                "card_data": {
                    "name": "Kitchen Orders",
                    "description": "Takes orders for a kitchen.",
                    "supportedInterfaces": [
                        {
                            "url": "https://kitchen.example.com/a2a",
                            "protocolBinding": "HTTP+JSON",
                            "protocolVersion": "1.0",
                        }
                    ],
                    "version": "1.4.0",
                    "capabilities": {"streaming": True},
                    "defaultInputModes": ["text/plain"],
                    "defaultOutputModes": ["text/plain"],
                    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
                    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
                    "skills": [
                        {"id": "order", "name": "Order", "description": "Takes an order.", "tags": ["food", "orders"]}
                    ],
                },
            },
        },
        {
            "name": "integration/mcp",
            "id": 202,
            "data": {
                "name": "kitchen-mcp",
                "connections": [
                    {"type": "streamable-http", "url": "https://kitchen.example.com/mcp"},
                    {"type": "stdio", "command": "kitchen-mcp", "args": ["--stdio"]},
                ],
            },
        },
        {"name": "core/observability", "data": {"schema": "https://example.com/otel.json"}},
    ],
    "annotations": {"region": "eu", "cuisine": "nordic"},
}

_SMALLEST: Final[JsonObject] = {
    "name": "ticket-triage",
    "version": "0.3.1",
    "schema_version": "1.0.0",
    "description": "Sorts support tickets by topic and urgency.",
    "authors": ["Example Support"],
    "created_at": "2026-01-15T00:00:00Z",
    "skills": [{"name": "text_classification"}],
    "locators": [{"type": "url", "urls": ["https://triage.example.com/run"]}],
}

EXAMPLES: Final[tuple[JsonObject, ...]] = (_KITCHEN, _SMALLEST)
