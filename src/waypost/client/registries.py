"""A registry as one of the transports of an `Announcer` or a `Finder`."""

from __future__ import annotations

from pathlib import Path

import httpx

from waypost.client.announcer import WallClock
from waypost.client.tls import tls_context
from waypost.settings import Connection, is_loopback, load_connection
from waypost.transports.http import HttpTransport
from waypost.transports.port import Clock


def registry(
    base_url: str | None = None, token: str | None = None, *, data: Path | None = None, clock: Clock | None = None
) -> HttpTransport:
    """The service at this address. Without arguments: the one that the command would use, with the same token."""
    return transport_of(load_connection({"server": base_url, "token": token, "data": data}), clock)


def transport_of(address: Connection, clock: Clock | None = None) -> HttpTransport:
    headers = {"User-Agent": "waypost", "Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    http = httpx.AsyncClient(
        base_url=address.base_url,
        headers=headers,
        timeout=address.timeout,
        verify=tls_context(address),
        trust_env=not is_loopback(httpx.URL(address.base_url).host),  # a proxy never stands before loopback
    )
    return HttpTransport(http, clock or WallClock())
