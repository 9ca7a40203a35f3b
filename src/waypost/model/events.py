"""Events of the change log, in the order of one revision counter; entries of the audit trail; the history of a record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

import msgspec

from waypost.model.principal import record_scopes
from waypost.model.record import record_bytes
from waypost.model.registration import Registration


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


# The history of a record: its earlier versions, and the differences between two JSON values.

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_MISSING = msgspec.UNSET


class JsonDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A side without the member is left out; null is a value."""

    path: str  # JSON path
    before: Any = _MISSING
    after: Any = _MISSING


def differences_between(before: Any, after: Any, most: int) -> list[JsonDifference]:
    """Return the first `most` differences, in the order of names and positions."""
    return list(islice(_walk(before, after, "$"), most))


def _walk(before: Any, after: Any, path: str) -> Iterator[JsonDifference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _walk(before.get(name, _MISSING), after.get(name, _MISSING), path + _step(name))
    elif _holds_objects(before) and _holds_objects(after):
        for index in range(max(len(before), len(after))):
            yield from _walk(_item(before, index), _item(after, index), f"{path}[{index}]")
    elif not _same(before, after):
        yield JsonDifference(path=path, before=before, after=after)


def _same(before: Any, after: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _item(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _MISSING


def _step(name: str) -> str:
    if _PLAIN_NAME.match(name):
        return f".{name}"
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


class RecordVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the content. A renewal makes none."""

    revision: int
    at: float  # when this version became current
    etag: str  # content hash
    subject: str  # the writer
    scopes: tuple[str, ...]  # while it was current: only callers that could see it then can see it now
    digests: dict[str, str]  # SHA-256 of the document of each dialect
    record: bytes  # as a profile document


def record_version_of(registration: Registration) -> RecordVersion:
    return RecordVersion(
        revision=registration.revision,
        at=registration.changed_at,
        etag=registration.etag,
        subject=registration.sources[0].subject if registration.sources else registration.owner,
        scopes=registration.scopes,
        digests={source.dialect: source.digest for source in registration.sources},
        record=record_bytes(registration.record),
    )


def replaced_version(before: Registration | None, after: Registration, kind: EventType) -> RecordVersion | None:
    """Return the version that a change adds to the history; None if the content is the same, or for a renewal."""
    return None if before is None or kind == "renewed" or before.etag == after.etag else record_version_of(before)
