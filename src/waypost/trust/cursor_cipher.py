"""Opaque cursors: a position sealed so that it tells nothing and cannot be made up.

AES-SIV is deterministic: the same event has the same cursor each time it is sent, so that readers can drop repeats. Where
equality itself would tell something (bookmarks), the caller adds a nonce to the payload.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from waypost import limits
from waypost.errors import InvalidCursor
from waypost.trust.encodings import decode_base64url, encode_base64url

CURSOR_KEY_BYTES = 64
_PAYLOAD_MAX = 4096


def new_cursor_key(random: bytes) -> bytes:
    """A key from 64 random bytes (randomness is an argument here)."""
    if len(random) != CURSOR_KEY_BYTES:
        raise ValueError(f"a seal key has {CURSOR_KEY_BYTES} bytes")
    return random


def _day(now: float) -> int:
    return int(now // limits.CURSOR_SECONDS)


class CursorCipher:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(key)

    def seal(self, purpose: str, payload: bytes, *context: str) -> str:
        """`context` must be given again to open: a cursor of one caller or filter does not fit another."""
        sealed = self._cipher.encrypt(payload, [purpose.encode(), *(part.encode() for part in context)])
        return encode_base64url(sealed)

    def seal_page(self, purpose: str, payload: bytes, now: float, *context: str) -> str:
        """A place in a list, for a day or two. The day is part of the seal, so that the same page has the same cursor (and
        the same entity tag) all day."""
        return self.seal(purpose, payload, *context, f"day {_day(now)}")

    def open_page(self, purpose: str, text: str, now: float, *context: str) -> bytes:
        try:
            return self.open(purpose, text, *context, f"day {_day(now)}")
        except InvalidCursor:
            return self.open(purpose, text, *context, f"day {_day(now) - 1}")

    def open(self, purpose: str, text: str, *context: str) -> bytes:
        if not text.isascii() or not 16 <= len(text) <= _PAYLOAD_MAX:
            raise InvalidCursor("This cursor was not given by this service.", path="cursor", hint="Start without one.")
        try:
            sealed = decode_base64url(text)  # one cursor is written in one way only
            return self._cipher.decrypt(sealed, [purpose.encode(), *(part.encode() for part in context)])
        except (InvalidTag, ValueError):
            raise InvalidCursor(
                "This cursor was not given by this service for this request.", path="cursor", hint="Start without one."
            ) from None
