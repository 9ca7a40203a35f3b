"""Times: float Unix seconds internally, RFC 3339 in UTC in documents."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from waypost.errors import InvalidDocument

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z")


def to_rfc3339(instant: float) -> str:
    """Format as whole seconds with `Z`."""
    return _rfc3339(int(instant))


def rfc3339_or_none(instant: float | None) -> str | None:
    """`to_rfc3339` for a time that may be unknown."""
    return None if instant is None else to_rfc3339(instant)


@lru_cache(maxsize=4096)  # responses repeat the same few times
def _rfc3339(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}Z"


def to_rfc3339_millis(instant: float) -> str:
    second = int(instant)
    return f"{_rfc3339(second)[:-1]}.{int((instant - second) * 1000):03d}Z"


def parse_rfc3339(text: str, path: str = "$") -> float:
    """Parse a time; one without a zone is an error, because it is ambiguous on another host."""
    if not isinstance(text, str) or not _RFC3339.match(text):
        raise InvalidDocument(
            f"{str(text)[:40]!r} is not an RFC 3339 time.",
            path=path,
            hint="Write it like 2026-05-08T00:00:00Z.",
        )
    try:
        moment = datetime.fromisoformat(text.upper().replace(" ", "T")).astimezone(UTC)
    except (ValueError, OverflowError):  # in UTC, it may be before the year 1 or after 9999
        raise InvalidDocument(
            f"{text!r} is not a valid date.", path=path, hint="Check the month, the day and the hour."
        ) from None
    return moment.timestamp()


def find_instant(text: str | None) -> float | None:
    """Parse a time; None if it is absent or invalid. For times that are informative only."""
    return _instant(text) if isinstance(text, str) else None


@lru_cache(maxsize=4096)  # one registration parses the same times repeatedly
def _instant(text: str) -> float | None:
    try:
        return parse_rfc3339(text)
    except InvalidDocument:
        return None
