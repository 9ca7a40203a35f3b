"""The JSON of swarms, as JSON Schemas."""

from __future__ import annotations

from typing import Any

from waypost import limits

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_URI: Schema = {"type": "string", "description": "an Agent URI, like agent:alice.example.com"}
_ROLE: Schema = {"type": "string", "maxLength": limits.SWARM_ROLE_CHARS, "default": "participant"}


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


_MEMBER = _object(["agent", "role", "joined"], agent=_URI, role=_TEXT, joined=_TIME)
_MEMBERS: Schema = {"type": "array", "items": _MEMBER}
JOIN = _object(
    ["agent", "task"],
    agent=_URI,
    task={"type": "string", "maxLength": limits.TASK_NAME_CHARS},
    role=_ROLE,
    callback={"type": "string", "format": "uri", "description": "https; what is told to all is brought there, signed"},
)
JOINED = _object(["swarmId", "agent", "role", "members"], swarmId=_TEXT, agent=_URI, role=_TEXT, members=_MEMBERS)
LEAVE = _object(["agent"], agent=_URI)
SWARM = _object(
    ["swarmId", "host", "task", "members"],
    swarmId=_TEXT,
    host=_TEXT,
    task=_TEXT,
    created=_TIME,
    messages={"type": "integer"},
    members=_MEMBERS,
)
SWARMS = _object(["swarms"], swarms={"type": "array", "items": SWARM})
BROADCAST = _object(
    ["agent", "content"],
    agent=_URI,
    content={"type": "string", "description": f"at most {limits.SWARM_MESSAGE_BYTES} bytes"},
    contentType=_TEXT,
)
MESSAGE = _object(
    ["swarmId", "messageId", "number", "from", "content"],
    swarmId=_TEXT,
    messageId=_TEXT,
    number={"type": "integer"},
    task=_TEXT,
    content=_TEXT,
    contentType=_TEXT,
    at=_TIME,
    **{"from": _URI},
)
MESSAGES = _object(["messages"], messages={"type": "array", "items": MESSAGE})
