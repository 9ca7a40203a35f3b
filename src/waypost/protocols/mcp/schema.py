"""JSON Schema and examples of MCP server.json (neighbours.md §2). Open at every level; older forms are accepted only."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions
from waypost.protocols.mcp.legacy import CAMEL_CASE_NAMES

SCHEMA_URL: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

_TEXT: Final[JsonObject] = {"type": "string"}
_NAME: Final[JsonObject] = {"type": "string", "minLength": 1}
_FLAG: Final[JsonObject] = {"type": "boolean"}
_INPUTS: Final[JsonObject] = {"type": "array", "items": {"$ref": "#/$defs/Input"}}
_NAMED_INPUTS: Final[JsonObject] = {"type": "array", "items": {"$ref": "#/$defs/NamedInput"}}
_INPUT: Final[JsonObject] = {
    "name": _TEXT,
    "description": _TEXT,
    "value": _TEXT,
    "isRequired": _FLAG,
    "isSecret": _FLAG,
}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "Server": {
        "type": "object",
        "required": ["name", "description", "version"],
        "properties": {
            "$schema": {"type": "string", "format": "uri"},
            "name": {
                "type": "string",
                "minLength": 3,
                "maxLength": 200,
                "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
            },
            "title": {"type": "string", "minLength": 1, "maxLength": 100},
            "description": {"type": "string", "minLength": 1, "maxLength": 100},
            "version": {"type": "string", "minLength": 1, "maxLength": limits.VERSION_CHARS},
            "websiteUrl": _TEXT,
            "icons": {
                "type": "array",
                "items": {"type": "object", "required": ["src"], "properties": {"src": _NAME}},
            },
            "repository": {
                "type": "object",
                "properties": {"url": _TEXT, "source": _TEXT, "id": _TEXT, "subfolder": _TEXT},
            },
            "packages": {"type": "array", "items": {"$ref": "#/$defs/Package"}},
            "remotes": {"type": "array", "items": {"$ref": "#/$defs/Remote"}},
            "_meta": {"type": "object", "description": "Free-form, under reverse-DNS names."},
        },
    },
    "Remote": {
        "type": "object",
        "required": ["type", "url"],
        "properties": {
            "type": {"enum": ["streamable-http", "sse"]},
            "url": {**_NAME, "description": "A template: {name} stands for a variable."},
            "headers": _NAMED_INPUTS,
            "variables": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Input"}},
        },
    },
    "Package": {
        "type": "object",
        "required": ["registryType", "identifier", "transport"],
        "properties": {
            "registryType": {**_NAME, "examples": ["npm", "pypi", "cargo", "oci", "nuget", "mcpb"]},
            "identifier": _NAME,
            "version": {"type": "string", "maxLength": limits.VERSION_CHARS},
            "registryBaseUrl": _TEXT,
            "fileSha256": _TEXT,
            "runtimeHint": _TEXT,
            "runtimeArguments": _INPUTS,
            "packageArguments": _INPUTS,
            "environmentVariables": _NAMED_INPUTS,
            "transport": {"$ref": "#/$defs/Transport"},
        },
    },
    "Transport": {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": ["stdio", "streamable-http", "sse"]}, "url": _TEXT, "headers": _NAMED_INPUTS},
    },
    "Input": {"type": "object", "properties": _INPUT},
    "NamedInput": {"type": "object", "required": ["name"], "properties": {**_INPUT, "name": _NAME}},
}

# Descriptions and titles are longer in the wild than the registry takes them. Before 2025-09 members were in snake_case, a
# version stood in `version_detail`, and before 2025-07 a package was named by `name` and had no transport.
_CHANGES: Final[dict[str, JsonObject]] = {
    "Server": {
        "required": ["name", "description"],
        "anyOf": [
            {"required": ["version"]},
            {
                "not": {"required": ["version"]},
                "required": ["version_detail"],
                "properties": {"version_detail": {"type": "object", "required": ["version"]}},
            },
        ],
        "properties": {
            "$schema": {},
            "title": {"type": "string", "maxLength": limits.NAME_CHARS},
            "description": {"type": "string", "minLength": 1, "maxLength": limits.DESCRIPTION_CHARS},
        },
    },
    "Package": {
        "required": ["registryType"],
        "anyOf": [
            {"required": ["identifier"], "properties": {"identifier": _NAME}},
            {"not": {"required": ["identifier"]}, "required": ["name"], "properties": {"name": _NAME}},
        ],
    },
}
_SPELLINGS: Final = {
    camel: tuple(snake for snake, today in CAMEL_CASE_NAMES.items() if today == camel)
    for camel in CAMEL_CASE_NAMES.values()
}
_ENVELOPE: Final[JsonObject] = {
    "description": "A server as a registry lists it.",
    "type": "object",
    "required": ["server"],
    "properties": {"server": {"$ref": "#/$defs/Server"}, "_meta": {"type": "object"}},
}
_ACCEPTED: Final = relax_definitions({**_DEFINITIONS, "Envelope": _ENVELOPE}, _CHANGES, _SPELLINGS)

SCHEMA: Final[JsonObject] = build_schema(
    "MCP server.json", ["AcceptedServer", "AcceptedEnvelope"], _DEFINITIONS | _ACCEPTED
)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("MCP server.json", ["Server"], _DEFINITIONS)

_WEATHER: Final[JsonObject] = {
    "$schema": SCHEMA_URL,
    "name": "com.example.weather/forecast",
    "title": "Weather Forecast",
    "description": "Forecasts, warnings and past observations for any place on earth.",
    "version": "2.1.0",
    "websiteUrl": "https://weather.example.com/mcp",
    "icons": [{"src": "https://weather.example.com/icon.png", "mimeType": "image/png", "sizes": ["96x96"]}],
    "repository": {
        "url": "https://git.example.com/weather/forecast",
        "source": "gitlab",
        "id": "4711",
        "subfolder": "servers/mcp",
    },
    "packages": [
        {
            "registryType": "npm",
            "registryBaseUrl": "https://npm.example.com",
            "identifier": "@example/weather-mcp",
            "version": "2.1.0",
            "runtimeHint": "npx",
            "runtimeArguments": [{"type": "positional", "value": "-y"}],
            "packageArguments": [{"type": "named", "name": "--units", "value": "metric"}],
            "environmentVariables": [
                {"name": "WEATHER_KEY", "description": "Key of the data service.", "isRequired": True, "isSecret": True}
            ],
            "transport": {"type": "stdio"},
        },
        {
            "registryType": "oci",
            "identifier": "registry.example.com/weather/forecast:2.1.0",
            "transport": {"type": "streamable-http", "url": "http://localhost:8080/mcp"},
        },
        {
            "registryType": "mcpb",
            "identifier": "https://downloads.example.com/weather-2.1.0.mcpb",
            "fileSha256": "fe333e598595000ae021bd27117db32ec69af6987f507ba7a63c90638ff633ce",
            "transport": {"type": "stdio"},
        },
    ],
    "remotes": [
        {
            "type": "streamable-http",
            "url": "https://{region}.weather.example.com/mcp",
            "headers": [{"name": "X-Weather-Key", "isRequired": True, "isSecret": True}],
            "variables": {
                "region": {"description": "Where the data is kept.", "default": "eu", "choices": ["eu", "us"]}
            },
        },
        {"type": "sse", "url": "https://weather.example.com/sse"},
    ],
    "_meta": {"io.modelcontextprotocol.registry/publisher-provided": {"tool": "publisher-cli", "build": 42}},
}

_SMALLEST: Final[JsonObject] = {
    "$schema": SCHEMA_URL,
    "name": "io.github.example/notes",
    "description": "Keeps short notes and finds them again.",
    "version": "1.0.0",
    "remotes": [{"type": "streamable-http", "url": "https://notes.example.com/mcp"}],
}

_LISTED: Final[JsonObject] = {
    **_SMALLEST,
    "title": "Notes",
    "_meta": {
        "io.modelcontextprotocol.registry/official": {
            "status": "deprecated",
            "statusMessage": "Use notes2.",
            "publishedAt": "2026-01-10T08:00:00Z",
            "updatedAt": "2026-02-11T08:00:00Z",
            "isLatest": True,
        }
    },
}

EXAMPLES: Final[tuple[JsonObject, ...]] = (_WEATHER, _SMALLEST, _LISTED)
