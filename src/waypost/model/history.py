"""Earlier contents of an agent: what an update replaced, and under which scopes it was seen while it was current."""

from __future__ import annotations

import msgspec

from waypost.model.events import EventType
from waypost.model.record import record_bytes
from waypost.model.registration import Registration


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One content. A renewal makes none: the content stays."""

    revision: int
    at: float  # since when the content was this
    etag: str  # its hash
    subject: str  # who wrote it
    scopes: tuple[str, ...]  # who saw it; whoever did not then, does not now
    digests: dict[str, str]  # SHA-256 of the document of each dialect
    record: bytes  # as a profile document


def version_of(registration: Registration) -> Version:
    return Version(
        revision=registration.revision,
        at=registration.changed_at,
        etag=registration.etag,
        subject=registration.sources[0].subject if registration.sources else registration.owner,
        scopes=registration.scopes,
        digests={source.dialect: source.digest for source in registration.sources},
        record=record_bytes(registration.record),
    )


def replaced_version(before: Registration | None, after: Registration, kind: EventType) -> Version | None:
    """What a change puts into the history; None when the content stays. A renewal may bring newer signed words for it."""
    return None if before is None or kind == "renewed" or before.etag == after.etag else version_of(before)
