"""Earlier versions of an agent, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.model.difference import Difference


class HistoryVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One content. `changed` are paths against the next older one; `subject` is told to the owner and to admins."""

    etag: str
    at: str
    current: bool = False
    changed: tuple[str, ...] | None = None
    subject: str | None = None
    digests: dict[str, str] = msgspec.field(default_factory=dict)


class History(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    versions: tuple[HistoryVersion, ...]
    document: dict[str, Any] = msgspec.field(default_factory=dict)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `after` of a difference are UNSET where that side has no such place."""

    id: str
    from_: str = msgspec.field(name="from")
    to: str
    differences: tuple[Difference, ...]
    complete: bool = True
    document: dict[str, Any] = msgspec.field(default_factory=dict)


def history_of(document: Mapping[str, Any]) -> History:
    return msgspec.structs.replace(msgspec.convert(document, History), document=dict(document))


def comparison_of(document: Mapping[str, Any]) -> Comparison:
    return msgspec.structs.replace(msgspec.convert(document, Comparison), document=dict(document))
