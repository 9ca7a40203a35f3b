"""Keys in ADP documents: the three spellings of `publicKey.full` (adp.md C-3) and the fingerprint of a key (§0).

Only shapes and digests; whether a key is to be trusted is not asked here.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import find_text, need_object, need_text

ALGORITHM = "ed25519"
FINGERPRINT_CHARS = 512
_FINGERPRINT = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")


def raw_key(full: str) -> bytes | None:
    """The 32 raw bytes in a PEM, in base64url of an SPKI, or in base64url of themselves; None when it is none of these."""
    body = "".join(line.strip() for line in full.splitlines() if "-----" not in line)
    body = body.replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    data = data.removeprefix(_SPKI_PREFIX)
    return data if len(data) == 32 else None


def fingerprint(raw: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=")
    return f"{ALGORITHM}:{digest.decode()}"


def read_public_key(value: Any, path: str) -> JsonObject:
    """ADP-26, leniently (C-4): the members have their types, the algorithm is the one there is."""
    key = need_object(value, path)
    algorithm = need_text(key, "algorithm", path, most=64)
    if algorithm.lower() != ALGORITHM:
        raise InvalidDocument(
            f"{algorithm!r} is not an algorithm of ADP.", path=member(path, "algorithm"), hint=f"Use {ALGORITHM}."
        )
    need_text(key, "fingerprint", path, most=FINGERPRINT_CHARS)
    find_text(key, "full", path, most=8192)
    return key


def doubts(key: JsonObject, path: str) -> Iterator[str]:
    """What a verifier will not accept, told at once to whoever registers the document."""
    told, full = key["fingerprint"], key.get("full")
    if not _FINGERPRINT.match(told):
        yield f"{path}.fingerprint: not ed25519: and 43 base64url digits; nothing can be verified against it."
    if full is None:
        return
    raw = raw_key(full)
    if raw is None:
        yield f"{path}.full: not an Ed25519 key in PEM or base64url."
    elif fingerprint(raw) != told:
        yield f"{path}.fingerprint: not the digest of the key in `full`."
