"""AGP messages (adp.md §6.3–6.7): one signed JSON object per text frame.

The signature covers six texts joined by line feeds. A control character in one of the first five would let two messages
share one signing input, so they are rejected (P-3); `content` is last and may contain any text. This module parses,
checks the structure (P-3) and writes; the session verifies signatures and times. Unsigned members (`contentType`,
`replyTo`, others) only affect display.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, OutOfTime, TooLarge, UnsupportedType, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.times import find_instant, to_rfc3339

SUBPROTOCOL: Final = "adp-v1"
PROTOCOL: Final = "ADP/1.1"
_TYPES: Final = ("chat", "task", "system", "ack")
HOW_TO_SIGN: Final = "Sign id, from, to, type, timestamp and body.content, joined by line feeds, with your Ed25519 key."
UNKNOWN_AGENT: Final = "agent:unknown.invalid"  # a reserved name (RFC 2606)
CLOSE_CODES: Final = {  # the close code of each error (§6.6)
    "bad_message": 4400,
    "unsupported_type": 4400,
    "bad_signature": 4401,
    "stale_timestamp": 4401,
    "replay": 4401,
    "unknown_peer": 4401,
    "fingerprint_mismatch": 4401,
    "not_authorized": 4403,
    "rate_limited": 4429,
    "internal": 1011,
}

PLAIN, JSON = "text/plain", "application/json"
_MAX_CHARS: Final = {
    "id": limits.AGP_ID_CHARS,
    "from": limits.AGP_NAME_CHARS,
    "to": limits.AGP_NAME_CHARS,
    "type": limits.AGP_NAME_CHARS,
    "timestamp": limits.AGP_NAME_CHARS,
}
_AGENTS_CACHED = 4096
_AGENT = re.compile(r"agent:[a-z0-9]([a-z0-9.:\[\]-]*[a-z0-9\]])?\Z")  # a domain; an IP address in development


class SigningKey(Protocol):
    def sign(self, data: bytes) -> bytes: ...

    def sign_each(self, texts: Sequence[bytes]) -> list[bytes]: ...


# Like `map`, possibly in several threads.
ParallelMap: TypeAlias = Callable[[Callable[[bytes], bytes], Sequence[bytes]], Sequence[bytes]]


class VerifyingKey(Protocol):
    def verify(self, signature: bytes, data: bytes) -> bool: ...


class MessageContent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The content of a message, and how to display it."""

    text: str = ""
    type: str = PLAIN
    reply_to: str | None = None
    more: bool = False  # more parts of the same reply follow


class AgpMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: str
    sender: str
    to: str
    type: str
    timestamp: str
    content: MessageContent
    signature: str
    signing_input: bytes = b""

    @property
    def at(self) -> float:
        return find_instant(self.timestamp) or 0.0


def parse_message(frame: str | bytes) -> AgpMessage:
    """Parse the message of a frame; nothing is verified."""
    return read_message(read_frame(frame))


def read_frame(frame: str | bytes) -> JsonObject:
    return parse_object(_frame_bytes(frame), max_bytes=limits.AGP_FRAME_BYTES)


def _frame_bytes(frame: str | bytes) -> bytes:
    if isinstance(frame, bytes):
        raise InvalidDocument("This is a binary frame.", path="$", hint="Send messages as text frames.")
    return frame.encode("utf-8", "surrogatepass")


def read_message(document: JsonObject) -> AgpMessage:
    message_id, sender, to = _text(document, "id"), _text(document, "from"), _text(document, "to")
    kind, timestamp = _text(document, "type"), _text(document, "timestamp")
    signature, body = document.get("signature"), document.get("body", {})
    if not isinstance(body, dict):
        raise InvalidDocument("The body is not an object.", path="$.body", hint='Send {"content": "…"}.')
    text = body.get("content")
    if text is not None and not isinstance(text, str):
        raise InvalidDocument(
            "The content must be a string.",
            path="$.body.content",
            hint="Write JSON as a string: the signature covers it.",
        )
    signed = signing_input(message_id, sender, to, kind, timestamp, text or "")  # rejects control characters (P-3 a)
    _check_agent(sender, "$.from")
    _check_agent(to, "$.to")
    if kind not in _TYPES:
        raise UnsupportedType(f"{kind[:32]!r} is not a message type.", path="$.type", hint=f"Use {', '.join(_TYPES)}.")
    if not isinstance(signature, str):
        raise InvalidDocument("The message is not signed.", path="$.signature", hint=HOW_TO_SIGN)
    content = MessageContent(
        text=text or "",
        type=_unsigned(body, "contentType") or PLAIN,
        reply_to=_unsigned(body, "replyTo"),
        more=body.get("more") is True,
    )
    return AgpMessage(
        id=message_id,
        sender=sender.lower(),
        to=to.lower(),
        type=kind,
        timestamp=timestamp,
        content=content,
        signature=signature,
        signing_input=signed,
    )


