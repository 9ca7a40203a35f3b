"""Opaque cursors: an encrypted and authenticated position, which reveals nothing and cannot be forged.

AES-SIV is deterministic: the same event has the same cursor each time it is sent, so that readers can drop duplicates.
Where equality itself would reveal something (bookmarks), the caller adds a nonce to the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from waypost import limits
from waypost.errors import InvalidCursor
from waypost.trust.encodings import decode_base64url, encode_base64url

CURSOR_KEY_BYTES = 64
_PAYLOAD_MAX = 4096


def _day(now: float) -> int:
    return int(now // limits.CURSOR_SECONDS)


class CursorCipher:
    """`key` is one key, or a function that returns the current key and those that it replaced: cursors are encrypted with the
    first and decrypted with any of them."""

    def __init__(self, key: bytes | Callable[[], Sequence[bytes]]) -> None:
        self._keys = key if callable(key) else lambda: (key,)
        self._ciphers: dict[bytes, AESSIV] = {}
        self._get_ciphers()

    def _get_ciphers(self) -> list[AESSIV]:
        keys = list(self._keys())
        if keys != list(self._ciphers):
            self._ciphers = {key: self._ciphers.get(key) or AESSIV(key) for key in keys}
        return list(self._ciphers.values())

    def seal(self, purpose: str, payload: bytes, *context: str) -> str:
        """Encrypt the payload. `open` needs the same `context`, so a cursor of one caller or filter is invalid for
        another."""
        sealed = self._get_ciphers()[0].encrypt(payload, [purpose.encode(), *(part.encode() for part in context)])
        return encode_base64url(sealed)

    def seal_page(self, purpose: str, payload: bytes, now: float, *context: str) -> str:
        """Encrypt a position in a list; valid until the end of the next day.

        The day is part of the context, so the same page has the same cursor, and the same entity tag, all day.
        """
        return self.seal(purpose, payload, *context, f"day {_day(now)}")

    def open_page(self, purpose: str, text: str, now: float, *context: str) -> bytes:
        try:
            return self.open(purpose, text, *context, f"day {_day(now)}")
        except InvalidCursor:
            return self.open(purpose, text, *context, f"day {_day(now) - 1}")

    def open(self, purpose: str, text: str, *context: str) -> bytes:
        if not text.isascii() or not 16 <= len(text) <= _PAYLOAD_MAX:
            raise InvalidCursor("This service did not issue this cursor.", path="cursor", hint="Start without one.")
        try:
            sealed = decode_base64url(text)  # a cursor has one spelling only
            for cipher in self._get_ciphers():
                with suppress(InvalidTag):
                    return cipher.decrypt(sealed, [purpose.encode(), *(part.encode() for part in context)])
        except ValueError:
            pass
        raise InvalidCursor(
            "This service did not issue this cursor for this request.", path="cursor", hint="Start without one."
        )
