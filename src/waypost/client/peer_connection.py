"""A WebSocket as the link of a conversation: opened to an agent, or taken by one that listens.

wss only, with TLS 1.3 (ADP-37, ADP-52); plain ws is for this machine, while developing.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import certifi
import msgspec
from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

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


class WebSocketLink:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, frame: str) -> None:
        """Wait only while the write buffer is full."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise _link_lost(error) from None

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.recv()
        except ConnectionClosed as error:
            raise _link_lost(error) from None

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """A token, and a hello, go to where they were meant to go."""
        return exc


async def dial(
    url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None, address: str | None = None
) -> WebSocketLink:
    """A link to the agent at this url; `address` is where its host is, if the system is not to be asked."""
    check_chat_url(url)
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
            ssl=(tls or tls13_context()) if secure else None,
            **where,
        )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise _connect_error(url, error) from None
    return WebSocketLink(connection)


def check_chat_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "wss" or (parts.scheme == "ws" and is_loopback(parts.hostname or "")):
        return
    raise InvalidParameter(
        f"{url[:200]!r} is no address of a conversation.",
        path="url",
        hint="Conversations go over wss:// (ADP-37); ws:// is taken on this machine only.",
    )


def tls13_context(ca: Path | None = None) -> ssl.SSLContext:
    """The usual authorities, or those of a file; nothing below TLS 1.3."""
    try:
        context = ssl.create_default_context(cafile=str(ca or certifi.where()))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The authorities in {ca} cannot be used: {error.strerror or error}.", path="ca", hint="Name a PEM file."
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _link_lost(error: ConnectionClosed) -> LinkLost:
    told = error.rcvd or error.sent
    return LinkLost() if told is None else LinkLost(told.code, told.reason)


def _connect_error(url: str, error: Exception) -> WaypostError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return Unauthorized(
            f"{url} refuses the connection ({error.response.status_code}).", path="url", hint="Give a token that holds."
        )
    return Unavailable(
        f"There is no connection to {url} ({error or type(error).__name__}).",
        path="url",
        hint="Is the agent running, and is this its address?",
    )


# ---- A line to one agent: opened when it is needed, opened again when it is lost, given up when the other side refuses us.

_FINAL_CODES = frozenset(
    ("unknown_peer", "fingerprint_mismatch", "bad_signature", "not_authorized", "unsupported_type")
)

PeerConnectionEventKind = Literal["open", "lost", "kept", "refused"]


class PeerConnectionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a line."""

    peer: str
    event: PeerConnectionEventKind
    reason: str = ""
    again_in_seconds: float | None = None
    verdict: Verdict | None = None


class PeerConnection:
    def __init__(
        self,
        correspondent: AgpEndpoint,
        peer: str,
        find: Callable[[str], Awaitable[Contact]],
        peers: PeerKeySource,
        *,
        tls: ssl.SSLContext | None = None,
        news: Callable[[PeerConnectionEvent], None] | None = None,
        wrap: Callable[[AgpLink], AgpLink] | None = None,
        opened: Callable[[AgpConnection], Awaitable[None]] | None = None,
        on_control: ControlHandler | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.peer = peer
        self._correspondent = correspondent
        self._find = find
        self._peers = peers
        self._tls = tls
        self._news = news
        self._wrap = wrap
        self._opened = opened
        self._on_control = on_control
        self._pause = pause
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason = ""  # why it was lost
        self._attempt = 0
        self._is_closing = False
        self._is_inside = False  # the connection was made
        self.task = asyncio.create_task(self._stay(), name=f"line to {peer}")

    @property
    def is_over(self) -> bool:
        return self.task.done()

    async def wait(self) -> None:
        """Until the line was open once; raises why it was not."""
        await asyncio.shield(self._first)

    async def close(self) -> None:
        self._is_closing = True
        conversation = self._correspondent.conversations.get(self.peer)
        if conversation is not None and not self.task.done():
            await conversation.close("bye")
            await asyncio.wait((self.task,), timeout=limits.AGP_CLOSE_SECONDS)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if not self._first.done():
            self._first.cancel()

    async def _stay(self) -> None:
        while True:
            try:
                await self._converse()
            except PeerClosed as error:
                reason = error.reason or "the other side ended it"
            except LinkLost as error:
                reason = error.reason or "the connection was lost"
            except PeerError as error:
                reason = f"{error.code}: {error.message}"
                if error.code in _FINAL_CODES and not error.retryable:
                    self._give_up(_refusal_error(self.peer, error))
                    return
            except WaypostError as error:
                reason = error.message
                if self._is_turned_away(error) or not self._first.done():
                    self._give_up(error)
                    return
            if self._is_closing:
                return
            await self._wait(reason)

    def _is_turned_away(self, error: WaypostError) -> bool:
        """Whether the door stays shut. What we have to refuse once we are in may be better on the next line."""
        return not self._is_inside and isinstance(error, (Unauthorized, Forbidden))

    async def _converse(self) -> None:
        self._is_inside = False
        contact = await self._find(self.peer)
        if contact.url is None:
            raise Unavailable(
                f"Nothing says where {self.peer} can be talked to.",
                path="to",
                hint="Its ADP document names no endpoints.chat; give an address with --url.",
            )
        link: AgpLink = await dial(contact.url, token=contact.token, tls=self._tls, address=contact.address)
        self._is_inside = True
        if self._wrap is not None:
            link = self._wrap(link)
        await self._correspondent.converse(
            link, peer=self.peer, peers=self._peers, opened=self._on_open, on_control=self._on_control
        )

    async def _on_open(self, conversation: AgpConnection) -> None:
        self._attempt = 0
        if self._opened is not None:
            await self._opened(conversation)
        if not self._first.done():
            self._first.set_result(None)
        self._tell(PeerConnectionEvent(peer=self.peer, event="open", verdict=conversation.verdict()))

    async def _wait(self, reason: str) -> None:
        if not self._first.done():
            self._first.set_exception(
                Unavailable(f"{self.peer} cannot be talked to: {reason}.", path="to", hint="It is tried again.")
            )
            self._first.exception()
        least, most = limits.SOCKET_BACKOFF_SECONDS
        seconds = random.uniform(least / 20, min(most, least * 2**self._attempt))
        self._attempt = min(self._attempt + 1, 16)
        self._tell(PeerConnectionEvent(peer=self.peer, event="lost", reason=reason, again_in_seconds=seconds))
        await self._pause(seconds)

    def _give_up(self, error: WaypostError) -> None:
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()
        self._tell(PeerConnectionEvent(peer=self.peer, event="refused", reason=error.message))

    def _tell(self, news: PeerConnectionEvent) -> None:
        self.reason = news.reason
        if self._news is not None:
            self._news(news)


def _refusal_error(peer: str, fault: PeerError) -> WaypostError:
    kind = {"bad_signature": BadSignature, "fingerprint_mismatch": FingerprintMismatch, "not_authorized": Forbidden}
    return kind.get(fault.code, Unauthorized)(
        f"{peer} refuses the conversation ({fault.code}): {fault.message}",
        path="to",
        hint="The other side must know the key of this agent: publish it, or have it pinned there.",
    )
