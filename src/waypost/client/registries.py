"""A registry as one of the transports of an `Announcer` or a `Finder`: over HTTP, or over one WebSocket that stays open."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from waypost.client.announcer import WallClock
from waypost.client.tls import tls_context
from waypost.settings import Connection, is_loopback, load_connection
from waypost.transports.directory import Directory
from waypost.transports.http import HttpTransport
from waypost.transports.port import Clock, Transport
from waypost.transports.websocket import WebSocketTransport

_SOCKETS = {"ws": "http", "wss": "https"}


def registry(
    base_url: str | None = None, token: str | None = None, *, data: Path | None = None, clock: Clock | None = None
) -> Transport:
    """The service at this address: `https://…`, or `wss://…` for a session that stays open and hears at once. Without
    arguments: the one that the command would use, with the same token."""
    plain, is_socket = plain_address(base_url)
    address = load_connection({"server": plain, "token": token, "data": data})
    return transport_of(address, clock, is_socket=is_socket)


def plain_address(url: str | None) -> tuple[str | None, bool]:
    """The address for HTTP, and whether it was given as that of a WebSocket."""
    scheme, mark, rest = (url or "").partition("://")
    if mark and scheme.lower() in _SOCKETS:
        return f"{_SOCKETS[scheme.lower()]}://{rest.rstrip('/').removesuffix('/ws')}", True
    return url, False


def transport_of(
    address: Connection, clock: Clock | None = None, *, is_socket: bool = False, directory: Directory | None = None
) -> Transport:
    clock = clock or WallClock()
    if is_socket:
        tls = tls_context(address) if address.base_url.startswith("https:") else None
        context = tls if isinstance(tls, ssl.SSLContext) else None  # else the usual authorities
        return WebSocketTransport(address.base_url, clock, token=address.token, tls=context, directory=directory)
    return HttpTransport(http_client(address), clock, directory=directory)


def http_client(address: Connection) -> httpx.AsyncClient:
    headers = {"User-Agent": "waypost", "Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    return httpx.AsyncClient(
        base_url=address.base_url,
        headers=headers,
        timeout=address.timeout,
        verify=tls_context(address),
        trust_env=not is_loopback(httpx.URL(address.base_url).host),  # a proxy never stands before loopback
    )
