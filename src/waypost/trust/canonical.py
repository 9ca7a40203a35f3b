"""The bytes that a signature over JSON covers: RFC 8785, and the older form that some announcers still sign.

The value comes from `model/json.py`, which has refused what two readers could read differently; what it cannot have
refused (a value built by hand) is refused here. No text is normalised: NFC and NFD are two texts.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import rfc8785

from waypost import limits
from waypost.errors import InvalidDocument

JCS = "jcs"
LEGACY = "legacy"
_sorted = msgspec.json.Encoder(order="sorted")  # ten times as fast, and the same for what is plain
_FRACTION = re.compile(rb"(?:\A|[:,\[])-?[0-9]+[.eE]")  # each one that is a value; also some words inside texts
_HINT = "Leave the member out, or write it as a text."


def canonical(value: Any) -> bytes:
    """RFC 8785: one sequence of bytes for each JSON value."""
    try:
        return _sorted.encode(value) if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InvalidDocument(f"This has no canonical form: {error}.", path="$", hint=_HINT) from None
    except RecursionError:
        raise InvalidDocument("This is nested too deeply to be signed.", path="$", hint="Make it flatter.") from None


def canonical_read(value: Any) -> bytes:
    """The same for a value that `model/json.py` has just read, or a part of one: nothing in it needs refusing any more, so
    that its text tells whether sorting is all there is to do."""
    data = _sorted.encode(value)
    return canonical(value) if _FRACTION.search(data) or not data.isascii() else data


def _is_plain(value: Any) -> bool:
    """Whether sorting is all there is to do: no fraction, whose text is an art, and no name that UTF-16 sorts otherwise."""
    kind = type(value)
    if kind is dict:
        return all(type(name) is str and name.isascii() and _is_plain(item) for name, item in value.items())
    if kind is list:
        return all(_is_plain(item) for item in value)
    if isinstance(value, int):
        return kind is bool or abs(value) <= limits.JSON_INTEGER_MAX
    return kind is str or value is None


def legacy_canonical(value: Any) -> bytes:
    """What `json.dumps` with sorted names writes (announce.md §12, P-35): read only, never signed.

    It tells `1.0` from `1`, as the value does: our reader keeps an integer an integer and a fraction a fraction.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise InvalidDocument("This has no canonical form.", path="$", hint=_HINT) from None
    return text.encode("ascii")
