"""A connection to another agent (AGP): a WebSocket that is opened on demand and reopened when it is lost.

Only wss with TLS 1.3 (ADP-37, ADP-52); plain ws is for development on this machine.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import certifi
import msgspec
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from waypost import limits
from waypost.client.contacts import Contact
from waypost.errors import (
    BadSignature,
    ConfigurationError,
    FingerprintMismatch,
    Forbidden,
    InvalidParameter,
    Unauthorized,
    Unavailable,
    WaypostError,
)
from waypost.messaging.connection import AgpConnection, AgpLink, ControlHandler, LinkLost, PeerClosed, PeerError
from waypost.messaging.endpoint import AgpEndpoint
from waypost.messaging.peers import PeerKeySource
from waypost.model.verdict import Verdict
from waypost.protocols.adp.agp.messages import SUBPROTOCOL
from waypost.settings import is_loopback
from waypost.transports.websocket_client import open_websocket

_FINAL_CODES = frozenset(
    ("unknown_peer", "fingerprint_mismatch", "bad_signature", "not_authorized", "unsupported_type")
)

PeerConnectionEventKind = Literal["open", "lost", "kept", "refused"]


class WebSocketLink:
    """A WebSocket as the link of a conversation."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, frame: str) -> None:
        """Send a frame. Waits only while the write buffer is full."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise _link_lost(error) from None

    async def receive(self) -> str | bytes:
        """Wait for the next frame."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as error:
            raise _link_lost(error) from None

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        await self._connection.close(code, reason)


async def dial(
    url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None, address: str | None = None
) -> WebSocketLink:
    """Open a link to an agent.

    Args:
        url: Where the agent can be called.
        token: A token for the call.
        tls: The TLS context. Default: certifi's authorities, TLS 1.3.
        address: The address of the host, instead of the system's resolver.
    """
    check_chat_url(url)
    try:
        connection = await open_websocket(
            url,
            SUBPROTOCOL,
            max_size=limits.AGP_FRAME_BYTES,
            token=token,
            tls=(tls or tls13_context()) if url.startswith("wss:") else None,
            address=address,
        )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise _connect_error(url, error) from None
    return WebSocketLink(connection)


def check_chat_url(url: str) -> None:
    """Raise InvalidParameter for a URL that is not wss, except ws on this machine.

    Args:
        url: The URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "wss" or (parts.scheme == "ws" and is_loopback(parts.hostname or "")):
        return
    raise InvalidParameter(
        f"{url[:200]!r} is not the URL of a chat.",
        path="url",
        hint="Use wss:// (ADP-37); ws:// is accepted on this machine only.",
    )


def tls13_context(ca: Path | None = None) -> ssl.SSLContext:
    """A TLS context for TLS 1.3 and later.

    Args:
        ca: A PEM file with certificate authorities. Default: certifi's.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca or certifi.where()))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The certificate authorities in {ca} cannot be used: {error.strerror or error}.",
            path="ca",
            hint="Name a PEM file.",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _link_lost(error: ConnectionClosed) -> LinkLost:
    close = error.rcvd or error.sent
    return LinkLost() if close is None else LinkLost(close.code, close.reason)


def _connect_error(url: str, error: Exception) -> WaypostError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return Unauthorized(
            f"{url} refuses the connection ({error.response.status_code}).", path="url", hint="Use a valid token."
        )
    return Unavailable(
        f"Cannot connect to {url} ({error or type(error).__name__}).",
        path="url",
        hint="Is the agent running, and is this its address?",
    )


class PeerConnectionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a connection: opened, lost, refused, or messages left with a relay (`kept`)."""

    peer: str
    event: PeerConnectionEventKind
    reason: str = ""
    again_in_seconds: float | None = None
    verdict: Verdict | None = None


class PeerConnection:
    """Keeps a connection to one agent open until it is closed or the agent refuses it for good."""

    def __init__(
        self,
        endpoint: AgpEndpoint,
        peer: str,
        find: Callable[[str], Awaitable[Contact]],
        peers: PeerKeySource,
        *,
        tls: ssl.SSLContext | None = None,
        on_event: Callable[[PeerConnectionEvent], None] | None = None,
        wrap: Callable[[AgpLink], AgpLink] | None = None,
        on_open: Callable[[AgpConnection], Awaitable[None]] | None = None,
        on_control: ControlHandler | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Start to connect in the background.

        Args:
            endpoint: The agent of this program.
            peer: The other agent.
            find: Finds the contact of an agent, before each attempt.
            peers: Finds the keys of agents.
            tls: The TLS context.
            on_event: Called with each event of the connection.
            wrap: Wraps each new link, for a relay.
            on_open: Called with each new conversation.
            on_control: Handles control messages.
            pause: Waits between attempts.
        """
        self.peer = peer
        self._endpoint = endpoint
        self._find = find
        self._peers = peers
        self._tls = tls
        self._on_event = on_event
        self._wrap = wrap
        self._on_open = on_open
        self._on_control = on_control
        self._pause = pause
        self._first_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason = ""  # why the connection was lost
        self._attempt = 0
        self._is_closing = False
        self._is_connected = False  # the WebSocket is open
        self.task = asyncio.create_task(self._run(), name=f"connection to {peer}")

    @property
    def is_over(self) -> bool:
        """True when the connection was closed or refused."""
        return self.task.done()

    async def wait(self) -> None:
        """Wait until the connection was open once. Raises the reason if it was not."""
        await asyncio.shield(self._first_open)

    async def close(self) -> None:
        """Close the connection."""
        self._is_closing = True
        conversation = self._endpoint.connections.get(self.peer)
        if conversation is not None and not self.task.done():
            await conversation.close("bye")
            await asyncio.wait((self.task,), timeout=limits.AGP_CLOSE_SECONDS)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if not self._first_open.done():
            self._first_open.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self._converse()
            except PeerClosed as error:
                reason = error.reason or "the peer closed it"
            except LinkLost as error:
                reason = error.reason or "the connection was lost"
            except PeerError as error:
                reason = f"{error.code}: {error.message}"
                if error.code in _FINAL_CODES and not error.retryable:
                    self._give_up(_refusal_error(self.peer, error))
                    return
            except WaypostError as error:
                reason = error.message
                if self._is_refused(error) or not self._first_open.done():
                    self._give_up(error)
                    return
            if self._is_closing:
                return
            await self._back_off(reason)

    def _is_refused(self, error: WaypostError) -> bool:
        """True if the server refused the WebSocket. A refusal of our own after that may not recur."""
        return not self._is_connected and isinstance(error, (Unauthorized, Forbidden))

    async def _converse(self) -> None:
        self._is_connected = False
        contact = await self._find(self.peer)
        if contact.url is None:
            raise Unavailable(
                f"No address for a chat with {self.peer} is known.",
                path="to",
                hint="Its ADP document has no endpoints.chat; give an address with --url.",
            )
        link: AgpLink = await dial(contact.url, token=contact.token, tls=self._tls, address=contact.address)
        self._is_connected = True
        if self._wrap is not None:
            link = self._wrap(link)
        await self._endpoint.run_connection(
            link, peer=self.peer, peers=self._peers, opened=self._opened, on_control=self._on_control
        )

    async def _opened(self, conversation: AgpConnection) -> None:
        self._attempt = 0
        if self._on_open is not None:
            await self._on_open(conversation)
        if not self._first_open.done():
            self._first_open.set_result(None)
        self._emit(PeerConnectionEvent(peer=self.peer, event="open", verdict=conversation.verdict()))

    async def _back_off(self, reason: str) -> None:
        self._fail_first_open(
            Unavailable(
                f"{self.peer} cannot be reached: {reason.removesuffix('.')}.",
                path="to",
                hint="Check that the agent is running and that this is its address.",
            )
        )
        least, most = limits.SOCKET_BACKOFF_SECONDS
        seconds = random.uniform(least / 20, min(most, least * 2**self._attempt))
        self._attempt = min(self._attempt + 1, 16)
        self._emit(PeerConnectionEvent(peer=self.peer, event="lost", reason=reason, again_in_seconds=seconds))
        await self._pause(seconds)

    def _give_up(self, error: WaypostError) -> None:
        self._fail_first_open(error)
        self._emit(PeerConnectionEvent(peer=self.peer, event="refused", reason=error.message))

    def _fail_first_open(self, error: WaypostError) -> None:
        if not self._first_open.done():
            self._first_open.set_exception(error)
            self._first_open.exception()  # retrieved, so that asyncio does not log it if nobody waits

    def _emit(self, event: PeerConnectionEvent) -> None:
        self.reason = event.reason
        if self._on_event is not None:
            self._on_event(event)


def _refusal_error(peer: str, error: PeerError) -> WaypostError:
    kinds = {"bad_signature": BadSignature, "fingerprint_mismatch": FingerprintMismatch, "not_authorized": Forbidden}
    return kinds.get(error.code, Unauthorized)(
        f"{peer} refuses the conversation ({error.code}): {error.message}",
        path="to",
        hint="The peer must know the key of this agent: publish it, or have it pinned there.",
    )
