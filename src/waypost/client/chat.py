"""Messages of a chat (AGP) in a program, and what its handlers reply."""

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
    """A message of another agent.

    Example:
        @agent.on_chat
        async def answer(message: ChatMessage) -> str:
            return f"{message.sender} said {message.text}"
    """

    id: str
    sender: str
    text: str
    content_type: str = PLAIN
    kind: str = "chat"
    reply_to: str | None = None
    more: bool = False  # further parts of the same reply follow
    again: bool = False  # the handler may have seen it before the process crashed
    verified: bool = False  # both sides had verified each other when it arrived (`peer-verified`)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a message: its text, the parts that it arrived in, and the verification of the peer.

    Example:
        reply = await agent.chat("agent:bob.example.com", "Hello")
        print(reply.text, reply.verdict)
    """

    text: str
    parts: tuple[ChatMessage, ...]
    verdict: Verdict | None = None

    def __str__(self) -> str:
        return self.text


HandlerResult: TypeAlias = "str | MessageContent | None"
ChatHandler: TypeAlias = Callable[
    [ChatMessage], "Awaitable[HandlerResult] | AsyncIterator[HandlerResult] | HandlerResult"
]
LateReplyHandler: TypeAlias = Callable[[ChatMessage], Awaitable[None]]


class HandlerReplies:
    """The replies of a handler: one text, none, or parts and an end marker.

    An iterator class instead of a generator, because most handlers reply once and a generator costs more.
    """

    __slots__ = ("_handler", "_is_called", "_message", "_parts")

    def __init__(self, handler: ChatHandler | None, message: AgentMessage) -> None:
        """Prepare the call of a handler.

        Args:
            handler: The handler; None replies with a fixed text.
            message: The message that it is called with.
        """
        self._handler = handler
        self._message = message
        self._parts: AsyncIterator[MessageContent] | None = None
        self._is_called = False

    def __aiter__(self) -> AsyncIterator[MessageContent]:
        return self

    async def __anext__(self) -> MessageContent:
        if self._parts is not None:
            return await anext(self._parts)
        if self._is_called:
            raise StopAsyncIteration
        self._is_called = True
        if self._handler is None:
            return MessageContent(text="This agent has no handler for chats.")
        result: Any = self._handler(chat_message(self._message))
        if type(result) is CoroutineType:  # the usual case
            result = await result
        elif hasattr(result, "__aiter__"):
            self._parts = _parts(result)
            return await anext(self._parts)
        elif inspect.isawaitable(result):
            result = await result
        if result is None:
            raise StopAsyncIteration
        return _content(result)


async def _parts(results: AsyncIterator[HandlerResult]) -> AsyncIterator[MessageContent]:
    async for result in results:
        yield msgspec.structs.replace(_content(result), more=True)
    yield MessageContent()


def _content(result: HandlerResult) -> MessageContent:
    return result if isinstance(result, MessageContent) else MessageContent(text=str(result or ""))


def chat_message(message: AgentMessage) -> ChatMessage:
    """A stored message as handlers see it.

    Args:
        message: The message.
    """
    return ChatMessage(
        id=message.id,
        sender=message.peer,
        text=message.content.text,
        content_type=message.content.type,
        kind=message.kind,
        reply_to=message.content.reply_to,
        more=message.content.more,
        again=message.again,
        verified=message.verified,
    )
