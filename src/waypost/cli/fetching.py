"""A document at an address, fetched from this machine: for networks that the person sees and the service does not."""

from __future__ import annotations

import asyncio

from waypost.errors import FetchFailed
from waypost.net.outgoing import Outgoing, OutgoingOptions
from waypost.settings import Settings

# Whoever types an address may go wherever this machine may; what nobody may is denied all the same.
_EVERYWHERE = ("0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128")


def fetch_here(url: str, settings: Settings) -> tuple[bytes, str]:
    """The document, and the address that gave it after redirects."""
    options = OutgoingOptions(
        allow_cidrs=_EVERYWHERE,
        resolver=settings.resolver,
        ca_file=settings.fetch_ca,
        trust_anchors=settings.trust_anchors,
        trust_ad=settings.trust_ad,
        insecure_domains=settings.insecure_domains,
    )
    fetched = asyncio.run(Outgoing(options).fetch(url, "peer"))
    if not fetched.is_success:
        raise FetchFailed(f"{url} answered with status {fetched.status}.", path="URL", hint="Is the document there?")
    return fetched.body, fetched.url
