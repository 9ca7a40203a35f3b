"""Opening a WebSocket to a registry or an agent."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from waypost import limits


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow no redirect: a token and a hello are for one server."""
        return exc


async def open_websocket(
    url: str,
    subprotocol: str,
    *,
    max_size: int,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    address: str | None = None,
) -> ClientConnection:
    """`max_size`: bytes of a message. `address`: that of the host, instead of asking the system's resolver. Raises OSError,
    TimeoutError or WebSocketException."""
    place: dict[str, Any] = {}
    if address is not None:
        parts = urlsplit(url)
        place = {"host": address, "port": parts.port or (443 if parts.scheme == "wss" else 80)}
    return await _Connect(
        url,
        subprotocols=[Subprotocol(subprotocol)],
        additional_headers={"Authorization": f"Bearer {token}"} if token is not None else {},
        compression=None,
        proxy=None,
        max_size=max_size,
        open_timeout=limits.SOCKET_OPEN_SECONDS,
        ping_interval=limits.SOCKET_PING_SECONDS,
        ping_timeout=limits.SOCKET_SILENCE_SECONDS - limits.SOCKET_PING_SECONDS,
        close_timeout=limits.SOCKET_CLOSE_SECONDS,
        ssl=tls,
        **place,
    )
