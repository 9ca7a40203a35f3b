"""A Discovery Request that asks in words and for nothing special, read in one step: most are like that.

It decides nothing. Whatever is unusual, or might be wrong, is left to the strict reader and to the rules of every request, whose
errors say what and where; what is read here, they would read alike.
"""

from __future__ import annotations

from typing import Final

import msgspec

from waypost import limits
from waypost.model.query import Query

_PLAIN_BYTES: Final = 4 * limits.KIB


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    query: str
    limit: int = limits.DISCOVER_LIMIT_DEFAULT


_decode = msgspec.json.Decoder(_Plain).decode
# The quotes of a request with both members, and of one with the question alone: any more are of a member that comes twice.
_QUOTES: Final = (4, 6)


def find_plain_question(data: bytes) -> Query | None:
    """The question, where it has no other member than a limit, and every byte of it means itself."""
    if len(data) > _PLAIN_BYTES or data.count(b'"') not in _QUOTES or b"\\" in data:
        return None
    try:
        asked = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if len(asked.query) > limits.QUERY_CHARS or not 1 <= asked.limit <= limits.DISCOVER_LIMIT_MAX:
        return None
    return Query(text=asked.query, limit=asked.limit)
