"""The history of a record: its earlier versions, and the differences between two JSON values.

A list of scalars is compared as a whole, because people read it so; lists of objects are compared item by item.
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
