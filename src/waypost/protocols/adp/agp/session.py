"""An AGP session without its socket: frames and times in, events and frames to send out.

The states are a table: (state, event) → state. The side that connects is the caller and speaks first. The caller
verifies its peer by a hello that echoes its nonce, the answerer by the acknowledgement of its own nonce. Older hellos
do not prove that the peer is present now: those sessions are open, but capped (P-2).

The handshake pauses where a key is needed (`HelloReceived`): the driver of the session finds it and calls `admit`.
Afterwards every message is verified before it is used. Faults are raised; `fault_frame` reports them to the peer.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import msgspec

from waypost import limits
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
from waypost.protocols.adp.agp.hello import AgpIdentity, Hello, find_hello, hello_content, write_legacy_answer
from waypost.protocols.adp.agp.messages import (
    HOW_TO_SIGN,
    UNKNOWN_AGENT,
    AgpMessage,
    MessageContent,
    ParallelMap,
    UnsignedMessage,
    VerifyingKey,
    acknowledged_ids,
    check_time,
    claimed_sender,
    parse_message,
    read_action,
    read_frame,
    read_message,
    verify,
    write_action,
    write_message,
    write_messages,
)


class SessionState(StrEnum):
    CALLING = "calling"  # our hello is sent, waiting for theirs
    LISTENING = "listening"  # waiting for their hello
    JUDGING_ANSWER = "judging answer"  # their hello is received, waiting for their key
    JUDGING_CALL = "judging call"
    ANSWERED = "answered"  # our hello is sent, waiting for the acknowledgement of our nonce
    OPEN = "open"  # verified in both directions
    CAPPED = "capped"  # open, without proof that the peer is present now
    ENDED = "ended"


class SessionEvent(StrEnum):
    HELLO = "hello"
    OLDER_HELLO = "older hello"
    ADMITTED = "admitted"
    ADMITTED_OLDER = "admitted, older"
    NONCE_ACK = "nonce acknowledged"
    MESSAGE = "message"
    FAULT = "fault"
    DISCONNECT = "disconnect"


_LIVE = (
    SessionState.CALLING,
    SessionState.LISTENING,
    SessionState.JUDGING_ANSWER,
    SessionState.JUDGING_CALL,
    SessionState.ANSWERED,
    SessionState.OPEN,
    SessionState.CAPPED,
)

TRANSITIONS: Final[dict[tuple[SessionState, SessionEvent], SessionState]] = {
    (SessionState.CALLING, SessionEvent.HELLO): SessionState.JUDGING_ANSWER,
    (SessionState.CALLING, SessionEvent.OLDER_HELLO): SessionState.JUDGING_ANSWER,
    (SessionState.JUDGING_ANSWER, SessionEvent.ADMITTED): SessionState.OPEN,
    (SessionState.JUDGING_ANSWER, SessionEvent.ADMITTED_OLDER): SessionState.CAPPED,
    (SessionState.LISTENING, SessionEvent.HELLO): SessionState.JUDGING_CALL,
    (SessionState.LISTENING, SessionEvent.OLDER_HELLO): SessionState.JUDGING_CALL,
    (SessionState.JUDGING_CALL, SessionEvent.ADMITTED): SessionState.ANSWERED,
    (SessionState.JUDGING_CALL, SessionEvent.ADMITTED_OLDER): SessionState.CAPPED,
    (SessionState.ANSWERED, SessionEvent.NONCE_ACK): SessionState.OPEN,
    (SessionState.OPEN, SessionEvent.MESSAGE): SessionState.OPEN,
    (SessionState.CAPPED, SessionEvent.MESSAGE): SessionState.CAPPED,
    **{(state, SessionEvent.FAULT): SessionState.ENDED for state in _LIVE},
    **{(state, SessionEvent.DISCONNECT): SessionState.ENDED for state in _LIVE},
}


def find_next_state(state: SessionState, event: SessionEvent) -> SessionState | None:
    return TRANSITIONS.get((state, event))


def mermaid_diagram() -> str:
    """Return the table as a Mermaid diagram. Faults and disconnects end every state; they are one arrow each."""
    names = {state: state.value.replace(" ", "_") for state in SessionState}
    lines = ["stateDiagram-v2", "    [*] --> calling: we connect", "    [*] --> listening: they connect"]
    for (state, event), target in TRANSITIONS.items():
        if target is not SessionState.ENDED:
            lines.append(f"    {names[state]} --> {names[target]}: {event.value}")
    lines += [f"    {names[state]} --> ended" for state in (SessionState.OPEN, SessionState.CAPPED)]
    return "\n".join([*lines, "    ended --> [*]"])


# --- Replay protection ----------------------------------------------------------------------------

_Key = tuple[str, str]


class ReplayCache:
    """The messages of one process by sender and id, while a replay could be accepted (ADP-50); the oldest are dropped
    first.

    Acknowledged messages are also stored on disk, for longer (`messaging/message_store.py`).
    """

    def __init__(self, most: int = limits.AGP_REPLAY_CACHE, seconds: float = limits.AGP_REPLAY_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._seen: OrderedDict[_Key, float] = OrderedDict()
        self._oldest = float("inf")  # lower bound of all entries

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, sender: str, message_id: str) -> None:
        if (sender, message_id) in self._seen:
            raise _replayed()

    def check_and_add(self, sender: str, message_id: str, now: float) -> None:
        before = len(self._seen)
        self._seen.setdefault((sender, message_id), now)
        if len(self._seen) == before:
            self.check(sender, message_id)
        self._trim(now)

    def add(self, sender: str, message_id: str, now: float) -> None:
        self._seen[sender, message_id] = now
        self._trim(now)

    def _trim(self, now: float) -> None:
        if now < self._oldest:
            self._oldest = now
        if len(self._seen) > self._most or self._oldest <= now - self._seconds:
            self._evict(now)

    def _evict(self, now: float) -> None:
        while self._seen:
            first = next(iter(self._seen))
            self._oldest = self._seen[first]
            if len(self._seen) <= self._most and self._oldest > now - self._seconds:
                return
            del self._seen[first]


# --- The session ----------------------------------------------------------------------------------


class PeerVerifyingKey(VerifyingKey, Protocol):
    def fingerprint(self) -> str | None: ...


class HelloReceived(msgspec.Struct, frozen=True):
    """The peer sent a hello: find its key, then call `admit`."""

    hello: Hello


class SessionOpened(msgspec.Struct, frozen=True):
    """Both sides are verified."""


class MessageReceived(msgspec.Struct, frozen=True):
    """A chat or task message."""

    message: AgpMessage


class AckReceived(msgspec.Struct, frozen=True):
    ids: tuple[str, ...]


class ControlReceived(msgspec.Struct, frozen=True):
    """A control message other than a hello. Before the peer is verified it is informative only."""

    action: JsonObject
    message: AgpMessage
    verified: bool


SessionOutput: TypeAlias = HelloReceived | SessionOpened | MessageReceived | AckReceived | ControlReceived


class RandomSource(Protocol):
    """Random ids and nonces."""

    def message_id(self) -> str: ...

    def nonce(self) -> bytes: ...


class AgpSession:
    def __init__(
        self,
        me: AgpIdentity,
        random: RandomSource,
        *,
        peer: str | None = None,
        calls: bool,
        memory: ReplayCache | None = None,
    ) -> None:
        """`calls`: we connected to `peer`, and speak first."""
        self.me = me
        self.peer = peer
        self.peer_key: PeerVerifyingKey | None = None
        self.state = SessionState.CALLING if calls else SessionState.LISTENING
        self._random = random
        self._replays = memory if memory is not None else ReplayCache()
        self._nonce = urlsafe_b64encode(random.nonce()).rstrip(b"=").decode()
        self._hello: Hello | None = None
        self._claimed_peer = UNKNOWN_AGENT  # unverified sender of the first frame
        self._seen: set[str] = set()  # ids of this session, within the retention of the cache

    @property
    def is_open(self) -> bool:
        return self.state is SessionState.OPEN or self.state is SessionState.CAPPED

    @property
    def is_verified(self) -> bool:
        """Whether both sides are verified, with proof that the peer is present (`peer-verified`)."""
        return self.state is SessionState.OPEN

    # --- Outgoing --------------------------------------------------------------------------------

    def call(self, now: float) -> str:
        """Return the first frame of the caller."""
        return self.write("system", hello_content(self.me, self._nonce), now)

    def write(self, kind: str, content: MessageContent, at: float, *, message_id: str | None = None) -> str:
        if self.peer is None:
            raise InvalidDocument("The peer has not sent a hello yet.", path="$.to", hint="Wait for the peer.")
        return write_message(
            self.me.key,
            message_id=message_id or self._random.message_id(),
            sender=self.me.agent,
            to=self.peer,
            kind=kind,
            at=at,
            content=content,
        )

    def write_each(self, messages: Sequence[UnsignedMessage], parallel_map: ParallelMap) -> Iterator[str]:
        """Yield the frames of several messages; all are signed before the first is yielded."""
        if self.peer is None:
            raise InvalidDocument("The peer has not sent a hello yet.", path="$.to", hint="Wait for the peer.")
        return write_messages(self.me.key, self.me.agent, self.peer, messages, parallel_map)

    def acknowledge(self, ids: tuple[str, ...], now: float) -> str:
        return self.write("ack", MessageContent(text=" ".join(ids), reply_to=ids[-1]), now)

    def control(self, action: str, now: float, **members: object) -> str:
        return self.write("system", write_action(action, **members), now)

    def fault_frame(self, error: WaypostError, now: float, *, again: bool = False) -> str:
        """Return the error frame for a fault, also for an unverified peer. `again`: the peer may retry the same."""
        self._move(SessionEvent.FAULT)
        if self.peer is None:
            self.peer = self._claimed_peer
        code = agp_code_of(error)
        retryable = again or code in ("rate_limited", "internal")
        return self.control("error", now, code=code, message=str(error), retryable=retryable)

    # --- Incoming --------------------------------------------------------------------------------

    def receive(self, frame: str | bytes, now: float) -> SessionOutput:
        if self.state is SessionState.OPEN or self.state is SessionState.CAPPED:
            message = parse_message(frame)
            self._check(message, now)
            return MessageReceived(message) if message.type == "chat" else self._read_other(message)
        document = read_frame(frame)
        self._claimed_peer = claimed_sender(document)
        hello = find_hello(document)
        if hello is not None:
            return self._read_hello(hello, now)
        message = read_message(document)
        if message.type == "system":
            return self._read_unverified_control(message, now)
        if self.state is not SessionState.ANSWERED:
            raise Unauthorized(
                "A session starts with a hello.",
                path="$.type",
                hint="Send a system message with the action hello first.",
            )
        self._check(message, now)
        if message.type != "ack" or not hmac.compare_digest(message.content.text.encode(), self._nonce.encode()):
            raise Unauthorized(
                "The hello was not acknowledged.",
                path="$.body.content",
                hint="Reply with an ack of the nonce in our hello.",
            )
        self._move(SessionEvent.NONCE_ACK)
        return SessionOpened()

    def admit(self, key: PeerVerifyingKey, now: float) -> list[str]:
        """Verify the peer's hello with `key`; return the frames to send."""
        hello = self._hello
        if hello is None:
            raise InvalidDocument("The peer has not sent a hello yet.", path="$.type", hint="Wait for the peer.")
        if key.fingerprint() != hello.fingerprint:
            raise FingerprintMismatch(
                f"{hello.agent} has the key {hello.fingerprint}; the known key is {key.fingerprint()}.",
                path="$.body.content.fingerprint",
                hint="Use the key that the agent's domain publishes.",
            )
        signed = hello.message
        if signed is not None and not verify(key, signed.signature, signed.signing_input):
            raise BadSignature("The hello is not signed by its key.", path="$.signature", hint=HOW_TO_SIGN)
        self.peer_key = key
        was_calling = self.state is SessionState.JUDGING_ANSWER
        self._move(SessionEvent.ADMITTED if hello.form == "system" else SessionEvent.ADMITTED_OLDER)
        if hello.form != "system":
            return [] if was_calling else [self._legacy_answer(hello, now)]
        if was_calling:
            return [self.write("ack", MessageContent(text=hello.nonce, reply_to=signed.id if signed else None), now)]
        reply_to = signed.id if signed else None
        return [self.write("system", hello_content(self.me, self._nonce, echo=hello.nonce, reply_to=reply_to), now)]

    def _legacy_answer(self, hello: Hello, now: float) -> str:
        return write_legacy_answer(self.me, hello, message_id=self._random.message_id(), nonce=self._nonce, at=now)

    def _read_hello(self, hello: Hello, now: float) -> HelloReceived:
        calling = self.state is SessionState.CALLING
        self._move_or_raise(SessionEvent.HELLO if hello.form == "system" else SessionEvent.OLDER_HELLO)
        if not calling:
            self.peer = hello.agent  # so that a rejected peer gets the reason
        if hello.to not in (self.me.agent, None):
            raise _not_for_us(hello.to)
        if calling and hello.agent != self.peer:
            raise Forbidden(
                f"{hello.agent} answered instead of {self.peer}.", path="$.from", hint="Call the right agent."
            )
        if hello.message is not None:
            check_time(hello.message, now)
            self._replays.check(hello.agent, hello.message.id)
            self._replays.add(hello.agent, hello.message.id, now)
        if calling and hello.form == "system" and not hmac.compare_digest(hello.echo.encode(), self._nonce.encode()):
            raise Replayed(
                "The hello does not echo our nonce.",
                path="$.body.content.echo",
                hint="Reply to the hello that was sent.",
            )
        self._hello = hello
        return HelloReceived(hello)

    def _read_unverified_control(self, message: AgpMessage, now: float) -> ControlReceived:
        """Read a control message before the peer is verified: usually the reason why it rejects us."""
        if message.to != self.me.agent:
            raise _not_for_us(message.to)
        check_time(message, now)
        return ControlReceived(read_action(message), message, False)

    def _check(self, message: AgpMessage, now: float) -> None:
        self._check_claims(message, now)
        if self.peer_key is None or not verify(self.peer_key, message.signature, message.signing_input):
            raise _not_signed()
        self._remember(message, now)

    def _check_claims(self, message: AgpMessage, now: float) -> None:
        """Check receiver, sender, time and id; the signature is checked separately."""
        if message.to != self.me.agent:
            raise _not_for_us(message.to)
        if message.sender != self.peer:
            raise Forbidden(f"This session is with {self.peer}.", path="$.from", hint="Open one session per agent.")
        check_time(message, now)
        if message.id in self._seen:
            raise _replayed()

    def _remember(self, message: AgpMessage, now: float) -> None:
        """Record the message. The same id with a new signature is allowed in a later session: that is a
        retransmission."""
        self._replays.check_and_add(message.sender, message.signature, now)
        self._seen.add(message.id)
        if len(self._seen) > 4096:
            self._seen = {message.id}  # the cache still has the others

    def _read_other(self, message: AgpMessage) -> SessionOutput:
        if message.type == "ack":
            return AckReceived(acknowledged_ids(message))
        if message.type != "system":
            return MessageReceived(message)
        return ControlReceived(read_action(message), message, True)

    # --- State -----------------------------------------------------------------------------------

    def end(self) -> None:
        self._move(SessionEvent.DISCONNECT)

    def _move(self, event: SessionEvent) -> None:
        target = find_next_state(self.state, event)
        if target is not None:
            self.state = target

    def _move_or_raise(self, event: SessionEvent) -> None:
        target = find_next_state(self.state, event)
        if target is None:
            raise InvalidDocument(
                f"A {event.value} is not allowed while the session is {self.state.value}.",
                path="$.type",
                hint="Each side sends one hello.",
            )
        self.state = target


def _not_for_us(to: str | None) -> Forbidden:
    return Forbidden(f"The message is for {str(to)[:80]}.", path="$.to", hint="Send it to that agent.")


def _replayed() -> Replayed:
    return Replayed("This message was already received.", path="$.id", hint="Use a new id for each message.")


def _not_signed() -> BadSignature:
    return BadSignature("The message is not signed by its sender's key.", path="$.signature", hint=HOW_TO_SIGN)
