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

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MISSING = msgspec.UNSET


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A side that has no such place is left out; null is a value."""

    path: str  # JSON path
    before: Any = _MISSING
    after: Any = _MISSING


def differences_between(before: Any, after: Any, most: int) -> list[Difference]:
    """The first `most` places that differ, in the order of names and positions."""
    return list(islice(_walk(before, after, "$"), most))


def _walk(before: Any, after: Any, path: str) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _walk(before.get(name, _MISSING), after.get(name, _MISSING), path + _step(name))
    elif _holds_objects(before) and _holds_objects(after):
        for index in range(max(len(before), len(after))):
            yield from _walk(_item(before, index), _item(after, index), f"{path}[{index}]")
    elif not _same(before, after):
        yield Difference(path=path, before=before, after=after)


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
