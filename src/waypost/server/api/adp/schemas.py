"""Parts of the JSON schemas of request bodies that the paths below `/agent` and `/api/v1/invitations` share."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
AGENT_URI: Schema = {"type": "string", "description": "an Agent URI, like agent:alice.example.com"}


def object_schema(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}
