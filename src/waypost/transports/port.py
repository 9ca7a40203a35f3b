"""The port of all transports that carry announcements (announce.md §6, P-20).

A transport carries messages verbatim and knows no registry and no policy. The caller signs and repeats announcements, and
decides about received ones. Callbacks never run under a lock, and may call the transport again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from waypost.model.json import JsonObject
from waypost.model.principal import Principal
from waypost.model.verdict import Verdict
from waypost.protocols.announce.messages import AgentQuery

QUERY_SECONDS = 5.0

SightingKind = Literal["added", "updated", "rotated", "removed", "expired", "suspect"]


class TransportClock(Protocol):
    def now(self) -> float:
        """Unix seconds."""
        ...


class Ack(msgspec.Struct, frozen=True):
    """The result of an announcement, as far as the transport knows. A broadcast is accepted once it is sent."""

    accepted: bool
    expires_at: float | None = None
    reason: str = ""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one agent that a listener noticed."""

    kind: SightingKind
    agent_id: str  # lower case
    message: JsonObject | None  # the last accepted Announce or Response, verbatim
    transport: str
    source: str  # an address or subject: for display, never for trust
    at: float
    ttl: int
    verdicts: tuple[Verdict, ...] = ()  # of its signature and key


class MessageSender(Protocol):
    """The sender of a message, on a transport that anyone on the network can reach."""

    def is_flooding(self) -> bool:
        """Whether the sender was found to flood after it sent this message; the message need not be handled then."""
        ...

    def mark_known(self) -> None:
        """The message was accepted: packets of this sender are admitted even while unknown senders flood."""
        ...


class UnknownSender:
    """For transports that do not distinguish senders, or authenticate them."""

    def is_flooding(self) -> bool:
        return False

    def mark_known(self) -> None: ...


UNKNOWN_SENDER = UnknownSender()


class MessageContext(msgspec.Struct, frozen=True, kw_only=True):
    """How a message arrived. `authenticated` is the principal of the session, on transports that authenticate."""

    transport: str
    source: str
    authenticated: Principal | None = None
    sender: MessageSender = UNKNOWN_SENDER


SightingCallback: TypeAlias = Callable[[Sighting], None]

QueryHandler: TypeAlias = Callable[[AgentQuery], Awaitable[list[JsonObject]]]

MessageHandler: TypeAlias = Callable[[JsonObject, MessageContext], Awaitable[JsonObject | None]]


class Subscription(Protocol):
    def close(self) -> None:
        """Stop the callbacks. May be called twice, and within the callback."""
        ...


class Transport(Protocol):
    name: str  # mdns udp bus http ws memory

    async def open(self) -> None:
        """Open the sockets. Raises a WaypostError if that fails."""
        ...

    async def close(self) -> None:
        """Release all resources. Announced agents are not withdrawn; they expire."""
        ...

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        """Send a signed Announce. The caller repeats it before it expires."""
        ...

    async def withdraw(self, agent_id: str) -> None:
        """Retract an announcement, as far as the transport can. Idempotent."""
        ...

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        """Matching Responses or Announces: for each agent the one with the highest `__seq`."""
        ...

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscription:
        """Report changes from now on. Agents that are already known are reported first, as `added`."""
        ...

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        """Answer queries and receive announcements of others: for a registry, or an agent that answers for itself.

        `on_query` returns the matching messages; `on_message` may return a message for the sender alone. A WaypostError of
        either concerns that one message.
        """
        ...


class DropCounts(msgspec.Struct, frozen=True):
    dropped: int = 0  # packets that were not parsed, since the transport was created: too many, or from off the link
    parked: int = 0  # messages whose handling failed repeatedly, at the moment


@runtime_checkable
class CountsDrops(Protocol):
    """A transport that anyone on the network can reach, and that counts what it does not handle."""

    def drop_counts(self) -> DropCounts: ...


@runtime_checkable
class ReceivesEchoes(Protocol):
    """A transport that receives its own announcements, and so can tell whether it works (P-30)."""

    def echoed_at(self) -> float | None:
        """When an own announcement was last received; None if it never was."""
        ...


def describe_failure(error: BaseException | None) -> str:
    """The system's text for a connection error. Libraries wrap it in addresses and numbers."""
    if error is None:
        return "it does not answer"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
