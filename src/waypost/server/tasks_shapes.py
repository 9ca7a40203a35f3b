"""The JSON of tasks, swarms and invitations, as JSON Schemas: what the API description shows and tests hold answers against."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.meeting.task import STATUSES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_AGENT_URI: Schema = {"type": "string", "description": "an Agent URI, like agent:alice.example.com"}
_WHOLE: Schema = {"type": "integer"}


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


TASK = _object(
    ["task"],
    task={"type": "string", "minLength": 1, "maxLength": limits.TASK_NAME_CHARS},
    input={},
    callback={"type": "string", "format": "uri", "description": "https; the result is brought there, signed"},
    ttl_seconds={
        "type": "integer",
        "minimum": limits.TASK_TTL_MIN_SECONDS,
        "maximum": limits.TASK_TTL_MAX_SECONDS,
        "default": limits.TASK_TTL_SECONDS,
    },
)
ACCEPTED = _object(["taskId", "status", "statusUrl"], taskId=_TEXT, status={"enum": list(STATUSES)}, statusUrl=_TEXT)
TASK_STATUS = _object(
    ["taskId", "status", "updated"],
    taskId=_TEXT,
    status={"enum": list(STATUSES)},
    updated=_TIME,
    result={},
    error=_object(["code", "message"], code=_TEXT, message=_TEXT),
    task=_TEXT,
    agent=_TEXT,
    expires=_TIME,
    callback=_object(["url", "state"], url=_TEXT, state={"enum": ["pending", "delivered", "failed"]}),
)
TASK_LIST = _object(["tasks"], tasks={"type": "array", "items": TASK_STATUS})
TAKE = _object(
    ["agent"],
    agent=_TEXT,
    limit={"type": "integer", "minimum": 1, "maximum": limits.TASKS_TAKEN, "default": 1},
    lease_seconds={
        "type": "integer",
        "minimum": limits.TASK_LEASE_MIN_SECONDS,
        "maximum": limits.TASK_LEASE_MAX_SECONDS,
        "default": limits.TASK_LEASE_SECONDS,
    },
    wait_seconds={"type": "integer", "minimum": 0, "maximum": limits.TASK_WAIT_SECONDS, "default": 0},
)
WORK = _object(
    ["taskId", "status", "task", "input", "lease"],
    **TASK_STATUS["properties"],
    input={},
    lease=_TEXT,
    leaseUntil=_TIME,
    **{"from": _TEXT},
)
WORK_LIST = _object(["tasks"], tasks={"type": "array", "items": WORK})
REPORT = _object(
    ["lease", "status"],
    lease=_TEXT,
    status={"enum": ["running", "succeeded", "failed", "cancelled"]},
    result={},
    error=_object([], code=_TEXT, message=_TEXT),
    lease_seconds=_WHOLE,
)
WEBHOOK = _object(
    ["taskId", "status"],
    taskId=_TEXT,
    status={"enum": list(STATUSES)},
    result={},
    error=_object([], code=_TEXT, message=_TEXT),
    updated=_TIME,
)
