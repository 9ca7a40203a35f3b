"""The cursors of a registry: opaque positions, encrypted with a key that is stored with the data."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from waypost.errors import InvalidCursor, Unavailable
from waypost.registry.ports import Clock, Store
from waypost.trust.cursor_cipher import CURSOR_KEY_BYTES, CursorCipher

_KEY_NAME = "cursor"


class Cursors:
    """The key is stored, so that a cursor is valid after a restart and in every process of a service."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cipher: CursorCipher | None = None

    async def load(self) -> None:
        """Read the key from the open store, or make it."""
        self._cipher = CursorCipher(await self._store.secret(_KEY_NAME, lambda: secrets.token_bytes(CURSOR_KEY_BYTES)))

    def seal(self, purpose: str, payload: bytes) -> str:
        """A cursor without an end of validity. The same payload gives the same cursor."""
        return self._get_cipher().seal(purpose, payload)

    def open(self, purpose: str, cursor: str) -> bytes:
        return self._get_cipher().open(purpose, cursor)

    def seal_page(self, purpose: str, position: Any, *context: str) -> str:
        """A position in a list, valid for a day or two, and only with the same context."""
        return self._get_cipher().seal_page(purpose, msgspec.msgpack.encode(position), self._clock.now(), *context)

    def open_page(self, purpose: str, cursor: str, kind: Any, *context: str) -> Any:
        """The position of type `kind` in a cursor of `seal_page`."""
        payload = self._get_cipher().open_page(purpose, cursor, self._clock.now(), *context)
        try:
            return msgspec.msgpack.decode(payload, type=kind)
        except msgspec.DecodeError:  # an earlier release wrote the position in another form
            raise InvalidCursor(
                "This cursor was issued by an earlier version of the service.", path="cursor", hint="Start without one."
            ) from None

    def _get_cipher(self) -> CursorCipher:
        if self._cipher is None:
            raise Unavailable("The registry is starting.", retry_after=1)
        return self._cipher
