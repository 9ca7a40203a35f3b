"""An entry of the audit trail as it is kept and shown, and the bytes over which the hash tree is built.

The bytes are canonical JSON (RFC 8785): members sorted, no number but the entry's own, members without a value left out.
So whoever holds an entry can compute its leaf again.
"""

from __future__ import annotations

import msgspec


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what. Numbers begin with 1; the leaf of entry n has the index n - 1. Members stand in the order of the bytes."""

    action: str
    address: str = ""
    at: str  # RFC 3339
    credential: str = ""
    detail: str = ""
    etag: str = ""  # of the content after it
    number: int
    object: str = ""  # the agent, key, rule or domain that it was done to
    outcome: str = ""
    subject: str  # empty: the service itself
    via: str = ""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AuditRecord)


def leaf_bytes(record: AuditRecord) -> bytes:
    return _encode(record)


def read_leaf(leaf: bytes) -> AuditRecord:
    """Raises msgspec.MsgspecError for bytes that are no entry."""
    return _decoder.decode(leaf)
