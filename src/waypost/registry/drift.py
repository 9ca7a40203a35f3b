"""What of a verified agent may not change unseen: where it is reached, its key, how callers authenticate.

Pure. `differences` compares two versions; `HeldChange` is the note of a change that waits for its owner (`held:<id>`). Text
is free to change: it steers nobody to another place. Who may confirm, and when, is decided by `decisions`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject, parse_json
from waypost.model.record import AgentRecord
from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict
from waypost.trust.encodings import decode_base64url

Part = Literal["endpoint", "key", "auth"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    part: Part
    before: Any = None
    after: Any = None


class HeldChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document that waits, with all that was said about it, and what it would change."""

    etag: str  # of the content that it would make
    base: str  # the etag of the content that it was held against
    at: float
    expires_at: float
    subject: str
    dialect: str
    document: bytes
    via: str
    differences: tuple[Difference, ...]
    visibility: str | None = None
    ttl_seconds: int | None = None
    source_url: str | None = None
    verdicts: tuple[Verdict, ...] = ()

    def is_over(self, now: float) -> bool:
        return now >= self.expires_at


def held_name(agent_id: str) -> str:
    """The name of the note that keeps it."""
    return f"held:{agent_id}"


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(HeldChange)


def dump_held(change: HeldChange) -> bytes:
    return _encode(change)


def load_held(data: bytes | None) -> HeldChange | None:
    return None if data is None else _decoder.decode(data)


def differences(
    before: AgentRecord, after: AgentRecord, *, key_before: str | None, key_after: str | None
) -> tuple[Difference, ...]:
    """The guarded parts that differ. Keys are those of the documents of one dialect, before and after."""
    found: list[Difference] = []
    was, is_now = _endpoints(before), _endpoints(after)
    if set(was) != set(is_now):
        found.append(Difference(part="endpoint", before=was, after=is_now))
    if key_before != key_after:
        found.append(Difference(part="key", before=key_before, after=key_after))
    if before.auth != after.auth:
        found.append(Difference(part="auth", before=before.auth, after=after.auth))
    return tuple(found)


def _endpoints(record: AgentRecord) -> list[str]:
    return list(dict.fromkeys(f"{binding.protocol} {binding.endpoint}" for binding in record.bindings))


def key_of(record: AgentRecord) -> str | None:
    """The name of the key that a document is signed with or brings along; never the signature, which is always another."""
    signature = record.signature
    if not isinstance(signature, dict):
        return None
    for name in ("key_id", "fingerprint", "kid", "keyId", "public_key", "publicKey", "jwk"):
        told = signature.get(name)
        if told is not None:
            return told if isinstance(told, str) else repr(told)[: limits.ID_CHARS]
    return _kid(signature.get("protected"), signature.get("header")) or "unnamed"


def _kid(protected: Any, header: Any) -> str | None:
    for part in (_decoded(protected), header):
        if isinstance(part, dict) and isinstance(part.get("kid"), str):
            return str(part["kid"])
    return None


def _decoded(protected: Any) -> Any:
    try:
        return parse_json(decode_base64url(protected)) if isinstance(protected, str) else None
    except (ValueError, WaypostError):
        return None


def held_json(change: HeldChange) -> JsonObject:
    """What waits, as every answer shows it."""
    return {
        "etag": change.etag,
        "base": change.base,
        "changes": [{"part": each.part, "before": each.before, "after": each.after} for each in change.differences],
        "dialect": change.dialect,
        "subject": change.subject,
        "at": to_rfc3339(change.at),
        "expires_at": to_rfc3339(change.expires_at),
    }
