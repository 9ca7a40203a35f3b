"""The version of an announce message: `v1.0`, `v1.1` (announce.md §8). Major 1 is spoken here, whatever its minor."""

from __future__ import annotations

import re
from typing import Any

from waypost.errors import InvalidDocument, UnsupportedVersion

SUPPORTED = ("v1.1", "v1.0")
MINOR_MAX = 1  # the highest that is known; a higher one is read as this one
_VERSION = re.compile(r"v(\d{1,6})\.(\d{1,6})\Z", re.ASCII)


def parse_minor(value: Any, path: str = "$.protocol_version") -> int:
    """The minor of a version of major 1. Anything else is malformed, or (a higher major) not spoken here (ANN-50)."""
    found = _VERSION.match(value) if isinstance(value, str) else None
    if found is None or int(found[1]) == 0:
        raise InvalidDocument(f"{str(value)[:16]!r} is not a protocol version.", path=path, hint="Write it like v1.0.")
    if int(found[1]) != 1:
        raise UnsupportedVersion(
            f"{value[:16]} is not spoken here.",
            path=path,
            hint=f"This service speaks {' and '.join(reversed(SUPPORTED))}.",
            details={"supported": list(SUPPORTED)},
        )
    return int(found[2])


def spoken(minor: int) -> str:
    """The version to answer with: the highest minor that the other side has shown and we know."""
    return f"v1.{min(minor, MINOR_MAX)}"
