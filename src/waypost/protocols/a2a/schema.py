"""JSON Schema and examples of A2A cards (neighbours.md §1). Open at every level; the older forms are accepted, never written."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.a2a.legacy import CAMEL_CASE_NAMES
from waypost.protocols.json_schema import build_schema, relax_definitions

_TEXT: Final[JsonObject] = {"type": "string"}
_NAME: Final[JsonObject] = {"type": "string", "minLength": 1}
_TEXTS: Final[JsonObject] = {"type": "array", "items": _TEXT}
_FLAG: Final[JsonObject] = {"type": "boolean"}
_OBJECT: Final[JsonObject] = {"type": "object"}
_SCHEMES: Final[dict[str, JsonObject]] = {
    "apiKeySecurityScheme": {
        "type": "object",
        "required": ["location", "name"],
        "properties": {"location": _TEXT, "name": _TEXT},
    },
    "httpAuthSecurityScheme": {
        "type": "object",
        "required": ["scheme"],
        "properties": {"scheme": _TEXT, "bearerFormat": _TEXT},
    },
    "oauth2SecurityScheme": {
        "type": "object",
        "required": ["flows"],
        "properties": {"flows": _OBJECT, "oauth2MetadataUrl": _TEXT},
    },
    "openIdConnectSecurityScheme": {"type": "object", "properties": {"openIdConnectUrl": _TEXT}},
    "mtlsSecurityScheme": _OBJECT,
}
_ONE_SCHEME: Final = [{"required": [name]} for name in _SCHEMES]
_NO_SCHEME: Final[JsonObject] = {
    "description": "A scheme that A2A may yet define, or one of before 1.0.",
    "not": {"anyOf": _ONE_SCHEME},
}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "AgentCard": {
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
            "provider": {"type": "object", "properties": {"organization": _TEXT, "url": _TEXT}},
            "documentationUrl": _TEXT,
            "iconUrl": _TEXT,
            "securitySchemes": {"type": "object", "additionalProperties": {"$ref": "#/$defs/SecurityScheme"}},
            "securityRequirements": {"type": "array", "items": {"$ref": "#/$defs/SecurityRequirement"}},
            "signatures": {"type": "array", "items": {"$ref": "#/$defs/Signature"}},
        },
    },
    "AgentInterface": {
        "type": "object",
        "required": ["url", "protocolBinding", "protocolVersion"],
        "properties": {
            "url": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS},
            "protocolBinding": {**_NAME, "description": "JSONRPC, GRPC, HTTP+JSON or another protocol's own name."},
            "protocolVersion": _NAME,
            "tenant": {"type": "string", "description": "To be echoed in requests."},
        },
    },
    "AgentCapabilities": {
        "type": "object",
        "properties": {
            "streaming": _FLAG,
            "pushNotifications": _FLAG,
            "extendedAgentCard": _FLAG,
            "extensions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {"uri": _NAME, "description": _TEXT, "required": _FLAG, "params": _OBJECT},
                },
            },
        },
    },
    "AgentSkill": {
        "type": "object",
        "required": ["id", "name", "description", "tags"],
        "properties": {
            "id": _NAME,
            "name": _NAME,
            "description": _TEXT,
            "tags": _TEXTS,
            "examples": _TEXTS,
            "inputModes": _TEXTS,
            "outputModes": _TEXTS,
            "securityRequirements": {"type": "array", "items": {"$ref": "#/$defs/SecurityRequirement"}},
        },
    },
    "SecurityScheme": {"type": "object", "properties": _SCHEMES, "oneOf": [*_ONE_SCHEME, _NO_SCHEME]},
    "SecurityRequirement": {
        "type": "object",
        "properties": {
            "schemes": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"list": _TEXTS}},
            }
        },
    },
    "Signature": {
        "type": "object",
        "required": ["protected", "signature"],
        "properties": {"protected": _NAME, "signature": _NAME, "header": _OBJECT},
    },
}

# What protobuf leaves out when it is empty may be missing, and an interface its version. A scheme may be told in part: it is
# the caller who finds that it is not enough. Scopes stand in an array of their own, or straight under the scheme's name.
_ADDRESSES: Final = ("supportedInterfaces", "supported_interfaces")
_CHANGES: Final[dict[str, JsonObject]] = {
    "AgentCard": {"required": ["name", "description", "supportedInterfaces", "version"]},
    "AgentInterface": {"required": ["url", "protocolBinding"]},
    "AgentSkill": {"required": ["id", "name", "description"]},
    "SecurityScheme": {"properties": {name: {**scheme, "required": []} for name, scheme in _SCHEMES.items()}},
    "SecurityRequirement": {
        "properties": {
            "schemes": {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "object", "properties": {"list": _TEXTS}}, _TEXTS]},
            }
        }
    },
}
_SPELLINGS: Final = {camel: (snake,) for snake, camel in CAMEL_CASE_NAMES.items()}
_CARD: Final[JsonObject] = _DEFINITIONS["AgentCard"]
_SHARED: Final = {name: part for name, part in _CARD["properties"].items() if name != "supportedInterfaces"}
_OLDER_CARD: Final[JsonObject] = {
    "description": "A card from before 1.0, which is read and never written.",
    "type": "object",
    "required": ["name", "description", "version", "url"],
    "not": {"anyOf": [{"required": [name]} for name in _ADDRESSES]},
    "properties": {
        **_SHARED,
        "url": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS},
        "preferredTransport": _TEXT,
        "additionalInterfaces": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["url"],
                "properties": {"url": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS}},
            },
        },
        "protocolVersion": _TEXT,
        "supportsExtendedAgentCard": _FLAG,
        "supportsAuthenticatedExtendedCard": _FLAG,
    },
}
_ACCEPTED: Final = relax_definitions({**_DEFINITIONS, "OlderAgentCard": _OLDER_CARD}, _CHANGES, _SPELLINGS)

SCHEMA: Final[JsonObject] = build_schema(
    "A2A Agent Card", ["AcceptedAgentCard", "AcceptedOlderAgentCard"], _DEFINITIONS | _ACCEPTED
)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("A2A Agent Card", ["AgentCard"], _DEFINITIONS)

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
