"""Documents of kinds without a feed, as changes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import TypeVar

from waypost import limits
from waypost.federation.peers import Peer
from waypost.model.times import find_instant, to_rfc3339_millis
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.responses.federation import FeedDocument, FeedEntry, FeedOrigin

T = TypeVar("T")


async def split_json(split: Callable[[bytes], T], body: bytes) -> T:
    """Take a list of documents apart; a long one in a thread, so that other work runs meanwhile."""
    if len(body) <= limits.PEER_UNSLICED_BYTES:
        return split(body)
    return await asyncio.to_thread(split, body)


def document_entry(
    peer: Peer,
    document: bytes,
    dialect: str | None,
    now: float,
    updated_at: str | None = None,
    *,
    url: str | None = None,
    is_gone: bool = False,
) -> FeedEntry:
    """A document of a list as a change. Its revision is its own time; without one, that of its arrival.

    Raises WaypostError if the document is invalid.
    """
    name, _, decoded = decode_document(document, dialect, DecodeContext(now=now, source_url=url or peer.url))
    digest = hashlib.sha256(document).hexdigest()
    updated_at = updated_at or decoded.record.updated_at
    instant = find_instant(updated_at)
    sent = FeedDocument(dialect=name, document=document.decode(), digest=digest, url=url)
    return FeedEntry(
        type="withdrawn" if is_gone else "updated",
        id=decoded.record.id,
        at=to_rfc3339_millis(now),
        etag=digest[:22],
        origin=FeedOrigin(
            service=peer.url,
            service_id=peer.url,
            id=decoded.record.id,
            revision=int((now if instant is None else instant) * 1000),
            updated_at=updated_at,
        ),
        documents=() if is_gone else (sent,),
    )
