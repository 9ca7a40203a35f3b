"""What a kind of peer does: it is read page by page as changes with an origin and exact documents, and some can be asked.

tests/contract/test_peer_kinds.py is the contract of every kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from waypost.federation.peers import Peer
from waypost.responses.federation import FeedBookmark, FeedEntry

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # JSON of a peer, also if it is too deep


class PeerProblem(Exception):
    """A peer that cannot be followed, in words for an operator."""


class PeerRefusal(PeerProblem):
    """A peer that wants a token, or another one."""


class PeerMissing(PeerProblem):
    """Nothing is at an address of the peer."""


class PeerPage(msgspec.Struct, frozen=True, kw_only=True):
    entries: Sequence[FeedEntry]
    cursor: str | None  # where to go on; None: from the beginning
    service_id: str
    is_last: bool  # nothing more is waiting
    starts_over: bool = False  # the first page of everything
    ends_snapshot: bool = False  # after it, everything was read once
    count: int | None = None  # agents of the peer, if it says so
    bad: int = 0  # entries that could not be read
    bookmark: FeedBookmark | None = None  # signed, if the kind has one
    search_url: str = ""  # where it answers questions, if the reading found that


class PeerSource(Protocol):
    """One kind of peer."""

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        """One page; None if the cursor is no longer valid. Raises PeerProblem."""
        ...


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a peer is told of a search."""

    text: str
    limit: int
    required_tags: tuple[str, ...] = ()
    preferred_tags: tuple[str, ...] = ()
    excluded_tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    filter: Mapping[str, Sequence[str]] | None = None  # of ARD, instead of the members above
    path: tuple[str, ...] = ()  # ids of the registries that the question came through


class PeerSearch(Protocol):
    """A kind of peer that answers searches."""

    async def ask(self, peer: Peer, question: Question) -> Sequence[FeedEntry]:
        """The agents that the peer finds, best first. Raises PeerProblem."""
        ...
