"""What is said to an agent in a program of one's own, and what its handlers say."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from waypost.meeting.mail import Letter
from waypost.model.verdict import Verdict
from waypost.wire.agp import PLAIN, Content


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
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


Said: TypeAlias = "str | Content | None"
Handler: TypeAlias = Callable[[ChatMessage], "Awaitable[Said] | AsyncIterator[Said] | Said"]
LateHandler: TypeAlias = Callable[[ChatMessage], Awaitable[None]]


async def answers_of(handler: Handler | None, letter: Letter) -> AsyncIterator[Content]:
    """What a handler says: one text, none, or parts with an end that has a mark of its own."""
    if handler is None:
        yield Content(text="This agent listens, but has nothing to say.")
        return
    said: Any = handler(message_of(letter))
    if inspect.isasyncgen(said) or hasattr(said, "__aiter__"):
        async for part in said:
            yield msgspec.structs.replace(_content(part), more=True)
        yield Content()
        return
    if inspect.isawaitable(said):
        said = await said
    if said is not None:
        yield _content(said)


def _content(said: Said) -> Content:
    return said if isinstance(said, Content) else Content(text=str(said or ""))


def message_of(letter: Letter) -> ChatMessage:
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
