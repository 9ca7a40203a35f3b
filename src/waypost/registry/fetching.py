"""What the registry needs of the net: one document at one address, or the reason why not. How, is not known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

Purpose = Literal["health", "card", "jwks", "peer", "proof", "webhook", "descriptor", "index", "task"]


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


class Prober(Protocol):
    """Whether somebody answers at an endpoint of an agent. Nothing of the answer is read but its status."""

    def check_endpoint(self, endpoint: str) -> None:
        """Raises AddressDenied for an endpoint at a number that is not asked. Asks nobody."""
        ...

    async def probe(self, endpoint: str) -> int | None:
        """The status that came; None where a connection is all that can be tried. Raises as `Fetcher.fetch`, and RateLimited
        when this endpoint was asked a moment ago."""
        ...


class Sender(Protocol):
    """What is sent to an address that a stranger named: a result, a task. Nobody follows a redirect with it."""

    def check(self, url: str, purpose: Purpose) -> None:
        """Raises, without asking anybody, what `send` would raise for an address like this one."""
        ...

    async def send(
        self,
        url: str,
        purpose: Purpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Fetched:
        """Raises as `Fetcher.fetch`. `headers` are ours, never a caller's."""
        ...
