"""What peers answer: pages of a change feed with their bookmark, Discovery Responses, lists of A2A cards. What cannot be read is
left out or a problem of that peer."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from waypost.federation.kinds.a2a import parse_card_list
from waypost.federation.kinds.port import PeerProblem
from waypost.federation.kinds.waypost import parse_candidates, parse_feed
from waypost.federation.peers import Peer
from waypost.federation.pull import verify_bookmark

PEER = Peer(name="there", url="https://there.example", kind="waypost", added_at=0.0, added_by="admin")
LIMIT = 10
RUNNER = asyncio.Runner()


def fuzz(data: bytes) -> None:
    with suppress(PeerProblem):
        page = RUNNER.run(parse_feed(data, is_first=True))
        assert page.cursor
        assert page.bookmark is not None
        verify_bookmark(page.bookmark, "")
    with suppress(PeerProblem):
        assert len(parse_candidates(PEER, data, LIMIT, 1.0)) <= LIMIT
    with suppress(PeerProblem):
        for card in parse_card_list(data):
            assert card in data
