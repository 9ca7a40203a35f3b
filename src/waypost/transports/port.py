"""Why a connection failed, in the words of the system: libraries wrap them in addresses and numbers that nobody asked for."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from waypost.model.json import JsonObject
from waypost.model.principal import Principal
from waypost.model.verdict import Verdict
from waypost.protocols.announce.messages import AgentQuery


def describe_failure(error: BaseException | None) -> str:
    if error is None:
        return "it does not answer"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


# ---- What every carrier of announcements offers (announce.md §6, P-20), whatever it is made of.
#
# A transport carries messages verbatim: it knows no registry and no policy. Whoever calls it signs what is announced, repeats
# it in time, and judges what is heard. Callbacks never run under a lock, and may call the transport again.

QUERY_SECONDS = 5.0

SightingKind = Literal["added", "updated", "rotated", "removed", "expired", "suspect"]


class TransportClock(Protocol):
    def now(self) -> float:
        """Unix seconds."""
        ...


class Ack(msgspec.Struct, frozen=True):
    """What became of an announcement, as far as the transport can tell. A broadcast is accepted once it was sent."""

    accepted: bool
    expires_at: float | None = None
    reason: str = ""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a listener noticed of one agent."""

    kind: SightingKind
    agent_id: str  # lower case
    message: JsonObject | None  # the Announce or Response verbatim, the last one that was accepted
    transport: str
    source: str  # where it came from: an address, a subject; for showing, never for trust
    at: float
    ttl: int
    verdicts: tuple[Verdict, ...] = ()  # what the listener found of its signature and key


class MessageSender(Protocol):
    """Who sent a message, to a carrier that strangers can reach."""

    def is_flood(self) -> bool:
        """Whether it was found to flood since the message came: what still waits of it is not worth its turn."""
        ...

    def believe(self) -> None:
        """The message was believed: whoever sent it is heard also when strangers flood."""
        ...


class UnknownSender:
    """Where senders are not told apart, or prove who they are."""

    def is_flood(self) -> bool:
        return False

    def believe(self) -> None: ...


UNKNOWN_SENDER = UnknownSender()


class MessageContext(msgspec.Struct, frozen=True, kw_only=True):
    """How a message came in. `authenticated` is who the session proved to be, where the transport can prove that."""

    transport: str
    source: str
    authenticated: Principal | None = None
    sender: MessageSender = UNKNOWN_SENDER


SightingCallback: TypeAlias = Callable[[Sighting], None]

QueryHandler: TypeAlias = Callable[[AgentQuery], Awaitable[list[JsonObject]]]

MessageHandler: TypeAlias = Callable[[JsonObject, MessageContext], Awaitable[JsonObject | None]]


class Subscription(Protocol):
    def close(self) -> None:
        """No further call; may be called twice, and from within the callback."""
        ...


class Transport(Protocol):
    name: str  # mdns udp ws bus memory

    async def open(self) -> None:
        """Take the sockets. Raises a WaypostError that says what is in the way."""
        ...

    async def close(self) -> None:
        """Give everything back. Nothing is withdrawn by it: what was announced runs out."""
        ...

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        """Send a signed Announce. Repeating it in time is the caller's business."""
        ...

    async def withdraw(self, agent_id: str) -> None:
        """Take back what was announced here, as far as the transport can. Twice is once."""
        ...

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        """Responses (or Announces) that fit, one for each agent, the one with the newest `__seq`."""
        ...

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscription:
        """Be told of what changes from now on. What is there already is told first, as `added`."""
        ...

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        """Answer queries and hear announcements of others: a registry, or an agent that answers for itself.

        `answer` gives the messages that fit; `heard` may give a message that goes back to the sender alone. A WaypostError
        of either concerns that one message.
        """
        ...


class DropCounts(msgspec.Struct, frozen=True):
    """What became of what was not handled, since the transport was made."""

    dropped: int = 0  # packets that were not even read: too many, or not of the link
    parked: int = 0  # messages that are set aside, at the moment


@runtime_checkable
class CountsDrops(Protocol):
    """A transport that strangers can reach, and that counts what it does not handle."""

    def tally(self) -> DropCounts: ...


@runtime_checkable
class HearsItself(Protocol):
    """A transport that hears its own words, and so can tell that it works (P-30)."""

    def echoed_at(self) -> float | None:
        """When an own announcement last came back; None: not yet."""
        ...
