"""Cursors: what the service did not seal does not open, and what it sealed opens for the same request only."""

from __future__ import annotations

import pytest

from waypost.errors import InvalidCursor
from waypost.trust.cursor_cipher import CURSOR_KEY_BYTES, CursorCipher

CIPHER = CursorCipher(bytes(range(CURSOR_KEY_BYTES)))
NOW = 1.7e9


def fuzz(data: bytes) -> None:
    with pytest.raises(InvalidCursor):
        CIPHER.open("page", data.decode("utf-8", "surrogateescape"), "caller")
    payload = data[:2048]
    if not payload:
        return
    cursor = CIPHER.seal_page("page", payload, NOW, "caller")
    assert CIPHER.open_page("page", cursor, NOW + 3600, "caller") == payload
    for purpose, caller, now in (("watch", "caller", NOW), ("page", "other", NOW), ("page", "caller", NOW + 1e6)):
        with pytest.raises(InvalidCursor):
            CIPHER.open_page(purpose, cursor, now, caller)
