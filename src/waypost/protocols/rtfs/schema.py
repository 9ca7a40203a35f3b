"""JSON Schema of an agent_card, and the specification's own example of one."""

from __future__ import annotations

from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions

_SCHEMA_REFERENCE: JsonObject = {
    "description": "A reference (text) or a JSON Schema (object).",
    "type": ["string", "object"],
}

_DEFINITIONS: dict[str, JsonObject] = {
    "Card": {
        "description": "What an RTFS agent registers: derived from its agent-profile.",
        "type": "object",
        "required": ["agent_id", "name"],
        "properties": {
            "agent_id": {"type": "string", "minLength": 1, "maxLength": limits.RTFS_ID_CHARS, "pattern": r"^\S+$"},
            "agent_profile_uri": {"type": "string"},
            "name": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS},
            "version": {"type": "string", "maxLength": limits.VERSION_CHARS},
            "description": {"type": "string", "maxLength": limits.DESCRIPTION_CHARS},
            "capabilities": {
                "type": "array",
                "maxItems": limits.RTFS_CAPABILITIES,
                "items": {"$ref": "#/$defs/Capability"},
            },
            "communication": {"$ref": "#/$defs/Communication"},
            "discovery_tags": {
                "type": "array",
                "maxItems": limits.RTFS_TAGS,
                "items": {"type": "string", "minLength": 1, "maxLength": limits.TAG_CHARS},
            },
            "metadata": {"type": "object"},
        },
    },
    "Capability": {
        "type": "object",
        "required": ["capability_id"],
        "properties": {
            "capability_id": {"type": "string", "minLength": 1, "maxLength": limits.RTFS_ID_CHARS},
            "description": {"type": "string"},
            "input_schema_ref": _SCHEMA_REFERENCE,
            "output_schema_ref": _SCHEMA_REFERENCE,
        },
    },
    "Communication": {
        "type": "object",
        "properties": {
            "protocols": {"type": "array", "items": {"type": "string", "minLength": 1}},
            "endpoints": {
                "type": "array",
                "maxItems": limits.RTFS_ENDPOINTS,
                "items": {"$ref": "#/$defs/Endpoint"},
            },
        },
    },
    "Endpoint": {
        "type": "object",
        "required": ["uri", "protocol"],
        "properties": {
            "protocol": {"type": "string", "minLength": 1, "maxLength": limits.TAG_CHARS},
            "uri": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS},
            "details": {"type": "object"},
        },
    },
}
# Only the id is demanded: a name is made up for a card without one, and a protocol is told by the address (P-16, P-18). The
# names of the earlier examples, such as capabilities_summary, are read where today's are missing.
_ACCEPTED = relax_definitions(_DEFINITIONS, {"Card": {"required": ["agent_id"]}, "Endpoint": {"required": ["uri"]}})

SCHEMA: JsonObject = build_schema("RTFS agent_card", ["AcceptedCard"], _DEFINITIONS | _ACCEPTED)
WRITTEN_SCHEMA: JsonObject = build_schema("RTFS agent_card", ["Card"], _DEFINITIONS)

EXAMPLES: tuple[JsonObject, ...] = (
    {
        "agent_id": "unique-agent-identifier-123",
        "agent_profile_uri": "http://agent.example.com/.well-known/rtfs-agent-profile.json",
        "name": "DataProcessorAgent",
        "version": "1.2.1",
        "description": "Processes and analyzes datasets.",
        "capabilities": [
            {
                "capability_id": "csv_processing",
                "description": "Process CSV files",
                "input_schema_ref": "schemas/csv_input.json",
                "output_schema_ref": "schemas/csv_output.json",
            },
            {
                "capability_id": "image_resizing",
                "description": "Resize JPG and PNG images",
                "input_schema_ref": "schemas/image_input.json",
                "output_schema_ref": "schemas/image_output.json",
            },
        ],
        "communication": {
            "protocols": ["http", "grpc"],
            "endpoints": [
                {"protocol": "http", "uri": "http://agent-host:8080/rtfs", "details": {"methods": ["POST"]}},
                {"protocol": "grpc", "uri": "grpc://agent-host:50051"},
            ],
        },
        "discovery_tags": ["data-processing", "images", "version-1.2"],
        "metadata": {"owner": "DataTeam", "last_updated_timestamp": "2023-10-27T10:30:00Z"},
    },
)
