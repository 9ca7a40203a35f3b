"""JSON Schema and examples of the announce protocol's `agent` object and its envelope (announce.md §1, §2)."""

from __future__ import annotations

from typing import Final

from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions

UUID_PATTERN: Final = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
LABEL_PATTERN: Final = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
VERSION_PATTERN: Final = r"v\d+\.\d+"

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "Agent": {
        "type": "object",
        "required": ["agent_id", "capabilities", "transport"],
        "properties": {
            "agent_id": {"type": "string", "pattern": f"^{UUID_PATTERN}$"},
            "agent_name": {"type": "string", "pattern": f"^{LABEL_PATTERN}$"},
            "capabilities": {
                "type": "object",
                "maxProperties": 64,
                "propertyNames": {"minLength": 1, "maxLength": 64},
                "additionalProperties": {"type": ["string", "object"]},
            },
            "public_key": {"type": "string", "maxLength": 8192},
            "transport": {
                "type": "object",
                "required": ["type", "endpoint"],
                "properties": {
                    "type": {"type": "string", "minLength": 1},
                    "endpoint": {"type": "string", "minLength": 1},
                },
            },
            "metadata": {"type": "object"},
        },
    },
    "Announce": {
        "type": "object",
        "required": ["protocol_version", "agent"],
        "not": {"required": ["agent_id"]},
        "properties": {
            "protocol_version": {"type": "string", "pattern": f"^{VERSION_PATTERN}$"},
            "agent": {"$ref": "#/$defs/Agent"},
            "signature": {"type": "string"},
            "previous_signature": {"type": "string"},
            "ttl": {"description": "Seconds; advisory, because it is not signed."},
        },
    },
}

SCHEMA: Final[JsonObject] = build_schema(
    "Announced agent", ["AcceptedAgent", "AcceptedAnnounce"], _DEFINITIONS | relax_definitions(_DEFINITIONS)
)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("Announced agent", ["Agent"], _DEFINITIONS)

_AGENT: Final[JsonObject] = {
    "agent_id": "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d",
    "agent_name": "data-processor",
    "capabilities": {"metrics": "2.0"},
    "public_key": (
        "-----BEGIN PUBLIC KEY-----\n"
        "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
        "-----END PUBLIC KEY-----\n"
    ),
    "transport": {"type": "tcp", "endpoint": "10.0.0.12:9000"},
    "metadata": {"__os": "linux", "load": 1.0, "note": "é"},
}

EXAMPLES: Final[tuple[JsonObject, ...]] = (
    _AGENT,
    {
        "protocol_version": "v1.0",
        "agent": _AGENT,
        "signature": "5jUJeYTRjZZyF54EU5JglomZ1YuFu56nqxXuafPArPoIaQHmOXqSxmhPSk58sQH3MSWUpFFucw50Yy3Mo1TvDA==",
        "ttl": 120,
    },
    {
        "agent_id": "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d",
        "capabilities": {},
        "transport": {"type": "ws", "endpoint": "wss://agents.example.org/ws"},
    },
)
