"""The audit trail as a client sees it, and what can be checked of it without trusting the service."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.model.audit import AuditRecord
from waypost.trust.canonical import canonical
from waypost.trust.merkle import leaf_hash


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in the order of their numbers. `next_after` is there when more follow."""

    entries: tuple[AuditRecord, ...]
    size: int
    oldest: int = 1  # the first entry whose content is kept
    next_after: int | None = None
    document: dict[str, Any] = msgspec.field(default_factory=dict)

    def leaves(self) -> dict[int, bytes]:
        """The leaf hash of each entry by its number, from what was sent."""
        return {entry["number"]: leaf_hash(canonical(entry)) for entry in self.document["entries"]}


class LogCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the service says of its trail. Only `note` is signed; `key` is who the service says it is."""

    origin: str
    size: int
    root: bytes
    key: str
    note: str


class LogProof(msgspec.Struct, frozen=True, kw_only=True):
    hashes: tuple[bytes, ...]
    document: dict[str, Any] = msgspec.field(default_factory=dict)


def audit_page_of(document: Mapping[str, Any]) -> AuditPage:
    return msgspec.structs.replace(msgspec.convert(document, AuditPage), document=dict(document))


def checkpoint_of(document: Mapping[str, Any]) -> LogCheckpoint:
    return msgspec.convert(document, LogCheckpoint)


def proof_of(document: Mapping[str, Any]) -> LogProof:
    return LogProof(hashes=tuple(map(base64.b64decode, document["hashes"])), document=dict(document))
