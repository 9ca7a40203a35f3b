"""A registry as a transport of an `Announcer` or a `Finder`: over HTTP, or over one WebSocket that stays open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx2

from waypost import limits
from waypost.client.clock import WallClock
from waypost.client.http import tls_context
from waypost.errors import TooLarge, Unavailable
from waypost.settings import ConnectionSettings, is_loopback, load_connection_settings
from waypost.transports.directory import AgentDirectory
from waypost.transports.http import HttpTransport
from waypost.transports.port import Transport, TransportClock
from waypost.transports.websocket import WebSocketTransport

Fetch = Callable[[str], Awaitable[bytes]]

_HTTP_SCHEMES = {"ws": "http", "wss": "https"}


def registry_transport(
    base_url: str | None = None,
    token: str | None = None,
    *,
    data: Path | None = None,
    clock: TransportClock | None = None,
) -> Transport:
    """The registry at an address.

    Args:
        base_url: `https://…`, or `wss://…` for a session that stays open and receives changes at once. Default: the
            service that the command would use.
        token: A token. Default: the one that the command would use.
        data: The data folder in which a local service wrote its admin token.
        clock: The clock.
    """
    http_url, is_socket = http_address(base_url)
    address = load_connection_settings({"server": http_url, "token": token, "data": data})
    return make_registry_transport(address, clock, is_socket=is_socket)


def http_address(url: str | None) -> tuple[str | None, bool]:
    """The HTTP address of a registry, and True if it was given as the address of a WebSocket.

    Args:
        url: The address.
    """
    scheme, separator, rest = (url or "").partition("://")
    if separator and scheme.lower() in _HTTP_SCHEMES:
        return f"{_HTTP_SCHEMES[scheme.lower()]}://{rest.rstrip('/').removesuffix('/ws')}", True
    return url, False


def make_registry_transport(
    address: ConnectionSettings,
    clock: TransportClock | None = None,
    *,
    is_socket: bool = False,
    directory: AgentDirectory | None = None,
) -> Transport:
    """The transport for a registry.

    Args:
        address: The settings of the connection.
        clock: The clock.
        is_socket: Use a WebSocket.
        directory: Where the agents of the registry are stored.
    """
    clock = clock or WallClock()
    if is_socket:
        tls = tls_context(address) if address.base_url.startswith("https:") else None
        return WebSocketTransport(address.base_url, clock, token=address.token, tls=tls, directory=directory)
    return HttpTransport(http_client(address), clock, directory=directory)


def http_client(address: ConnectionSettings) -> httpx2.AsyncClient:
    """An HTTP client for a registry.

    Args:
        address: The settings of the connection.
    """
    headers = {"User-Agent": "waypost", "Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    return httpx2.AsyncClient(
        base_url=address.base_url,
        headers=headers,
        timeout=address.timeout,
        verify=tls_context(address),
        trust_env=not is_loopback(httpx2.URL(address.base_url).host),  # no proxy for loopback
    )


# --- Pointers (announce.md P-23): an mDNS record that is too small for an announcement names a registry that has it. --------


def pointer_url(address: ConnectionSettings) -> Callable[[str], str]:
    """Makes the URL of an agent's announcement in a registry.

    Args:
        address: The settings of the registry.
    """
    return lambda agent_id: f"{address.base_url}/agents/{agent_id}"


def pointer_fetcher(registries: Sequence[ConnectionSettings], elsewhere: Fetch | None = None) -> Fetch:
    """Fetches pointers. A pointer comes from a stranger, and following it reveals this machine to the server it names.

    Args:
        registries: Registries that the user named; pointers to them are followed with their token.
        elsewhere: Follows other pointers, and guards itself. Default: they are refused.
    """

    async def fetch(url: str) -> bytes:
        for address in registries:
            if url.startswith(f"{address.base_url}/agents/"):
                return await _fetch_pointer(address, url)
        if elsewhere is None:
            raise Unavailable("The pointer leads to an unknown registry.", path="mdns", hint="Name that registry.")
        return await elsewhere(url)

    return fetch


async def _fetch_pointer(address: ConnectionSettings, url: str) -> bytes:
    try:
        async with http_client(address) as http, http.stream("GET", url) as response:
            if not response.is_success:
                raise Unavailable(
                    f"The pointer leads to status {response.status_code}.", path="mdns", hint="Try again later."
                )
            return await _read_pointer_body(response)
    except httpx2.HTTPError as error:
        raise Unavailable(
            f"The pointer cannot be followed ({error}).", path="mdns", hint="Is that registry running?"
        ) from None


async def _read_pointer_body(response: httpx2.Response) -> bytes:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > 2 * limits.ANNOUNCE_BYTES:  # a Response has more members than the announcement
            raise TooLarge("The pointer leads to more than an announcement.", path="mdns", hint="Ignore this record.")
    return body
