"""The shapes of what tells of the past: the audit trail, its proofs, and the versions of an agent."""

from __future__ import annotations

from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
_HASH: dict[str, Any] = {"type": "string", "contentEncoding": "base64"}
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
AUDIT_PAGE: dict[str, Any] = {
    "type": "object",
    "required": ["entries", "size", "oldest"],
    "properties": {
        "entries": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["number", "at", "action", "subject"],
                "properties": {
                    "number": {"type": "integer", "minimum": 1},
                    "at": _TIME,
                    **dict.fromkeys(("action", "subject", "object", "outcome", "via"), _TEXT),
                    **dict.fromkeys(("credential", "address", "etag", "detail"), _TEXT),
                },
            },
        },
        "size": _WHOLE,
        "oldest": {"type": "integer", "minimum": 1, "description": "the first entry whose content is kept"},
        "next_after": _WHOLE,
    },
}
AUDIT_CHECKPOINT: dict[str, Any] = {
    "type": "object",
    "required": ["origin", "size", "root", "key", "note"],
    "properties": {
        "origin": _TEXT,
        "size": _WHOLE,
        "root": _HASH,
        "key": {"type": "string", "description": "verifier key of the note"},
        "note": {"type": "string", "description": "the signed checkpoint"},
    },
}
AUDIT_PROOF: dict[str, Any] = {
    "type": "object",
    "required": ["hashes"],
    "properties": {
        "hashes": {"type": "array", "items": _HASH},
        **dict.fromkeys(("entry", "size", "from", "to"), _WHOLE),
        **dict.fromkeys(("leaf", "root", "from_root", "to_root"), _HASH),
    },
}

HISTORY: dict[str, Any] = {
    "type": "object",
    "required": ["id", "versions"],
    "properties": {
        "id": _TEXT,
        "versions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["etag", "at", "current"],
                "properties": {
                    "etag": _TEXT,
                    "at": _TIME,
                    "current": {"type": "boolean"},
                    "changed": {
                        "type": "array",
                        "items": _TEXT,
                        "description": "paths, against the next older version",
                    },
                    "subject": {"type": "string", "description": "who wrote it; told to the owner and to admins"},
                    "digests": {"type": "object", "description": "SHA-256 of the document of each dialect; likewise"},
                },
            },
        },
    },
}
DIFF: dict[str, Any] = {
    "type": "object",
    "required": ["id", "from", "to", "differences", "complete"],
    "properties": {
        "id": _TEXT,
        "from": _TEXT,
        "to": _TEXT,
        "differences": {
            "type": "array",
            "items": {"type": "object", "required": ["path"], "properties": {"path": _TEXT, "before": {}, "after": {}}},
        },
        "complete": {"type": "boolean", "description": "false when there are more places than are named"},
    },
}
