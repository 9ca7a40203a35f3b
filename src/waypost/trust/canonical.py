"""The bytes that a signature over JSON covers: RFC 8785, and the older form that some announcers still sign.

The value comes from `model/json.py`, which has refused what two readers could read differently; what it cannot have
refused (a value built by hand) is refused here. No text is normalised: NFC and NFD are two texts.
"""

from __future__ import annotations

import json
from typing import Any

import rfc8785

from waypost.errors import InvalidDocument

JCS = "jcs"
LEGACY = "legacy"
_HINT = "Leave the member out, or write it as a text."


def canonical(value: Any) -> bytes:
    """RFC 8785: one sequence of bytes for each JSON value."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InvalidDocument(f"This has no canonical form: {error}.", path="$", hint=_HINT) from None
    except RecursionError:
        raise InvalidDocument("This is nested too deeply to be signed.", path="$", hint="Make it flatter.") from None


def legacy_canonical(value: Any) -> bytes:
    """What `json.dumps` with sorted names writes (announce.md §12, P-35): read only, never signed.

    It tells `1.0` from `1`, as the value does: our reader keeps an integer an integer and a fraction a fraction.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise InvalidDocument("This has no canonical form.", path="$", hint=_HINT) from None
    return text.encode("ascii")
