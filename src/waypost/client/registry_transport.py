"""A registry as one of the transports of an `Announcer` or a `Finder`: over HTTP, or over one WebSocket that stays open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx2

from waypost import limits
from waypost.client.announcer import WallClock
from waypost.client.http import tls_context
from waypost.errors import TooLarge, Unavailable
from waypost.settings import ConnectionSettings, is_loopback, load_connection_settings
from waypost.transports.directory import AgentDirectory
from waypost.transports.http import HttpTransport
from waypost.transports.port import Transport, TransportClock
from waypost.transports.websocket import WebSocketTransport

_SOCKETS = {"ws": "http", "wss": "https"}


def registry_transport(
    base_url: str | None = None,
    token: str | None = None,
    *,
    data: Path | None = None,
    clock: TransportClock | None = None,
) -> Transport:
    """The service at this address: `https://…`, or `wss://…` for a session that stays open and hears at once. Without
    arguments: the one that the command would use, with the same token."""
    plain, is_socket = http_address(base_url)
    address = load_connection_settings({"server": plain, "token": token, "data": data})
    return make_registry_transport(address, clock, is_socket=is_socket)


def http_address(url: str | None) -> tuple[str | None, bool]:
    """The address for HTTP, and whether it was given as that of a WebSocket."""
    scheme, mark, rest = (url or "").partition("://")
    if mark and scheme.lower() in _SOCKETS:
        return f"{_SOCKETS[scheme.lower()]}://{rest.rstrip('/').removesuffix('/ws')}", True
    return url, False


def make_registry_transport(
    address: ConnectionSettings,
    clock: TransportClock | None = None,
    *,
    is_socket: bool = False,
    directory: AgentDirectory | None = None,
) -> Transport:
    clock = clock or WallClock()
    if is_socket:
        tls = tls_context(address) if address.base_url.startswith("https:") else None
        return WebSocketTransport(address.base_url, clock, token=address.token, tls=tls, directory=directory)
    return HttpTransport(http_client(address), clock, directory=directory)


def http_client(address: ConnectionSettings) -> httpx2.AsyncClient:
    headers = {"User-Agent": "waypost", "Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    return httpx2.AsyncClient(
        base_url=address.base_url,
        headers=headers,
        timeout=address.timeout,
        verify=tls_context(address),
        trust_env=not is_loopback(httpx2.URL(address.base_url).host),  # a proxy never stands before loopback
    )


# ---- Where a record of mDNS that is too small for an announcement points to (announce.md P-23): a registry that has it whole.
#
# A pointer is a stranger's word, and following it tells a stranger's server of us. One that leads to a registry which the user
# named is followed there, with the token for it; any other one is left to a way out that guards itself, or to nobody.

Fetch = Callable[[str], Awaitable[bytes]]


def pointer_url(address: ConnectionSettings) -> Callable[[str], str]:
    """The address of an agent's announcement in a registry."""
    return lambda agent_id: f"{address.base_url}/agents/{agent_id}"


def pointer_fetcher(registries: Sequence[ConnectionSettings], elsewhere: Fetch | None = None) -> Fetch:
    async def fetch(url: str) -> bytes:
        for address in registries:
            if url.startswith(f"{address.base_url}/agents/"):
                return await _fetch_pointer(address, url)
        if elsewhere is None:
            raise Unavailable("The pointer leads to a registry that nobody named.", path="mdns", hint="Name it.")
        return await elsewhere(url)

    return fetch


async def _fetch_pointer(address: ConnectionSettings, url: str) -> bytes:
    try:
        async with http_client(address) as http, http.stream("GET", url) as answer:
            if not answer.is_success:
                raise Unavailable(
                    f"The pointer leads to status {answer.status_code}.", path="mdns", hint="Wait for it."
                )
            return await _read_pointer_body(answer)
    except httpx2.HTTPError as error:
        raise Unavailable(f"The pointer leads nowhere ({error}).", path="mdns", hint="Is that registry up?") from None


async def _read_pointer_body(answer: httpx2.Response) -> bytes:
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > 2 * limits.ANNOUNCE_BYTES:  # with what a Response adds
            raise TooLarge("The pointer leads to more than an announcement.", path="mdns", hint="Ignore this record.")
    return body
