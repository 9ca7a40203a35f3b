"""A conversation with an agent whose line another node of the cluster holds: frames pass through to that node.

The other node does all checks again, as if the peer had connected to it. It gets the address of the peer sealed under a key
that only nodes have, so that nobody else can claim an address, and never passes a conversation on again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from waypost import limits
from waypost.errors import InvalidCursor, WaypostError
from waypost.messaging.connection import AgpLink, LinkLost
from waypost.protocols.adp.agp.messages import SUBPROTOCOL
from waypost.server.http.asgi import Request, Scope
from waypost.server.http.freshness import TokenCipher

NODE_HEADER: Final = b"waypost-node"
PASSED_HEADERS: Final = (b"authorization", b"cookie")  # credentials of the peer
TRY_AGAIN: Final = 1013

_PURPOSE: Final = "node"
_TUNNELLED: Final = "waypost.tunnelled"
_VALID_SECONDS: Final = 60.0
_OPEN_SECONDS: Final = 2.0  # then the mailbox is used
_NO_CODES: Final = (None, 1005, 1006, 1015)  # no frame may carry them: the other side is gone


class _SealedPeer(msgspec.Struct, frozen=True, array_like=True):
    at: float
    scheme: str
    address: str


class ConversationTunnel(Protocol):
    def accept(self, scope: Scope) -> Scope:
        """The scope of a connection, with the address of the peer that another node named."""
        ...

    def is_tunnelled(self, request: Request) -> bool: ...

    async def run(
        self, node: str, request: Request, address: str, first: str, link: AgpLink, opened: Callable[[], None]
    ) -> bool:
        """Pass a conversation on until it ends; False if the node cannot be reached. `opened` is called with its first
        frame."""
        ...


class NodeTunnel:
    def __init__(self, cipher: TokenCipher, now: Callable[[], float]) -> None:
        self._cipher = cipher
        self._now = now

    def accept(self, scope: Scope) -> Scope:
        sealed = next((value for name, value in scope["headers"] if name == NODE_HEADER), None)
        peer = None if sealed is None else self._open(sealed)
        if peer is None:
            return scope
        client = (peer.address, 0) if peer.address else None
        return {**scope, "client": client, "scheme": peer.scheme, _TUNNELLED: True}

    def _open(self, sealed: bytes) -> _SealedPeer | None:
        try:
            payload = self._cipher.open(_PURPOSE, sealed.decode("latin-1"))
            peer = msgspec.msgpack.decode(payload, type=_SealedPeer)
        except (InvalidCursor, msgspec.MsgspecError):
            return None
        return peer if abs(self._now() - peer.at) <= _VALID_SECONDS else None

    def is_tunnelled(self, request: Request) -> bool:
        return _TUNNELLED in request.scope

    async def run(
        self, node: str, request: Request, address: str, first: str, link: AgpLink, opened: Callable[[], None]
    ) -> bool:
        try:
            other = await self._connect(node, request, address)
        except (OSError, TimeoutError, WebSocketException):
            return False
        sender = asyncio.create_task(_send_all(other, first, link))
        try:
            async with other:
                await _receive_all(other, link, opened)
        finally:
            sender.cancel()
            (failure,) = await asyncio.gather(sender, return_exceptions=True)
        if isinstance(failure, WaypostError):
            raise failure
        await link.close(
            TRY_AGAIN if other.close_code in _NO_CODES else other.close_code or 0, other.close_reason or ""
        )
        return True

    async def _connect(self, node: str, request: Request, address: str) -> ClientConnection:
        """To the address of the node, with the host that the peer asked for: that is also the name in the certificate."""
        scope, target = request.scope, urlsplit(node)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        peer = _SealedPeer(self._now(), str(scope.get("scheme", "ws")), address)
        sealed = self._cipher.seal(_PURPOSE, msgspec.msgpack.encode(peer))
        passed = [(name.decode(), headers[name]) for name in PASSED_HEADERS if name in headers]
        query = scope.get("query_string", b"").decode("latin-1")
        scheme = "wss" if target.scheme == "https" else "ws"
        return await connect(
            f"{scheme}://{headers.get(b'host', 'localhost')}{scope['path']}{'?' if query else ''}{query}",
            host=target.hostname,
            port=target.port or (443 if scheme == "wss" else 80),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers=[*passed, (NODE_HEADER.decode(), sealed)],
            compression=None,
            proxy=None,
            max_size=limits.AGP_FRAME_BYTES,
            open_timeout=_OPEN_SECONDS,
            ping_interval=None,  # each side sends its own pings
        )


async def _send_all(other: ClientConnection, first: str, link: AgpLink) -> None:
    try:
        await other.send(first)
        while True:
            await other.send(await link.receive())
    except (LinkLost, ConnectionClosed):
        pass
    finally:
        await other.close()


async def _receive_all(other: ClientConnection, link: AgpLink, opened: Callable[[], None]) -> None:
    with suppress(ConnectionClosed, LinkLost):
        async for frame in other:
            opened()
            await link.send(frame if isinstance(frame, str) else frame.decode())
