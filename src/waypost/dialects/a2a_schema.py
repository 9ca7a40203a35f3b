"""JSON Schema and examples of A2A cards (neighbours.md §1). Open at every level; the older forms are accepted, never written."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject

_TEXT: Final[JsonObject] = {"type": "string", "minLength": 1}
_TEXTS: Final[JsonObject] = {"type": "array", "items": {"type": "string"}}

_INTERFACE: Final[JsonObject] = {
    "type": "object",
    "required": ["url", "protocolBinding", "protocolVersion"],
    "properties": {
        "url": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS},
        "protocolBinding": {**_TEXT, "description": "JSONRPC, GRPC, HTTP+JSON or another protocol's own name."},
        "protocolVersion": _TEXT,
        "tenant": {"type": "string", "description": "To be echoed in requests."},
    },
}

_CAPABILITIES: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "streaming": {"type": "boolean"},
        "pushNotifications": {"type": "boolean"},
        "extendedAgentCard": {"type": "boolean"},
        "extensions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["uri"],
                "properties": {
                    "uri": _TEXT,
                    "description": {"type": "string"},
                    "required": {"type": "boolean"},
                    "params": {"type": "object"},
                },
            },
        },
    },
}

_REQUIREMENTS: Final[JsonObject] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "schemes": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"list": _TEXTS}},
            }
        },
    },
}

_SKILL: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "name", "description", "tags"],
    "properties": {
        "id": _TEXT,
        "name": _TEXT,
        "description": {"type": "string"},
        "tags": _TEXTS,
        "examples": _TEXTS,
        "inputModes": _TEXTS,
        "outputModes": _TEXTS,
        "securityRequirements": _REQUIREMENTS,
    },
}


def _one_key(name: str, properties: JsonObject, *required: str) -> JsonObject:
    body: JsonObject = {"type": "object", "properties": properties, "required": list(required)}
    return {"required": [name], "properties": {name: body}, "maxProperties": 1}


_TEXT_MEMBER: Final[JsonObject] = {"type": "string"}
_SCHEME: Final[JsonObject] = {
    "type": "object",
    "oneOf": [
        _one_key("apiKeySecurityScheme", {"location": _TEXT_MEMBER, "name": _TEXT_MEMBER}, "location", "name"),
        _one_key("httpAuthSecurityScheme", {"scheme": _TEXT_MEMBER, "bearerFormat": _TEXT_MEMBER}, "scheme"),
        _one_key("oauth2SecurityScheme", {"flows": {"type": "object"}, "oauth2MetadataUrl": _TEXT_MEMBER}, "flows"),
        _one_key("openIdConnectSecurityScheme", {"openIdConnectUrl": _TEXT_MEMBER}),
        _one_key("mtlsSecurityScheme", {}),
        {  # a scheme that A2A may yet define
            "not": {
                "anyOf": [
                    {"required": [name]}
                    for name in (
                        "apiKeySecurityScheme",
                        "httpAuthSecurityScheme",
                        "oauth2SecurityScheme",
                        "openIdConnectSecurityScheme",
                        "mtlsSecurityScheme",
                    )
                ]
            }
        },
    ],
}

_CARD: Final[JsonObject] = {
    "type": "object",
    "required": [
        "name",
        "description",
        "supportedInterfaces",
        "version",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    ],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS},
        "description": {"type": "string", "minLength": 1, "maxLength": limits.DESCRIPTION_CHARS},
        "supportedInterfaces": {
            "type": "array",
            "items": {"$ref": "#/$defs/AgentInterface"},
            "description": "Ordered; the first is preferred.",
        },
        "version": {"type": "string", "minLength": 1, "maxLength": limits.VERSION_CHARS},
        "capabilities": {"$ref": "#/$defs/AgentCapabilities"},
        "defaultInputModes": _TEXTS,
        "defaultOutputModes": _TEXTS,
        "skills": {"type": "array", "items": {"$ref": "#/$defs/AgentSkill"}},
        "provider": {
            "type": "object",
            "properties": {"organization": {"type": "string"}, "url": {"type": "string"}},
        },
        "documentationUrl": {"type": "string"},
        "iconUrl": {"type": "string"},
        "securitySchemes": {"type": "object", "additionalProperties": {"$ref": "#/$defs/SecurityScheme"}},
        "securityRequirements": _REQUIREMENTS,
        "signatures": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["protected", "signature"],
                "properties": {"protected": _TEXT, "signature": _TEXT, "header": {"type": "object"}},
            },
        },
    },
}

_OLDER: Final[JsonObject] = {
    "description": "A card from before 1.0, which is read and never written.",
    "type": "object",
    "required": ["name", "description", "url", "version"],
    "not": {"required": ["supportedInterfaces"]},
    "properties": {
        "url": {"type": "string", "minLength": 1},
        "preferredTransport": {"type": "string"},
        "additionalInterfaces": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["url"],
                "properties": {"url": {"type": "string"}, "transport": {"type": "string"}},
            },
        },
        "protocolVersion": {"type": "string"},
        "skills": {"type": "array", "items": {"type": "object", "required": ["id", "name"]}},
        "securitySchemes": {"type": "object"},
        "security": {"type": "array"},
    },
}

SCHEMA: Final[JsonObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A2A Agent Card",
    "anyOf": [{"$ref": "#/$defs/AgentCard"}, {"$ref": "#/$defs/OlderAgentCard"}],
    "$defs": {
        "AgentCard": _CARD,
        "OlderAgentCard": _OLDER,
        "AgentInterface": _INTERFACE,
        "AgentCapabilities": _CAPABILITIES,
        "AgentSkill": _SKILL,
        "SecurityScheme": _SCHEME,
    },
}

_ROUTES: Final[JsonObject] = {
    "name": "Harbour Route Planner",
    "description": "Plans delivery routes between ports and depots and draws them on a map.",
    "supportedInterfaces": [
        {"url": "https://routes.example.com/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://routes.example.com/a2a/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {
            "url": "https://routes.example.com/a2a/json",
            "protocolBinding": "HTTP+JSON",
            "protocolVersion": "1.0",
            "tenant": "north-sea",
        },
    ],
    "provider": {"organization": "Example Shipping", "url": "https://www.example.com"},
    "iconUrl": "https://routes.example.com/icon.png",
    "documentationUrl": "https://docs.example.com/routes",
    "version": "1.2.0",
    "capabilities": {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "https://example.com/ext/customs/v1",
                "description": "Customs declarations travel with each leg.",
                "required": True,
                "params": {"region": "eu"},
            }
        ],
    },
    "securitySchemes": {
        "sso": {
            "openIdConnectSecurityScheme": {
                "openIdConnectUrl": "https://id.example.com/.well-known/openid-configuration"
            }
        },
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Routes-Key"}},
    },
    "securityRequirements": [
        {"schemes": {"sso": {"list": ["openid", "routes:plan"]}}},
        {"schemes": {"key": {"list": []}}},
    ],
    "defaultInputModes": ["application/json", "text/plain"],
    "defaultOutputModes": ["application/json", "image/png"],
    "skills": [
        {
            "id": "plan-route",
            "name": "Plan a route",
            "description": "Finds the quickest, cheapest or cleanest way between two places.",
            "tags": ["logistics", "routing", "shipping"],
            "examples": [
                "Plan the cheapest route from Rotterdam to Oslo for 12 pallets.",
                '{"from": "NLRTM", "to": "NOOSL", "optimise": "emissions"}',
            ],
            "inputModes": ["application/json", "text/plain"],
            "outputModes": ["application/json"],
        },
        {
            "id": "draw-map",
            "name": "Draw a map",
            "description": "Draws a planned route as an image, with stops and times.",
            "tags": ["maps", "visualisation"],
            "examples": ["Show me the route of order 4711."],
            "outputModes": ["image/png"],
        },
    ],
    "signatures": [
        {
            "protected": "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpPU0UiLCJraWQiOiJyb3V0ZXMtMSJ9",
            "signature": "QFdkNLNszlGj3z3u0YQGt_T9LixY3qtdQpZmsTdDHDe3fXV9y9-B3m2-XgCpzuhiLt8E0tV6HXoZKHv4GtHgKQ",
        }
    ],
}

_SMALLEST: Final[JsonObject] = {
    "name": "Echo",
    "description": "Says again what it was told.",
    "supportedInterfaces": [
        {"url": "https://echo.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "version": "0.1.0",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "echo", "name": "Echo", "description": "Repeats the message.", "tags": ["test"]}],
}

EXAMPLES: Final[tuple[JsonObject, ...]] = (_ROUTES, _SMALLEST)
