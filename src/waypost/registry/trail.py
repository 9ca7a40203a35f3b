"""What stands in the audit trail: each entry with its number, as the bytes over which the hash tree is built.

The bytes are canonical JSON (RFC 8785): members sorted, no number but the entry's own, members without a value left out.
So whoever holds an entry can compute its leaf again.
"""

from __future__ import annotations

import msgspec

from waypost.model.times import to_rfc3339_millis
from waypost.registry.ports import AuditEntry


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it is kept and shown. Numbers begin with 1; the leaf of entry n has the index n - 1."""

    number: int
    at: str
    action: str
    subject: str
    object: str = ""
    outcome: str = ""
    via: str = ""
    credential: str = ""
    address: str = ""
    etag: str = ""
    detail: str = ""


_encode = msgspec.json.Encoder(order="sorted").encode
_decoder = msgspec.json.Decoder(AuditRecord)


def leaf_of(entry: AuditEntry, number: int) -> bytes:
    return _encode(
        AuditRecord(
            number=number,
            at=to_rfc3339_millis(entry.at),
            action=entry.action,
            subject=entry.subject,
            object=entry.object,
            outcome=entry.outcome,
            via=entry.via,
            credential=entry.credential,
            address=entry.address,
            etag=entry.etag,
            detail=entry.detail,
        )
    )


def read_leaf(leaf: bytes) -> AuditRecord:
    """Raises msgspec.MsgspecError for bytes that are no entry."""
    return _decoder.decode(leaf)
