"""JSON Schemas and examples of ARD entries and catalogs (ard.md §1–3). Entries are open; a catalog's top level is closed."""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions

QUERIES: Final = (2, 5)  # representative queries of an entry: fewer or more fail ARD's own schema (ARD-4)

_TEXT: Final[JsonObject] = {"type": "string"}
_TEXTS: Final[JsonObject] = {"type": "array", "items": _TEXT}
_NAME: Final[JsonObject] = {"type": "string", "minLength": 1}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "Entry": {
        "type": "object",
        "required": ["identifier", "displayName", "type"],
        "oneOf": [{"required": ["url"]}, {"required": ["data"]}],
        "properties": {
            "identifier": {
                "type": "string",
                "maxLength": 255,
                "pattern": "^urn:air:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+$",
                "description": "urn:air:<publisher>[:<namespace>…]:<name>",
            },
            "displayName": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS},
            "type": {"type": "string", "minLength": 1, "description": "The artifact's media type."},
            "url": {"type": "string", "minLength": 1},
            "data": {"type": "object"},
            "description": _TEXT,
            "tags": _TEXTS,
            "capabilities": _TEXTS,
            "representativeQueries": {**_TEXTS, "minItems": QUERIES[0], "maxItems": QUERIES[1]},
            "version": {"type": "string", "maxLength": limits.VERSION_CHARS},
            "updatedAt": {"type": "string", "format": "date-time"},
            "metadata": {
                "type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            },
            "trustManifest": {"$ref": "#/$defs/TrustManifest"},
            "publisher": {"type": "object"},
        },
    },
    "TrustManifest": {
        "type": "object",
        "required": ["identity"],
        "properties": {
            "identity": _NAME,
            "identityType": _TEXT,
            "attestations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["type", "uri"],
                    "properties": {"type": _NAME, "uri": _NAME, "mediaType": _TEXT, "digest": _TEXT},
                },
            },
            "provenance": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["relation", "sourceId"],
                    "properties": {"relation": _NAME, "sourceId": _NAME, "sourceDigest": _TEXT},
                },
            },
            "trustSchema": {
                "type": "object",
                "required": ["identifier", "version"],
                "properties": {
                    "identifier": _NAME,
                    "version": _NAME,
                    "governanceUri": _TEXT,
                    "verificationMethods": _TEXTS,
                },
            },
            "signature": _TEXT,
        },
    },
}
_READ_ENTRY: Final[JsonObject] = {
    "required": ["identifier", "displayName"],
    "anyOf": [
        {"required": ["type"], "properties": {"type": _NAME}},
        {
            "description": "AIC's name of it (ARD-6).",
            "not": {"required": ["type"]},
            "required": ["mediaType"],
            "properties": {"mediaType": _NAME},
        },
    ],
    "oneOf": [
        {"required": ["url"], "properties": {"url": {"type": "string"}}},
        {"required": ["data"], "properties": {"data": {"type": "object"}}},
    ],
    "properties": {
        "identifier": {
            "type": "string",
            "maxLength": 255,
            "pattern": "^[uU][rR][nN]:[aA][iI][rR]?:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+$",
            "description": "In any case, and under the scheme urn:ai that went before (ARD-16).",
        },
        "representativeQueries": _TEXTS,
        "metadata": {"type": "object"},
    },
}
_ACCEPTED: Final = relax_definitions(_DEFINITIONS, {"Entry": _READ_ENTRY})

ENTRY_SCHEMA: Final[JsonObject] = build_schema("ARD catalog entry", ["AcceptedEntry"], _DEFINITIONS | _ACCEPTED)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("ARD catalog entry", ["Entry"], _DEFINITIONS)

# A manifest is under its publisher's signature, so a catalog lists it as it came.
_MANIFEST: Final[JsonObject] = {"$ref": "#/$defs/AcceptedTrustManifest"}
_LISTED: Final[JsonObject] = {
    **_DEFINITIONS["Entry"],
    "properties": {**_DEFINITIONS["Entry"]["properties"], "trustManifest": _MANIFEST},
}
CATALOG_SCHEMA: Final[JsonObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "AI Catalog",
    "type": "object",
    "required": ["specVersion", "entries"],
    "additionalProperties": False,
    "properties": {
        "specVersion": {"const": "1.0"},
        "host": {
            "type": "object",
            "required": ["displayName"],
            "additionalProperties": False,
            "properties": {
                "displayName": _TEXT,
                "identifier": _TEXT,
                "documentationUrl": _TEXT,
                "logoUrl": _TEXT,
                "trustManifest": _MANIFEST,
            },
        },
        "entries": {"type": "array", "items": {"$ref": "#/$defs/Entry"}},
    },
    "$defs": {"Entry": _LISTED, "AcceptedTrustManifest": _ACCEPTED["AcceptedTrustManifest"]},
}

_ASSISTANT: Final[JsonObject] = {
    "identifier": "urn:air:acme.com:agent:assistant",
    "displayName": "Assistant",
    "type": "application/a2a-agent-card+json",
    "url": "https://api.acme.com/agents/assistant.json",
    "representativeQueries": ["draft an email", "summarize unread mail"],
}

_REGISTRY: Final[JsonObject] = {
    "identifier": "urn:air:acme.com:registry:main",
    "displayName": "Acme registry",
    "type": "application/ai-registry+json",
    "url": "https://registry.acme.com/api/v1/",
}

_TRUSTED: Final[JsonObject] = {
    "identifier": "urn:air:example.com:finance:invoices:reader",
    "displayName": "Invoice Reader",
    "type": "application/mcp-server-card+json",
    "url": "https://invoices.example.com/server.json",
    "description": "Reads scanned invoices and returns their lines, totals and tax.",
    "tags": ["finance", "ocr"],
    "capabilities": ["read_invoice", "checkTotals"],
    "representativeQueries": [
        "read this scanned invoice",
        "does the tax on this bill add up",
        "list the lines of a bill",
    ],
    "version": "3.0.1",
    "updatedAt": "2026-05-08T12:00:00Z",
    "metadata": {"region": "eu", "pricePerPage": 0.02, "beta": False},
    "trustManifest": {
        "identity": "did:web:example.com",
        "identityType": "did",
        "attestations": [
            {
                "type": "SOC2-Type2",
                "uri": "https://trust.example.com/soc2.pdf",
                "mediaType": "application/pdf",
                "digest": "sha256:b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
            }
        ],
        "provenance": [{"relation": "publishedFrom", "sourceId": "https://git.example.com/invoices"}],
        "signature": "eyJhbGciOiJFZERTQSIsImtpZCI6ImludmljZXMtMSJ9..c2lnbmF0dXJl",
    },
    "publisher": {"identifier": "did:web:example.com", "displayName": "Example Ltd"},
}

_INLINE: Final[JsonObject] = {
    "identifier": "urn:air:example.com:agent:greeter",
    "displayName": "Greeter",
    "type": "application/agent-metadata+json",
    "data": {
        "id": "https://example.com/agents/greeter",
        "name": "Greeter",
        "description": "Says good morning in forty languages.",
        "bindings": [{"protocol": "https", "endpoint": "https://example.com/agents/greeter/invoke"}],
    },
    "description": "Says good morning in forty languages.",
}

EXAMPLES: Final[tuple[JsonObject, ...]] = (_ASSISTANT, _REGISTRY, _TRUSTED, _INLINE)
