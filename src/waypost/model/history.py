"""Where two JSON values differ: places with what stood there before and what stands there after.

A list of plain values is one place, because people read it as a whole; in a list of objects each differing object is looked
into by its position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from waypost.model.events import EventType
from waypost.model.record import record_bytes
from waypost.model.registration import Registration

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_MISSING = msgspec.UNSET


class JsonDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A side that has no such place is left out; null is a value."""

    path: str  # JSON path
    before: Any = _MISSING
    after: Any = _MISSING


def differences_between(before: Any, after: Any, most: int) -> list[JsonDifference]:
    """The first `most` places that differ, in the order of names and positions."""
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
    """JSON tells true from 1, Python does not."""
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


# ---- Earlier contents of an agent: what an update replaced, and under which scopes it was seen while it was current.


class RecordVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One content. A renewal makes none: the content stays."""

    revision: int
    at: float  # since when the content was this
    etag: str  # its hash
    subject: str  # who wrote it
    scopes: tuple[str, ...]  # who saw it; whoever did not then, does not now
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
    """What a change puts into the history; None when the content stays. A renewal may bring newer signed words for it."""
    return None if before is None or kind == "renewed" or before.etag == after.etag else record_version_of(before)
