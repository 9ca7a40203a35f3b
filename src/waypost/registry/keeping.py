"""A durable place for small things that are no records: tasks, messages in a mailbox, swarms, invitations.

Each thing has a kind and a key. Writes of one commit are all or nothing, and durable when it returns. A write may expect what
is there now, so that two who race for the same thing cannot both have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

ANYTHING: Final = b"\0anything"  # nothing that is kept begins with a zero


class Write(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: str
    key: str
    value: bytes | None  # None removes it
    expires_at: float | None = None  # from then on it is as if it were not there
    expected: bytes | None = ANYTHING  # None: only if nothing is there


class Kept(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    expires_at: float | None = None


class Keeper(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, writes: Sequence[Write], now: float) -> bool:
        """False, and nothing written, when one of them expected something else. StorageFull, StoreUnavailable."""
        ...

    async def get(self, kind: str, key: str, now: float) -> bytes | None: ...

    async def scan(self, kind: str, now: float, *, prefix: str = "", after: str = "", limit: int = 100) -> list[Kept]:
        """In the order of their keys."""
        ...

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int: ...

    async def healthy(self) -> bool:
        """Whether it is open and takes writes. A full disk is the store's to tell: both are on the same one."""
        ...
