"""Records of peers as copies: decoded, with their origin, checked against the policy for the peer."""

from __future__ import annotations

import hashlib

from waypost import limits
from waypost.federation.feed import ServiceName
from waypost.federation.peers import Peer
from waypost.model.federation import Federation
from waypost.model.times import find_instant
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.registry.mirror_rules import PEER_VIA, MirroredRecord, peer_principal
from waypost.registry.ports import Clock
from waypost.registry.publication import Publication
from waypost.responses.federation import FeedEntry, FeedOrigin


class ParkedRecord(Exception):
    """A record that is not taken."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def decode_copy(
    peer: Peer, entry: FeedEntry, own: ServiceName, clock: Clock, visibility: str, sender_id: str | None = None
) -> MirroredRecord:
    """`sender_id` is the id of the service that sent the entry, if it proved that. Raises ParkedRecord or WaypostError."""
    origin = _check_origin(peer, entry, own)
    if sender_id is not None and (origin.path or (origin.service_id,))[-1] != sender_id:
        raise ParkedRecord("other_path")  # the last service on the way is the one that sent it
    principal, latest = peer_principal(peer.name), clock.latest()
    publications = []
    for each in entry.documents:
        document = each.document.encode()
        if hashlib.sha256(document).hexdigest() != each.digest:
            raise ParkedRecord("digest")
        dialect, _, decoded = decode_document(document, each.dialect, DecodeContext(now=latest, source_url=each.url))
        publications.append(
            Publication(
                dialect=dialect,
                document=document,
                decoded=decoded,
                principal=principal,
                via=PEER_VIA,
                source_url=each.url,
            )
        )
    names = {entry.id, *entry.aliases}
    if not any(names & {each.decoded.record.id, each.decoded.source_id} for each in publications):
        raise ParkedRecord("other_id")  # the documents are of another agent
    federation = Federation(
        peer=peer.name,
        origin_service=origin.service,
        origin_id=origin.id,
        origin_updated_at=origin.updated_at,
        received_at=clock.now(),
        via=origin.via,
        service_id=origin.service_id,
        path=origin.path,
        etag=entry.etag,
        revision=origin.revision,
        is_granted=bool(peer.namespaces),
    )
    return MirroredRecord(
        publications=tuple(publications),
        federation=federation,
        visibility=visibility,
        expires_at=find_instant(entry.expires_at),
    )


def _check_origin(peer: Peer, entry: FeedEntry, own: ServiceName) -> FeedOrigin:
    origin = entry.origin
    if origin is None or origin.id != entry.id or not all(map(_is_web_address, (origin.service, *origin.via))):
        raise ParkedRecord("no_origin")
    if own.id in (origin.service_id, *origin.path):
        raise ParkedRecord("own_record")
    if len(origin.path) >= limits.PEER_HOPS:
        raise ParkedRecord("too_many_hops")
    if not peer.takes(entry.id):
        raise ParkedRecord("namespace")
    if not entry.documents:
        raise ParkedRecord("no_documents")
    return origin


def _is_web_address(url: str) -> bool:
    """Programs of users make links of it, and `javascript:` would be one."""
    return url.startswith(("https://", "http://"))
