"""JSON Schema of an agent_card, and the specification's own example of one."""

from __future__ import annotations

from waypost import limits
from waypost.model.json import JsonObject

_SCHEMA_REFERENCE: JsonObject = {
    "description": "A reference (text) or a JSON Schema (object).",
    "type": ["string", "object", "null"],
}

SCHEMA: JsonObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "RTFS agent_card",
    "description": "What an RTFS agent registers: derived from its agent-profile.",
    "type": "object",
    "required": ["agent_id"],
    "properties": {
        "agent_id": {"type": "string", "minLength": 1, "maxLength": limits.RTFS_ID_CHARS, "pattern": r"^\S+$"},
        "agent_profile_uri": {"type": ["string", "null"]},
        "name": {"type": ["string", "null"], "maxLength": limits.NAME_CHARS},
        "version": {"type": ["string", "null"], "maxLength": limits.VERSION_CHARS},
        "description": {"type": ["string", "null"], "maxLength": limits.DESCRIPTION_CHARS},
        "capabilities": {
            "type": ["array", "null"],
            "maxItems": limits.RTFS_CAPABILITIES,
            "items": {
                "type": "object",
                "required": ["capability_id"],
                "properties": {
                    "capability_id": {"type": "string", "minLength": 1, "maxLength": limits.RTFS_ID_CHARS},
                    "description": {"type": ["string", "null"]},
                    "input_schema_ref": _SCHEMA_REFERENCE,
                    "output_schema_ref": _SCHEMA_REFERENCE,
                },
            },
        },
        "communication": {
            "type": ["object", "null"],
            "properties": {
                "protocols": {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}},
                "endpoints": {
                    "type": ["array", "null"],
                    "maxItems": limits.RTFS_ENDPOINTS,
                    "items": {
                        "type": "object",
                        "required": ["uri"],
                        "properties": {
                            "protocol": {"type": ["string", "null"], "minLength": 1, "maxLength": limits.TAG_CHARS},
                            "uri": {"type": "string", "minLength": 1, "maxLength": limits.ENDPOINT_CHARS},
                            "details": {"type": ["object", "null"]},
                        },
                    },
                },
            },
        },
        "discovery_tags": {
            "type": ["array", "null"],
            "maxItems": limits.RTFS_TAGS,
            "items": {"type": "string", "minLength": 1, "maxLength": limits.TAG_CHARS},
        },
        "metadata": {"type": ["object", "null"]},
    },
}

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
