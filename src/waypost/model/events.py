"""The change log: one event for each change, in the order of one revision counter."""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost.model.principal import record_scopes

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


def etag_as_seen(event: Event, kind: EventType) -> str:
    """The entity tag for one to whom the event is of this kind. Whoever no longer sees a record is given the tag that it
    had for them: a new one would tell a record that is hidden from one that is gone."""
    if kind != event.type and kind == "withdrawn" and event.shown_before is not None:
        return event.shown_before
    return event.shown or event.etag


def as_seen_by(event: Event, audience: frozenset[str] | None) -> EventType | None:
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
