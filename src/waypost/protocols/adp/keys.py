"""Ed25519 keys in ADP: their fingerprint (adp.md §0) and the spellings in which they occur (C-3). Nothing is verified
here."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

FINGERPRINT: Final = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")

_ARMOUR: Final = re.compile(r"-----[^-\n]+-----")
_SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: before the 32 bytes


def find_raw_key(text: str) -> bytes | None:
    """Return the 32 raw bytes of a key in PEM, or in base64 of its SPKI or of the bytes themselves; None for other
    texts."""
    body = "".join(_ARMOUR.sub("", text).split()).replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    data = data.removeprefix(_SPKI_PREFIX)
    return data if len(data) == 32 else None


def key_fingerprint(raw: bytes) -> str:
    return "ed25519:" + base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