def write_message(
    key: SigningKey, *, message_id: str, sender: str, to: str, kind: str, at: float, content: MessageContent
) -> str:
    """Return the frame of a message, signed at time `at`."""
    timestamp, signed = _signing_input(message_id, sender, to, kind, at, content)
    return _encode_frame(message_id, sender, to, kind, timestamp, content, sign(key, signed))


class UnsignedMessage(NamedTuple):
    """A message before signing; sender and receiver are known."""

    id: str
    kind: str
    content: MessageContent
    at: float


def write_messages(
    key: SigningKey, sender: str, to: str, messages: Sequence[UnsignedMessage], parallel_map: ParallelMap
) -> Iterator[str]:
    """Yield the frames of several messages in order; raises the error of the first invalid one in its place."""
    inputs: list[tuple[str, bytes]] = []
    failure: WaypostError | None = None
    for message in messages:
        try:
            inputs.append(_signing_input(message.id, sender, to, message.kind, message.at, message.content))
        except WaypostError as error:
            failure = error
            break
    signatures = _sign_all(key, [signed for _, signed in inputs], parallel_map)
    for message, (timestamp, _), signature in zip(messages, inputs, signatures, strict=failure is None):
        yield _encode_frame(message.id, sender, to, message.kind, timestamp, message.content, signature)
    if failure is not None:
        raise failure


def _signing_input(
    message_id: str, sender: str, to: str, kind: str, at: float, content: MessageContent
) -> tuple[str, bytes]:
    """Return the timestamp and the signed bytes."""
    if len(content.text) > limits.AGP_CONTENT_BYTES // 4 and len(content.text.encode()) > limits.AGP_CONTENT_BYTES:
        raise TooLarge(
            f"The content has more than {limits.AGP_CONTENT_BYTES} bytes.",
            path="$.body.content",
            hint="Send it in parts, or send a link.",
        )
    timestamp = to_rfc3339(at)
    return timestamp, signing_input(message_id, sender, to, kind, timestamp, content.text)


def _encode_frame(
    message_id: str, sender: str, to: str, kind: str, timestamp: str, content: MessageContent, signature: str
) -> str:
    body: JsonObject = {"content": content.text, "contentType": content.type}
    if content.reply_to is not None:
        body["replyTo"] = content.reply_to
    if content.more:
        body["more"] = True
    message = {
        "id": message_id,
        "from": sender,
        "to": to,
        "type": kind,
        "timestamp": timestamp,
        "signature": signature,
        "body": body,
    }
    return dump_json(message).decode()


def claimed_sender(document: JsonObject) -> str:
    """Return the unverified sender of a message, for error replies."""
    sender = document.get("from")
    if isinstance(sender, str) and len(sender) <= limits.AGP_NAME_CHARS and _AGENT.match(sender.lower()):
        return sender.lower()
    return UNKNOWN_AGENT


def check_time(message: AgpMessage, now: float) -> None:
    """Reject a message that was signed too long ago or ahead of our clock (ADP-49)."""
    at = find_instant(message.timestamp)
    if at is None:
        raise InvalidDocument(
            f"{message.timestamp[:40]!r} is not an RFC 3339 time.",
            path="$.timestamp",
            hint="Write it like 2026-06-18T10:00:00Z.",
        )
    if not now - limits.AGP_PAST_SECONDS <= at <= now + limits.AGP_FUTURE_SECONDS:
        raise OutOfTime(
            f"The message was signed at {message.timestamp}; the time is {to_rfc3339(now)}.",
            path="$.timestamp",
            hint=f"Sign it again: at most {limits.AGP_PAST_SECONDS} s old and {limits.AGP_FUTURE_SECONDS} s ahead are accepted.",
        )


# --- Control (type `system`) ----------------------------------------------------------------------


def write_action(action: str, **members: Any) -> MessageContent:
    """Make the content of a control message: a string, so that the signature covers it (P-2)."""
    present = {name: value for name, value in members.items() if value is not None}
    return MessageContent(text=dump_json({"action": action, **present}).decode(), type=JSON)


def read_action(message: AgpMessage) -> JsonObject:
    """Parse the content of a control message."""
    document = parse_object(message.content.text.encode(), max_bytes=limits.AGP_FRAME_BYTES)
    if not isinstance(document.get("action"), str):
        raise InvalidDocument(
            "The control message has no action.", path="$.body.content", hint='Send {"action": "heartbeat"}.'
        )
    return document


