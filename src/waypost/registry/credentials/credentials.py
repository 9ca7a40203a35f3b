"""What decides whether a credential is still valid: revocations and API keys, current in every process.

The process that writes counts their changes in a counter that all processes share. Another process compares it before each
request and reads the store again if it moved, so that a revocation acknowledged by one process holds in every other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from waypost.registry.credentials.api_keys import API_KEY_NOTES, ApiKeyStore
from waypost.registry.trust_store import REVOCATION_NOTES, RegistryTrustStore


class SharedCounter(msgspec.Struct, frozen=True, kw_only=True):
    """A number that the process that writes increments and all others read."""

    read: Callable[[], int]
    increment: Callable[[], None]


def local_counter() -> SharedCounter:
    """For a registry that no other process follows."""
    return SharedCounter(read=lambda: 0, increment=lambda: None)


class RegistryCredentials:
    def __init__(self, trust: RegistryTrustStore, api_keys: ApiKeyStore, changes: SharedCounter) -> None:
        self._trust = trust
        self._api_keys = api_keys
        self._changes = changes
        self._read_up_to = 0
        self._lock = asyncio.Lock()
        self.is_revoked = trust.is_revoked
        self.find_api_key = api_keys.authenticate

    async def load(self) -> None:
        # The counter is read first: a change that is committed meanwhile is then read again.
        read_up_to = self._changes.read()
        await self._trust.load()
        await self._api_keys.load()
        self._read_up_to = read_up_to

    def apply_notes(self, notes: Mapping[str, bytes | None]) -> None:
        """Apply committed notes, in the process that writes, before the caller is answered."""
        self._trust.apply_notes(notes)
        self._api_keys.apply_notes(notes)
        if any(name.startswith((REVOCATION_NOTES, API_KEY_NOTES)) for name in notes):
            self._changes.increment()
            self._read_up_to = self._changes.read()

    @property
    def is_stale(self) -> bool:
        return self._changes.read() != self._read_up_to

    async def refresh(self) -> None:
        async with self._lock:
            if self.is_stale:
                await self.load()
