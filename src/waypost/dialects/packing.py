"""Documents that hold documents: an array, a catalogue, a page of a list. Knows how they are packed, not what they say."""

from __future__ import annotations

from typing import Any

# The member that holds the documents, and the members one of which stands beside it.
_PACKED = (
    ("entries", ("specVersion",)),  # an AI catalogue (ARD-1)
    ("servers", ("metadata",)),  # a page of an MCP registry
    ("agents", ("next_cursor", "total")),  # our own lists, and those of Agent Framework
)


def find_packed(value: Any) -> list[Any] | None:
    """The documents inside; None for a single document."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        for member, marks in _PACKED:
            if isinstance(value.get(member), list) and (len(value) == 1 or any(mark in value for mark in marks)):
                return list(value[member])
    return None
