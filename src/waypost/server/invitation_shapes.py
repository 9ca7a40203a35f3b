"""The JSON of invitations, as JSON Schemas."""

from __future__ import annotations

from typing import Any

from waypost import limits

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_WHOLE: Schema = {"type": "integer"}


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


_SHOWN = _object(
    ["protocol", "invite"],
    protocol=_TEXT,
    invite=_object(
        ["code", "agent", "wellKnown", "pubkey", "expires"],
        code=_TEXT,
        agent=_TEXT,
        wellKnown=_TEXT,
        pubkey=_TEXT,
        expires=_TIME,
        signature=_TEXT,
    ),
)
INVITE = _object(
    ["agent"],
    agent=_TEXT,
    uses={"type": "integer", "minimum": 1, "maximum": limits.INVITATION_USES, "default": 1},
    ttl_seconds={
        "type": "integer",
        "minimum": limits.INVITATION_TTL_MIN_SECONDS,
        "maximum": limits.INVITATION_TTL_MAX_SECONDS,
        "default": limits.INVITATION_TTL_SECONDS,
    },
)
INVITATION = _object(
    ["id", "agent", "state", "uses", "used", "expires"],
    id=_TEXT,
    agent=_TEXT,
    record=_TEXT,
    state={"enum": ["open", "used", "expired", "revoked"]},
    uses=_WHOLE,
    used=_WHOLE,
    redeemed_by={"type": "array", "items": _TEXT},
    created=_TIME,
    expires=_TIME,
    by=_TEXT,
    invitation=_SHOWN,
)
INVITATIONS = _object(["invitations"], invitations={"type": "array", "items": INVITATION})
REDEEM: Schema = {
    "type": "object",
    "properties": {"code": _TEXT, "invitation": _SHOWN},
    "anyOf": [{"required": ["code"]}, {"required": ["invitation"]}, _SHOWN],
}
REDEEMED = _object(
    ["agent", "document", "shared"],
    agent=_TEXT,
    id=_TEXT,
    document={"type": "object"},
    fingerprint=_TEXT,
    shared={"type": "boolean", "description": "the caller sees the agent's record from now on"},
    pinned={"type": "boolean", "description": "the key is kept as the agent's"},
)
