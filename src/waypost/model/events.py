"""An entry of the audit trail as it is kept and shown, and the bytes over which the hash tree is built.

The bytes are canonical JSON (RFC 8785): members sorted, no number but the entry's own, members without a value left out.
So whoever holds an entry can compute its leaf again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost.model.principal import record_scopes


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


# ---- The change log: one event for each change, in the order of one revision counter.

EventType = Literal["registered", "updated", "renewed", "withdrawn", "expired"]

EVENT_TYPES: tuple[EventType, ...] = ("registered", "updated", "renewed", "withdrawn", "expired")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed change. `before` tells who saw the record until then, so that a change of visibility is seen rightly."""

    revision: int
    type: EventType
    id: str
    at: float
    etag: str  # of the content
    owner: str
    visibility: str
    invitees: tuple[str, ...] = ()
    before: tuple[str, ...] | None = None  # scopes before the change; None when it was not there
    shown: str | None = None  # the entity tag as the answer to the write gave it, where it says more than the content's
    shown_before: str | None = None  # the one until then, when the change hides the record from some who saw it
    record: bytes | None = None  # the profile document after the change; a renewal read late may lack it

    @property
    def scopes(self) -> tuple[str, ...]:
        return record_scopes(self.owner, self.visibility, self.invitees)


def etag_for(event: Event, kind: EventType) -> str:
    """The entity tag for one to whom the event is of this kind. Whoever no longer sees a record is given the tag that it
    had for them: a new one would tell a record that is hidden from one that is gone."""
    if kind != event.type and kind == "withdrawn" and event.shown_before is not None:
        return event.shown_before
    return event.shown or event.etag


def event_type_for(event: Event, audience: frozenset[str] | None) -> EventType | None:
    """The event's type for an audience; None when it may not know of it.

    A record that becomes private is `withdrawn` for those who saw it, and one that becomes visible is `registered`.
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
