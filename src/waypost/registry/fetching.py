"""What the registry needs of the net: one document at one address, or the reason why not. How, is not known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

Purpose = Literal["health", "card", "jwks", "peer", "proof", "webhook"]


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What another server answered. The body of an answer that is no success is not read."""

    url: str  # the one that answered, after redirects
    status: int
    headers: Mapping[str, str]  # names in lower case; the last of several
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Fetcher(Protocol):
    async def fetch(self, url: str, purpose: Purpose) -> Fetched:
        """Raises InvalidParameter for an address that is none, AddressDenied for one that is not asked, else FetchFailed
        with the reason as a word in its details."""
        ...
