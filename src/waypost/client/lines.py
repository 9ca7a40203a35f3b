"""A line to one agent: opened when it is needed, opened again when it is lost, given up when the other side refuses us."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from waypost import limits
from waypost.client.agp_link import dial
from waypost.client.contacts import Contact
from waypost.errors import BadSignature, FingerprintMismatch, Forbidden, Unauthorized, Unavailable, WaypostError
from waypost.meeting.conversation import Control, Conversation, Ended, PeerFault
from waypost.meeting.correspondent import Correspondent
from waypost.meeting.link import Link, LinkLost
from waypost.meeting.peers import PeerKeys
from waypost.model.verdict import Verdict

_FINAL = frozenset(("unknown_peer", "fingerprint_mismatch", "bad_signature", "not_authorized", "unsupported_type"))
Event = Literal["open", "lost", "kept", "refused"]


class LineNews(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a line."""

    peer: str
    event: Event
    reason: str = ""
    again_in_seconds: float | None = None
    verdict: Verdict | None = None


class Line:
    def __init__(
        self,
        correspondent: Correspondent,
        peer: str,
        find: Callable[[str], Awaitable[Contact]],
        peers: PeerKeys,
        *,
        tls: ssl.SSLContext | None = None,
        news: Callable[[LineNews], None] | None = None,
        wrap: Callable[[Link], Link] | None = None,
        opened: Callable[[Conversation], Awaitable[None]] | None = None,
        on_control: Control | None = None,
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
            except Ended as error:
                reason = error.reason or "the other side ended it"
            except LinkLost as error:
                reason = error.reason or "the connection was lost"
            except PeerFault as error:
                reason = f"{error.code}: {error.message}"
                if error.code in _FINAL and not error.retryable:
                    self._give_up(_refused(self.peer, error))
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
        link: Link = await dial(contact.url, token=contact.token, tls=self._tls, address=contact.address)
        self._is_inside = True
        if self._wrap is not None:
            link = self._wrap(link)
        await self._correspondent.converse(
            link, peer=self.peer, peers=self._peers, opened=self._on_open, on_control=self._on_control
        )

    async def _on_open(self, conversation: Conversation) -> None:
        self._attempt = 0
        if self._opened is not None:
            await self._opened(conversation)
        if not self._first.done():
            self._first.set_result(None)
        self._tell(LineNews(peer=self.peer, event="open", verdict=conversation.verdict()))

    async def _wait(self, reason: str) -> None:
        if not self._first.done():
            self._first.set_exception(
                Unavailable(f"{self.peer} cannot be talked to: {reason}.", path="to", hint="It is tried again.")
            )
            self._first.exception()
        least, most = limits.SOCKET_BACKOFF_SECONDS
        seconds = random.uniform(least / 20, min(most, least * 2**self._attempt))
        self._attempt = min(self._attempt + 1, 16)
        self._tell(LineNews(peer=self.peer, event="lost", reason=reason, again_in_seconds=seconds))
        await self._pause(seconds)

    def _give_up(self, error: WaypostError) -> None:
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()
        self._tell(LineNews(peer=self.peer, event="refused", reason=error.message))

    def _tell(self, news: LineNews) -> None:
        self.reason = news.reason
        if self._news is not None:
            self._news(news)


def _refused(peer: str, fault: PeerFault) -> WaypostError:
    kind = {"bad_signature": BadSignature, "fingerprint_mismatch": FingerprintMismatch, "not_authorized": Forbidden}
    return kind.get(fault.code, Unauthorized)(
        f"{peer} refuses the conversation ({fault.code}): {fault.message}",
        path="to",
        hint="The other side must know the key of this agent: publish it, or have it pinned there.",
    )
