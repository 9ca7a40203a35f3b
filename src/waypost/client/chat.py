"""What is said to an agent in a program of one's own, and what its handlers say."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from types import CoroutineType
from typing import Any, TypeAlias

import msgspec

from waypost.messaging.message_store import AgentMessage
from waypost.model.verdict import Verdict
from waypost.protocols.adp.agp.messages import PLAIN, MessageContent


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What another agent said. `again`: it was handed over before a crash, and nobody knows how far that went."""

    id: str
    sender: str
    text: str
    content_type: str = PLAIN
    kind: str = "chat"
    reply_to: str | None = None
    more: bool = False  # further parts of the same answer follow
    again: bool = False
    verified: bool = False  # both sides were proven when it came (`peer-verified`)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to what was said."""

    text: str
    parts: tuple[ChatMessage, ...]
    verdict: Verdict | None = None

    def __str__(self) -> str:
        return self.text


Said: TypeAlias = "str | MessageContent | None"
ChatHandler: TypeAlias = Callable[[ChatMessage], "Awaitable[Said] | AsyncIterator[Said] | Said"]
LateReplyHandler: TypeAlias = Callable[[ChatMessage], Awaitable[None]]


class HandlerReplies:
    """What a handler says: one text, none, or parts with an end that has a mark of its own. No generator: most say one."""

    __slots__ = ("_handler", "_is_said", "_letter", "_parts")

    def __init__(self, handler: ChatHandler | None, letter: AgentMessage) -> None:
        self._handler = handler
        self._letter = letter
        self._parts: AsyncIterator[MessageContent] | None = None
        self._is_said = False

    def __aiter__(self) -> AsyncIterator[MessageContent]:
        return self

    async def __anext__(self) -> MessageContent:
        if self._parts is not None:
            return await anext(self._parts)
        if self._is_said:
            raise StopAsyncIteration
        self._is_said = True
        if self._handler is None:
            return MessageContent(text="This agent listens, but has nothing to say.")
        said: Any = self._handler(chat_message(self._letter))
        if type(said) is CoroutineType:  # nearly always
            said = await said
        elif hasattr(said, "__aiter__"):
            self._parts = _parts(said)
            return await anext(self._parts)
        elif inspect.isawaitable(said):
            said = await said
        if said is None:
            raise StopAsyncIteration
        return _content(said)


async def _parts(said: AsyncIterator[Said]) -> AsyncIterator[MessageContent]:
    async for part in said:
        yield msgspec.structs.replace(_content(part), more=True)
    yield MessageContent()


def _content(said: Said) -> MessageContent:
    return said if isinstance(said, MessageContent) else MessageContent(text=str(said or ""))


def chat_message(letter: AgentMessage) -> ChatMessage:
    return ChatMessage(
        id=letter.id,
        sender=letter.peer,
        text=letter.content.text,
        content_type=letter.content.type,
        kind=letter.kind,
        reply_to=letter.content.reply_to,
        more=letter.content.more,
        again=letter.again,
        verified=letter.verified,
    )