def find_error_code(frame: str) -> str | None:
    """Return the code of an `error` control message; None for other messages."""
    try:
        document = read_action(parse_message(frame))
    except WaypostError:
        return None
    return str(document.get("code", "internal")) if document["action"] == "error" else None


def acknowledged_ids(message: AgpMessage) -> tuple[str, ...]:
    """Return the ids that an `ack` acknowledges: those in its signed content, else `replyTo`, which other peers use."""
    ids = tuple(message.content.text.split())
    if ids:
        return ids[: limits.AGP_ACK_IDS]
    return () if message.content.reply_to is None else (message.content.reply_to,)


def parse_agent(value: object, path: str = "$.from") -> str:
    """Parse an Agent URI, `agent:{domain}`, to lower case."""
    if not isinstance(value, str) or len(value) > limits.AGP_NAME_CHARS or not _AGENT.match(value.lower()):
        raise InvalidDocument(
            f"{str(value)[:64]!r} is not an Agent URI.", path=path, hint="Write it like agent:alice.example.com."
        )
    return value.lower()


def _text(document: JsonObject, name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidDocument(
            f"The member {name!r} is missing or not a string.", path=f"$.{name}", hint="Add it as a string."
        )
    if len(value) > _MAX_CHARS[name]:
        raise InvalidDocument(
            f"The member {name!r} is too long.", path=f"$.{name}", hint=f"Use at most {_MAX_CHARS[name]} characters."
        )
    return value


@lru_cache(_AGENTS_CACHED)
def _check_agent(agent: str, path: str) -> None:
    """Check an Agent URI. The same few agents recur; an error is not cached."""
    parse_agent(agent, path)


def _unsigned(body: JsonObject, name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= limits.AGP_ID_CHARS else None


# --- Signatures -----------------------------------------------------------------------------------

_PREFIX: Final = "ed25519:"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_EXCEPT_LF = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # the same without the separator
_URLSAFE = bytes.maketrans(b"-_+/", b"+/!!")  # base64url only: + and / become invalid
_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
_SIGNATURE_CHARS: Final = len(_PREFIX) + 86  # 64 bytes
_LAST_CHARS: Final = frozenset("AQgw")  # no bits after the last byte


def signing_input(message_id: str, from_: str, to: str, kind: str, timestamp: str, content: str = "") -> bytes:
    """Return the signed bytes (ADP-42). `kind` is the message's `type`; a missing content is empty."""
    head = f"{message_id}\n{from_}\n{to}\n{kind}\n{timestamp}\n"
    if head.count("\n") != 5 or _CONTROL_EXCEPT_LF.search(head):
        reject_control_characters(id=message_id, **{"from": from_}, to=to, type=kind, timestamp=timestamp)
    try:
        return (head + content).encode()
    except UnicodeEncodeError:
        raise InvalidDocument(
            "The content contains a lone surrogate.", path="$.body.content", hint="Send the whole character."
        ) from None


def reject_control_characters(**members: str) -> None:
    """Reject control characters, naming the member (P-3 a)."""
    for name, value in members.items():
        if _CONTROL.search(value):
            raise InvalidDocument(
                f"The member {name!r} contains a control character.",
                path=f"$.{name}",
                hint="Only the content may contain line feeds: it is the last part of the signing input.",
            )


def sign(key: SigningKey, data: bytes) -> str:
    """Return the signature in its text form (ADP-43)."""
    return _format_signature(key.sign(data))


def _sign_all(key: SigningKey, inputs: Sequence[bytes], parallel_map: ParallelMap) -> list[str]:
    """Sign several messages. Long ones are signed in parallel, because they are hashed twice."""
    is_long = sum(map(len, inputs)) >= limits.AGP_POOL_MIN_BYTES
    signatures = parallel_map(key.sign, inputs) if is_long else key.sign_each(inputs)
    return [_format_signature(signature) for signature in signatures]


def _format_signature(signature: bytes) -> str:
    return _PREFIX + b2a_base64(signature, newline=False).translate(_TO_URLSAFE, b"=").decode("ascii")


def verify(key: VerifyingKey, signature: str, data: bytes) -> bool:
    """Return whether `key` signed the data. A signature in another text form is never valid."""
    raw = find_signature(signature)
    return raw is not None and key.verify(raw, data)


def find_signature(text: object) -> bytes | None:
    """Return the 64 bytes of a signature, or None."""
    if (
        not isinstance(text, str)
        or len(text) != _SIGNATURE_CHARS
        or text[-1] not in _LAST_CHARS
        or not text.startswith(_PREFIX)
    ):
        return None
    try:
        return a2b_base64(text[len(_PREFIX) :].encode("ascii").translate(_URLSAFE) + b"==", strict_mode=True)
    except ValueError:  # not base64url
        return None
