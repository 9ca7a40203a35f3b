"""What tells one version of an agent from another."""

from __future__ import annotations

import base64
import hashlib

from waypost.model.registration import Registration, Source


def content_etag(registration: Registration, document: bytes) -> str:
    """A hash of what readers can see: record, visibility, invitees and the bytes of each source. Never of a clock."""
    names = (*registration.invitees, *registration.aliases)
    return etag_of(document, registration.visibility, names, registration.sources)


def etag_of(document: bytes, visibility: str, names: tuple[str, ...], sources: tuple[Source, ...]) -> str:
    digest = hashlib.sha256(document)
    digest.update("\0".join((visibility, *names)).encode())
    for source in sources if len(sources) == 1 else sorted(sources, key=lambda item: item.dialect):
        digest.update(f"\0{source.dialect}:{source.digest}".encode())
    return base64.urlsafe_b64encode(digest.digest())[:22].decode()
