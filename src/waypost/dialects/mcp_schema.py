"""JSON Schema and examples of MCP server.json (neighbours.md §2). Open at every level; older forms are accepted only."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject

SCHEMA_URL: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

_TEXT: Final[JsonObject] = {"type": "string"}
_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "value": _TEXT,
        "isRequired": {"type": "boolean"},
        "isSecret": {"type": "boolean"},
    },
}
_INPUTS: Final[JsonObject] = {"type": "array", "items": _INPUT}

_REMOTE: Final[JsonObject] = {
    "type": "object",
    "required": ["type", "url"],
    "properties": {
        "type": {"enum": ["streamable-http", "sse"]},
        "url": {"type": "string", "minLength": 1, "description": "A template: {name} stands for a variable."},
        "headers": _INPUTS,
        "variables": {"type": "object", "additionalProperties": _INPUT},
    },
}

_PACKAGE: Final[JsonObject] = {
    "type": "object",
    "required": ["registryType", "identifier", "transport"],
    "properties": {
        "registryType": {
            "type": "string",
            "minLength": 1,
            "examples": ["npm", "pypi", "cargo", "oci", "nuget", "mcpb"],
        },
        "identifier": {"type": "string", "minLength": 1},
        "version": {"type": "string", "maxLength": limits.VERSION_CHARS},
        "registryBaseUrl": _TEXT,
        "fileSha256": _TEXT,
        "runtimeHint": _TEXT,
        "runtimeArguments": {"type": "array"},
        "packageArguments": {"type": "array"},
        "environmentVariables": {"type": "array"},
        "transport": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": ["stdio", "streamable-http", "sse"]}, "url": _TEXT},
        },
    },
}

_SERVER: Final[JsonObject] = {
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
        "title": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS},
        "description": {"type": "string", "minLength": 1, "description": "At most 100 characters are written."},
        "version": {"type": "string", "minLength": 1, "maxLength": limits.VERSION_CHARS},
        "websiteUrl": _TEXT,
        "icons": {"type": "array"},
        "repository": {"type": "object"},
        "packages": {"type": "array", "items": {"$ref": "#/$defs/Package"}},
        "remotes": {"type": "array", "items": {"$ref": "#/$defs/Remote"}},
        "_meta": {"type": "object", "description": "Free-form, under reverse-DNS names."},
    },
}

_ENVELOPE: Final[JsonObject] = {
    "description": "A server as a registry lists it.",
    "type": "object",
    "required": ["server"],
    "properties": {"server": {"type": "object", "required": ["name", "description"]}, "_meta": {"type": "object"}},
}

_OLDER: Final[JsonObject] = {
    "description": "The snake_case form of 2025-07, which is read and never written.",
    "type": "object",
    "required": ["name", "description"],
    "anyOf": [{"required": ["version_detail"]}, {"required": ["version"]}],
    "properties": {
        "packages": {
            "type": "array",
            "contains": {"anyOf": [{"required": ["registry_type"]}, {"required": ["registry_name"]}]},
        },
        "remotes": {"type": "array", "contains": {"required": ["transport_type"]}},
    },
    "not": {"required": ["server"]},
}

SCHEMA: Final[JsonObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "MCP server.json",
    "anyOf": [{"$ref": "#/$defs/Server"}, {"$ref": "#/$defs/Envelope"}, {"$ref": "#/$defs/OlderServer"}],
    "$defs": {
        "Server": _SERVER,
        "Envelope": _ENVELOPE,
        "OlderServer": _OLDER,
        "Remote": _REMOTE,
        "Package": _PACKAGE,
    },
}

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
