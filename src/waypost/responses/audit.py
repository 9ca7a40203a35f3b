"""Responses about the audit trail, and what a client can verify of it without trusting the service."""

from __future__ import annotations

from typing import Annotated

import msgspec

from waypost.model.events import AuditRecord
from waypost.responses.base import Answer, Count, described


class AuditTrailPage(Answer, frozen=True, kw_only=True):
    """Entries of the audit trail by number."""

    entries: tuple[AuditRecord, ...]
    size: Count
    oldest: Annotated[int, msgspec.Meta(ge=1, description="the first entry whose content is kept")]
    next_after: Annotated[int, msgspec.Meta(ge=0, description="`after` of the next page")] | None = None


class LogCheckpoint(Answer, frozen=True, kw_only=True):
    """Size and root of the audit trail. Only `note` is signed."""

    origin: str
    size: Count
    root: bytes
    key: Annotated[str, described("verifier key of the note")]
    note: Annotated[str, described("the signed checkpoint")]


class LogProof(Answer, frozen=True, kw_only=True):
    """The hashes of an inclusion proof (`entry`, `size`, `leaf`, `root`) or a consistency proof (the others)."""

    hashes: tuple[bytes, ...]
    entry: Count | None = None
    size: Count | None = None
    leaf: bytes | None = None
    root: bytes | None = None
    from_: Count | None = msgspec.field(name="from", default=None)
    to: Count | None = None
    from_root: bytes | None = None
    to_root: bytes | None = None
