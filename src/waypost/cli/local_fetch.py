"""Fetches documents from this machine, for addresses that only this machine reaches: a service refuses private addresses."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost.errors import FetchFailed
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.registry.document_fetch import fetch_documents
from waypost.settings import Settings, is_loopback

# The user may connect wherever this machine may, except to addresses that are always denied (metadata services).
ALL_NETWORKS = ("0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128")

_HTTP_URL = re.compile(r"https?://", re.IGNORECASE)


def find_loopback_url(name: str) -> str | None:
    """The URL of an address on this machine: `http://localhost:9999/…`, or `localhost:9999`."""
    if _HTTP_URL.match(name):
        url = name
    elif "://" not in name and not Path(name).exists():
        url = f"http://{name}"
    else:
        return None
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    return url if host and is_loopback(host) else None


def fetch_locally(url: str, settings: Settings, dialect: str | None = None) -> tuple[str, list[bytes]]:
    """The URL after redirects, and the documents there. Of an origin, its well-known documents are tried."""
    options = msgspec.structs.replace(OutboundOptions.of(settings), allow_cidrs=ALL_NETWORKS)

    def recognise(document: bytes, found_at: str) -> None:
        decode_document(document, dialect, DecodeContext(now=time.time(), source_url=found_at))

    try:
        fetched, documents = asyncio.run(fetch_documents(OutboundClient(options), url, recognise))
    except FetchFailed as error:
        raise FetchFailed(f"{url}: {error.message}", path=url, hint=error.hint, details=error.details) from None
    return fetched.url, documents
