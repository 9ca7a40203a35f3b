"""A document at an address, fetched from this machine: for networks that the person sees and the service does not."""

from __future__ import annotations

import asyncio

import msgspec

from waypost.errors import FetchFailed
from waypost.net.outgoing import Outgoing, OutgoingOptions
from waypost.settings import Settings

# Whoever types an address may go wherever this machine may; what nobody may is denied all the same.
_EVERYWHERE = ("0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128")


def fetch_here(url: str, settings: Settings) -> tuple[bytes, str]:
    """The document, and the address that gave it after redirects."""
    options = msgspec.structs.replace(OutgoingOptions.of(settings), allow_cidrs=_EVERYWHERE)
    fetched = asyncio.run(Outgoing(options).fetch(url, "peer"))
    if not fetched.is_success:
        raise FetchFailed(f"{url} answered with status {fetched.status}.", path="URL", hint="Is the document there?")
    return fetched.body, fetched.url
