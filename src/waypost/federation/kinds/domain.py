"""A domain: the agents of an organisation's index in the DNS (DNS-AID)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.documents import document_entry
from waypost.federation.kinds.port import UNREADABLE, PeerPage, PeerProblem
from waypost.federation.peers import Peer
from waypost.registry.ports import Clock
from waypost.responses.federation import FeedEntry
from waypost.time_slice import TimeSlice


class OrganisationDocument(msgspec.Struct, frozen=True, kw_only=True):
    dialect: str | None  # None: recognised from the content
    document: bytes
    url: str | None = None


class OrganisationDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that the index of an organisation leads to."""

    documents: Sequence[OrganisationDocument] = ()
    unresolved: int = 0  # agents that the index names and that could not be resolved
    problem: str = ""  # why there is no index


ReadOrganisation = Callable[[str], Awaitable[OrganisationDocuments]]  # by domain


class DomainIndex:
    def __init__(self, clock: Clock, read_organisation: ReadOrganisation) -> None:
        self._clock = clock
        self._read = read_organisation

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        found = await self._read(urlsplit(peer.url).hostname or "")
        if found.problem:
            raise PeerProblem(f"Its DNS has no usable index of agents: {found.problem}")
        entries: dict[str, FeedEntry] = {}
        bad, now, time_slice = found.unresolved, self._clock.now(), TimeSlice(limits.PEER_SLICE_SECONDS)
        for each in found.documents:
            await time_slice.step()
            try:
                entry = document_entry(peer, each.document, each.dialect, now, url=each.url)
            except (WaypostError, *UNREADABLE):
                bad += 1
                continue
            entries.setdefault(entry.id, entry)
        return PeerPage(
            entries=list(entries.values()),
            cursor=None,
            service_id=peer.url,
            is_last=True,
            starts_over=True,
            ends_snapshot=not found.unresolved,
            bad=bad,
        )
