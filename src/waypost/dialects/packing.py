"""Documents that hold documents: an array, a catalogue, a page of a list. Knows how they are packed, not what they say."""

from __future__ import annotations

import msgspec

# The member that holds the documents, and the members one of which stands beside it.
_PACKED = (
    ("entries", ("specVersion",)),  # an AI catalogue (ARD-1)
    ("servers", ("metadata",)),  # a page of an MCP registry
    ("agents", ("next_cursor", "total")),  # our own lists, and those of Agent Framework
)


def unpack(content: bytes) -> list[bytes] | None:
    """The documents inside, byte for byte; None for a single document. Raises msgspec.DecodeError for what is no JSON."""
    try:
        return _items(content)
    except msgspec.ValidationError:
        pass
    try:
        members = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return None
    for member, marks in _PACKED:
        if member in members and (len(members) == 1 or any(mark in members for mark in marks)):
            try:
                return _items(bytes(members[member]))
            except msgspec.ValidationError:
                return None
    return None


def _items(content: bytes) -> list[bytes]:
    return [bytes(item) for item in msgspec.json.decode(content, type=list[msgspec.Raw])]
