"""Older names of members, brought to today's. It knows names only; what they hold is for the reader of the dialect."""

from __future__ import annotations

from collections.abc import Mapping

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member


def respelled(value: JsonObject, today: Mapping[str, str], path: str) -> JsonObject:
    """The object under today's names. A member under two names is refused: readers would not agree on which one holds."""
    renamed: JsonObject = {}
    for name, item in value.items():
        present = today.get(name, name)
        if present in renamed:
            raise InvalidDocument(
                f"{present!r} is given under two names.",
                path=member(path, name),
                hint=f"Keep {present!r} and leave the other out.",
            )
        renamed[present] = item
    return renamed
