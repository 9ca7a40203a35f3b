"""A WebSocket as the link of a conversation: opened to an agent, or taken by one that listens.

wss only, with TLS 1.3 (ADP-37, ADP-52); plain ws is for this machine, while developing.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from waypost import limits
from waypost.errors import ConfigurationError, InvalidParameter, Unauthorized, Unavailable, WaypostError
from waypost.meeting.link import LinkLost
from waypost.settings import is_loopback
from waypost.wire.agp import SUBPROTOCOL


class SocketLink:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, frame: str) -> None:
        """Wait only while the write buffer is full."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise _lost(error) from None

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.recv()
        except ConnectionClosed as error:
            raise _lost(error) from None

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """A token, and a hello, go to where they were meant to go."""
        return exc


async def dial(
    url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None, address: str | None = None
) -> SocketLink:
    """A link to the agent at this url; `address` is where its host is, if the system is not to be asked."""
    check_address(url)
    where: dict[str, Any] = {} if address is None else {"host": address, "port": urlsplit(url).port or 443}
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    secure = url.startswith("wss:")
    try:
        connection = await _Connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers=headers,
            compression=None,
            proxy=None,
            max_size=limits.AGP_FRAME_BYTES,
            open_timeout=limits.SOCKET_OPEN_SECONDS,
            ping_interval=limits.SOCKET_PING_SECONDS,
            ping_timeout=limits.SOCKET_SILENCE_SECONDS - limits.SOCKET_PING_SECONDS,
            close_timeout=limits.SOCKET_CLOSE_SECONDS,
            ssl=(tls or tls_1_3()) if secure else None,
            **where,
        )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise _unreachable(url, error) from None
    return SocketLink(connection)


def check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "wss" or (parts.scheme == "ws" and is_loopback(parts.hostname or "")):
        return
    raise InvalidParameter(
        f"{url[:200]!r} is no address of a conversation.",
        path="url",
        hint="Conversations go over wss:// (ADP-37); ws:// is taken on this machine only.",
    )


def tls_1_3(ca: Path | None = None) -> ssl.SSLContext:
    """The usual authorities, or those of a file; nothing below TLS 1.3."""
    try:
        context = ssl.create_default_context(cafile=str(ca or certifi.where()))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The authorities in {ca} cannot be used: {error.strerror or error}.", path="ca", hint="Name a PEM file."
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _lost(error: ConnectionClosed) -> LinkLost:
    told = error.rcvd or error.sent
    return LinkLost() if told is None else LinkLost(told.code, told.reason)


def _unreachable(url: str, error: Exception) -> WaypostError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return Unauthorized(
            f"{url} refuses the connection ({error.response.status_code}).", path="url", hint="Give a token that holds."
        )
    return Unavailable(
        f"There is no connection to {url} ({error or type(error).__name__}).",
        path="url",
        hint="Is the agent running, and is this its address?",
    )
