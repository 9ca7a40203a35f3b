"""Events of the change log, in the order of one revision counter, and entries of the audit trail.

The hash tree of the audit trail is built over canonical JSON (RFC 8785) of its entries: members sorted, empty ones left
out, no number except the entry's own. So anyone with an entry can compute its leaf.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost.model.principal import record_scopes


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry. Numbers start at 1; entry n has the leaf index n - 1. Members are declared in canonical order."""

    action: str
    address: str = ""
    at: str  # RFC 3339
    credential: str = ""
    detail: str = ""
    etag: str = ""  # of the content after the action
    number: int
    object: str = ""  # the agent, key, rule or domain
    outcome: str = ""
    subject: str  # empty: the service itself
    via: str = ""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AuditRecord)


def leaf_bytes(record: AuditRecord) -> bytes:
    return _encode(record)


def read_leaf(leaf: bytes) -> AuditRecord:
    """Parse a leaf; raises msgspec.MsgspecError."""
    return _decoder.decode(leaf)


# --- The change log -------------------------------------------------------------------------------

EventType = Literal["registered", "updated", "renewed", "withdrawn", "expired"]
EVENT_TYPES: tuple[EventType, ...] = ("registered", "updated", "renewed", "withdrawn", "expired")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed change. `before` holds the earlier scopes, so that a change of visibility is reported correctly."""

    revision: int
    type: EventType
    id: str
    at: float
    etag: str  # of the content
    owner: str
    visibility: str
    invitees: tuple[str, ...] = ()
    before: tuple[str, ...] | None = None  # scopes before the change; None for a new record
    shown: str | None = None  # entity tag in the response to the write, if it differs from the content's
    shown_before: str | None = None  # the previous one, if the change hides the record from some callers
    record: bytes | None = None  # the profile document after the change; may be missing for a renewal

    @property
    def scopes(self) -> tuple[str, ...]:
        return record_scopes(self.owner, self.visibility, self.invitees)


def etag_for(event: Event, kind: EventType) -> str:
    """Return the entity tag for a caller to whom the event is of this type. A caller that can no longer see the record
    gets its previous tag: a new one would distinguish a hidden record from a removed one."""
    if kind != event.type and kind == "withdrawn" and event.shown_before is not None:
        return event.shown_before
    return event.shown or event.etag


def event_type_for(event: Event, audience: frozenset[str] | None) -> EventType | None:
    """Return the event's type for an audience; None if the event is not visible to it.

    A record that becomes private is `withdrawn` for those who could see it, and one that becomes visible is
    `registered`.
    """
    if audience is None:
        return event.type
    sees_now = not audience.isdisjoint(event.scopes)
    if event.type in ("withdrawn", "expired"):
        return event.type if sees_now else None
    saw_before = event.before is not None and not audience.isdisjoint(event.before)
    if sees_now:
        return event.type if saw_before or event.before is None else "registered"
    return "withdrawn" if saw_before else None
