"""One session of AGP without its socket: frames and the time go in, what they mean comes out, frames to send come back.

The handshake pauses where a key is needed (`Called`): who drives the session finds it and says `admit`. After that every
message is verified before anything is made of it. A fault is raised, never swallowed; `fault_frame` tells the other side.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import msgspec

from waypost.errors import (
    BadSignature,
    FingerprintMismatch,
    Forbidden,
    InvalidDocument,
    Replayed,
    Unauthorized,
    WaypostError,
    agp_code_of,
)
from waypost.model.json import JsonObject
from waypost.wire.agp import (
    NOBODY,
    Content,
    Message,
    Unsigned,
    acknowledged_ids,
    check_time,
    named_sender,
    parse_message,
    read_action,
    read_frame,
    read_message,
    write_action,
    write_each,
    write_message,
)
from waypost.wire.agp_hello import Hello, Party, find_hello, hello_content, older_answer
from waypost.wire.agp_replay import ReplayMemory
from waypost.wire.agp_signing import Sharing, VerifyingKey, verify
from waypost.wire.agp_states import Event, State, find_next


class PeerKey(VerifyingKey, Protocol):
    def fingerprint(self) -> str | None: ...


class Called(msgspec.Struct, frozen=True):
    """The peer said hello. Find its key, then `admit` it."""

    hello: Hello


class Opened(msgspec.Struct, frozen=True):
    """Both sides are verified."""


class Said(msgspec.Struct, frozen=True):
    """A chat or a task."""

    message: Message


class Acknowledged(msgspec.Struct, frozen=True):
    ids: tuple[str, ...]


class Controlled(msgspec.Struct, frozen=True):
    """A control message other than a hello. `verified` is False before the peer is: then it only informs."""

    action: JsonObject
    message: Message
    verified: bool


Incoming: TypeAlias = Called | Opened | Said | Acknowledged | Controlled


class Draws(Protocol):
    """Where chance comes from."""

    def message_id(self) -> str: ...

    def nonce(self) -> bytes: ...


class AgpSession:
    def __init__(
        self, me: Party, draws: Draws, *, peer: str | None = None, calls: bool, memory: ReplayMemory | None = None
    ) -> None:
        """`calls`: we connected, and speak first, to `peer`."""
        self.me = me
        self.peer = peer
        self.peer_key: PeerKey | None = None
        self.state = State.CALLING if calls else State.LISTENING
        self._draws = draws
        self._memory = memory if memory is not None else ReplayMemory()
        self._nonce = urlsafe_b64encode(draws.nonce()).rstrip(b"=").decode()
        self._hello: Hello | None = None
        self._named = NOBODY  # who the first frame says that it is from
        self._seen: set[str] = set()  # ids of this session, within what the memory keeps

    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN or self.state is State.CAPPED

    @property
    def is_verified(self) -> bool:
        """Both directions, with a proof that the peer is there now (`peer-verified`)."""
        return self.state is State.OPEN

    # --- What goes out ---------------------------------------------------------------------------

    def call(self, now: float) -> str:
        """The first frame of who connects."""
        return self.write("system", hello_content(self.me, self._nonce), now)

    def write(self, kind: str, content: Content, at: float, *, message_id: str | None = None) -> str:
        if self.peer is None:
            raise InvalidDocument("Nobody has said hello yet.", path="$.to", hint="Wait for the peer.")
        return write_message(
            self.me.key,
            message_id=message_id or self._draws.message_id(),
            sender=self.me.agent,
            to=self.peer,
            kind=kind,
            at=at,
            content=content,
        )

    def write_each(self, messages: Sequence[Unsigned], sharing: Sharing) -> Iterator[str]:
        """Frames of messages that leave together: each as `write` makes it, and all of them signed before the first."""
        if self.peer is None:
            raise InvalidDocument("Nobody has said hello yet.", path="$.to", hint="Wait for the peer.")
        return write_each(self.me.key, self.me.agent, self.peer, messages, sharing)

    def acknowledge(self, ids: tuple[str, ...], now: float) -> str:
        return self.write("ack", Content(text=" ".join(ids), reply_to=ids[-1]), now)

    def control(self, action: str, now: float, **members: object) -> str:
        return self.write("system", write_action(action, **members), now)

    def fault_frame(self, error: WaypostError, now: float, *, again: bool = False) -> str:
        """What the other side is told of a fault, whoever it says that it is. `again`: it may come back with the same."""
        self._move(Event.FAULT)
        if self.peer is None:
            self.peer = self._named
        code = agp_code_of(error)
        retryable = again or code in ("rate_limited", "internal")
        return self.control("error", now, code=code, message=str(error), retryable=retryable)

    # --- What comes in ---------------------------------------------------------------------------

    def receive(self, frame: str | bytes, now: float) -> Incoming:
        if self.state is State.OPEN or self.state is State.CAPPED:
            message = parse_message(frame)
            self._check(message, now)
            return Said(message) if message.type == "chat" else self._taken(message)
        document = read_frame(frame)
        self._named = named_sender(document)
        hello = find_hello(document)
        if hello is not None:
            return self._called(hello, now)
        message = read_message(document)
        if message.type == "system":
            return self._early(message, now)
        if self.state is not State.ANSWERED:
            raise Unauthorized("The session begins with a hello.", path="$.type", hint="Say hello first (adp.md §6.2).")
        self._check(message, now)
        if message.type != "ack" or not hmac.compare_digest(message.content.text.encode(), self._nonce.encode()):
            raise Unauthorized(
                "The hello was not acknowledged.", path="$.body.content", hint="Answer with an ack of our nonce (P-2)."
            )
        self._move(Event.NONCE_ACK)
        return Opened()

    def admit(self, key: PeerKey, now: float) -> list[str]:
        """The peer's key is `key`: judge its hello by it, and say what is to be said."""
        hello = self._hello
        if hello is None:
            raise InvalidDocument("Nobody has said hello yet.", path="$.type", hint="Wait for the peer.")
        if key.fingerprint() != hello.fingerprint:
            raise FingerprintMismatch(
                f"{hello.agent} shows the key {hello.fingerprint}; the one that is known is {key.fingerprint()}.",
                path="$.body.content.fingerprint",
                hint="Use the key that the agent's domain publishes.",
            )
        signed = hello.message
        if signed is not None and not verify(key, signed.signature, signed.covered):
            raise BadSignature("The hello is not signed by its key.", path="$.signature", hint="Sign it (ADP-42).")
        self.peer_key = key
        was_calling = self.state is State.JUDGING_ANSWER
        self._move(Event.ADMITTED if hello.form == "system" else Event.ADMITTED_OLDER)
        if hello.form != "system":
            return [] if was_calling else [self._older_answer(hello, now)]
        if was_calling:
            return [self.write("ack", Content(text=hello.nonce, reply_to=signed.id if signed else None), now)]
        reply_to = signed.id if signed else None
        return [self.write("system", hello_content(self.me, self._nonce, echo=hello.nonce, reply_to=reply_to), now)]

    def _older_answer(self, hello: Hello, now: float) -> str:
        return older_answer(self.me, hello, message_id=self._draws.message_id(), nonce=self._nonce, at=now)

    def _called(self, hello: Hello, now: float) -> Called:
        calling = self.state is State.CALLING
        self._move_or_refuse(Event.HELLO if hello.form == "system" else Event.OLDER_HELLO)
        if not calling:
            self.peer = hello.agent  # whoever is refused is told why
        if hello.to not in (self.me.agent, None):
            raise _not_for_us(hello.to)
        if calling and hello.agent != self.peer:
            raise Forbidden(
                f"{hello.agent} answers for {self.peer}.", path="$.from", hint="Ask the agent that is meant."
            )
        if hello.message is not None:
            check_time(hello.message, now)
            self._memory.check(hello.agent, hello.message.id)
            self._memory.note(hello.agent, hello.message.id, now)
        if calling and hello.form == "system" and not hmac.compare_digest(hello.echo.encode(), self._nonce.encode()):
            raise Replayed(
                "The hello does not echo our nonce.", path="$.body.content.echo", hint="Answer the hello that was sent."
            )
        self._hello = hello
        return Called(hello)

    def _early(self, message: Message, now: float) -> Controlled:
        """A control message before the peer is verified: why it will not be, as a rule."""
        if message.to != self.me.agent:
            raise _not_for_us(message.to)
        check_time(message, now)
        return Controlled(read_action(message), message, False)

    def _check(self, message: Message, now: float) -> None:
        self._check_claims(message, now)
        if self.peer_key is None or not verify(self.peer_key, message.signature, message.covered):
            raise _not_signed()
        self._remember(message, now)

    def _check_claims(self, message: Message, now: float) -> None:
        """What it says, whoever says so."""
        if message.to != self.me.agent:
            raise _not_for_us(message.to)
        if message.sender != self.peer:
            raise Forbidden(
                f"This session is with {self.peer}.", path="$.from", hint="Open a session for each agent that speaks."
            )
        check_time(message, now)
        if message.id in self._seen:
            raise _was_here()

    def _remember(self, message: Message, now: float) -> None:
        """An id that was here in an earlier session may come again, signed anew: that is how a message is sent again."""
        self._memory.take(message.sender, message.signature, now)
        self._seen.add(message.id)
        if len(self._seen) > 4096:
            self._seen = {message.id}  # the memory above still knows the others

    def _taken(self, message: Message) -> Incoming:
        if message.type == "ack":
            return Acknowledged(acknowledged_ids(message))
        if message.type != "system":
            return Said(message)
        return Controlled(read_action(message), message, True)

    # --- The table -------------------------------------------------------------------------------

    def end(self) -> None:
        self._move(Event.DISCONNECT)

    def _move(self, event: Event) -> None:
        target = find_next(self.state, event)
        if target is not None:
            self.state = target

    def _move_or_refuse(self, event: Event) -> None:
        target = find_next(self.state, event)
        if target is None:
            raise InvalidDocument(
                f"A {event.value} does not come while the session is {self.state.value}.",
                path="$.type",
                hint="One hello of each side opens a session.",
            )
        self.state = target


def _not_for_us(to: str | None) -> Forbidden:
    return Forbidden(f"The message is for {str(to)[:80]}.", path="$.to", hint="Send it to the agent that it is for.")


def _was_here() -> Replayed:
    return Replayed("This message was here before.", path="$.id", hint="Give each message an id of its own.")


def _not_signed() -> BadSignature:
    return BadSignature("The message is not signed by its sender's key.", path="$.signature", hint="Sign it (ADP-42).")
