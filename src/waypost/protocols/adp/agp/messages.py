"""What a signature of AGP covers, and how it is written (adp.md §6.5, §6.7).

Six texts with line feeds between them. A control character in one of the first five would let two messages share one
input, so none is signed or verified (P-3); `content` comes last and may hold any text. Whose key it is, and when it was
signed, is asked elsewhere.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, OutOfTime, TooLarge, UnsupportedType, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.times import find_instant, to_rfc3339

PREFIX = "ed25519:"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_NOT_PLAIN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # the same but for what parts them

_URLSAFE = bytes.maketrans(b"-_+/", b"+/!!")  # of base64url alone: the others are no characters of it

_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")

_CHARS = len(PREFIX) + 86  # 64 bytes

_LAST = frozenset("AQgw")  # no bits after the last byte


class SigningKey(Protocol):
    def sign(self, data: bytes) -> bytes: ...

    def sign_each(self, texts: Sequence[bytes]) -> list[bytes]: ...


ParallelMap: TypeAlias = Callable[
    [Callable[[bytes], bytes], Sequence[bytes]], Sequence[bytes]
]  # as `map`, in whatever order


class VerifyingKey(Protocol):
    def verify(self, signature: bytes, data: bytes) -> bool: ...


def signing_input(message_id: str, from_: str, to: str, kind: str, timestamp: str, content: str = "") -> bytes:
    """The bytes that are signed (ADP-42). `kind` is the message's `type`; a missing content counts as empty."""
    head = f"{message_id}\n{from_}\n{to}\n{kind}\n{timestamp}\n"
    if head.count("\n") != 5 or _NOT_PLAIN.search(head):
        reject_control_characters(id=message_id, **{"from": from_}, to=to, type=kind, timestamp=timestamp)
    try:
        return (head + content).encode()
    except UnicodeEncodeError:
        raise InvalidDocument(
            "The content holds half of a surrogate pair.", path="$.body.content", hint="Send the whole character."
        ) from None


def reject_control_characters(**members: str) -> None:
    """Refuse control characters, by the name of the member that holds one (P-3 a)."""
    for name, value in members.items():
        if _CONTROL.search(value):
            raise InvalidDocument(
                f"The member {name!r} holds a control character.",
                path=f"$.{name}",
                hint="Only the content may hold line feeds: it comes last in what is signed.",
            )


def sign(key: SigningKey, covered: bytes) -> str:
    """The signature as it is written (ADP-43)."""
    return _written(key.sign(covered))


def sign_all(key: SigningKey, covered: Sequence[bytes], sharing: ParallelMap) -> list[str]:
    """The same of several messages that leave together. Long ones are shared with whoever helps: they are hashed
    twice."""
    is_long = sum(map(len, covered)) >= limits.AGP_POOL_MIN_BYTES
    signatures = sharing(key.sign, covered) if is_long else key.sign_each(covered)
    return [_written(signature) for signature in signatures]


def _written(signature: bytes) -> str:
    return PREFIX + b2a_base64(signature, newline=False).translate(_TO_URLSAFE, b"=").decode("ascii")


def verify(key: VerifyingKey, signature: str, covered: bytes) -> bool:
    """Whether `key` signed it. A signature in any other form than ours never holds."""
    raw = find_signature(signature)
    return raw is not None and key.verify(raw, covered)


def find_signature(text: object) -> bytes | None:
    """The 64 bytes of a signature, or None for what is none."""
    if not isinstance(text, str) or len(text) != _CHARS or text[-1] not in _LAST or not text.startswith(PREFIX):
        return None
    try:
        return a2b_base64(text[len(PREFIX) :].encode("ascii").translate(_URLSAFE) + b"==", strict_mode=True)
    except ValueError:  # a character that is none of base64url
        return None


# ---- Messages of AGP (adp.md §6.3–6.7): one JSON object in one text frame, signed.
#
# It reads, judges the shape (P-3) and writes. It verifies nothing: whose key that needs is found by the session, and
# what is not signed (`contentType`, `replyTo`, other members) decides nothing but how a content is shown.

SUBPROTOCOL: Final = "adp-v1"

PROTOCOL: Final = "ADP/1.1"

TYPES: Final = ("chat", "task", "system", "ack")

UNKNOWN_AGENT: Final = "agent:unknown.invalid"  # a name that nobody can have (RFC 2606)

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

_CHARS_agp = {
    "id": limits.AGP_ID_CHARS,
    "from": limits.AGP_NAME_CHARS,
    "to": limits.AGP_NAME_CHARS,
    "type": limits.AGP_NAME_CHARS,
    "timestamp": limits.AGP_NAME_CHARS,
}

_VALID_AGENTS: set[str] = set()  # names that were found to be Agent URIs

_VALID_AGENTS_MAX = 4096

_AGENT = re.compile(r"agent:[a-z0-9]([a-z0-9.:\[\]-]*[a-z0-9\]])?\Z")  # a domain; an address while developing


class MessageContent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is said, and how it wants to be shown."""

    text: str = ""
    type: str = PLAIN
    reply_to: str | None = None
    more: bool = False  # further parts of the same answer follow


class AgpMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: str
    sender: str
    to: str
    type: str
    timestamp: str
    content: MessageContent
    signature: str
    covered: bytes = b""  # what the signature is over

    @property
    def at(self) -> float:
        return find_instant(self.timestamp) or 0.0


def parse_message(frame: str | bytes) -> AgpMessage:
    """The message of a frame, with nothing verified yet."""
    return read_message(read_frame(frame))


def read_frame(frame: str | bytes) -> JsonObject:
    return parse_object(frame_bytes(frame), max_bytes=limits.AGP_FRAME_BYTES)


def frame_bytes(frame: str | bytes) -> bytes:
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
            "The content is not a text.", path="$.body.content", hint="Write JSON as a text: that is what is signed."
        )
    covered = signing_input(message_id, sender, to, kind, timestamp, text or "")  # refuses control characters (P-3 a)
    if sender not in _VALID_AGENTS or to not in _VALID_AGENTS:
        _check_agent(sender, "$.from")
        _check_agent(to, "$.to")
    if kind not in TYPES:
        raise UnsupportedType(f"{kind[:32]!r} is not a type.", path="$.type", hint=f"Use {', '.join(TYPES)}.")
    if not isinstance(signature, str):
        raise InvalidDocument("The message is not signed.", path="$.signature", hint="Sign it (ADP-42).")
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
        covered=covered,
    )


def write_message(
    key: SigningKey, *, message_id: str, sender: str, to: str, kind: str, at: float, content: MessageContent
) -> str:
    """The frame of a message, signed as of `at`."""
    timestamp, covered = _covered(message_id, sender, to, kind, at, content)
    return _written_agp(message_id, sender, to, kind, timestamp, content, sign(key, covered))


class UnsignedMessage(NamedTuple):
    """A message before it is signed, between two whose names are known."""

    id: str
    kind: str
    content: MessageContent
    at: float


def write_messages(
    key: SigningKey, sender: str, to: str, messages: Sequence[UnsignedMessage], sharing: ParallelMap
) -> Iterator[str]:
    """The frames of messages that leave together, in their order; one that cannot be written is told in its turn."""
    covered: list[tuple[str, bytes]] = []
    fault: WaypostError | None = None
    for one in messages:
        try:
            covered.append(_covered(one.id, sender, to, one.kind, one.at, one.content))
        except WaypostError as error:
            fault = error
            break
    signatures = sign_all(key, [each for _, each in covered], sharing)
    for one, (timestamp, _), signature in zip(messages, covered, signatures, strict=fault is None):
        yield _written_agp(one.id, sender, to, one.kind, timestamp, one.content, signature)
    if fault is not None:
        raise fault


def _covered(message_id: str, sender: str, to: str, kind: str, at: float, content: MessageContent) -> tuple[str, bytes]:
    """The time as it is written, and what is signed."""
    if len(content.text) > limits.AGP_CONTENT_BYTES // 4 and len(content.text.encode()) > limits.AGP_CONTENT_BYTES:
        raise TooLarge(
            f"The content has more than {limits.AGP_CONTENT_BYTES} bytes.",
            path="$.body.content",
            hint="Send it in parts, or send its address.",
        )
    timestamp = to_rfc3339(at)
    return timestamp, signing_input(message_id, sender, to, kind, timestamp, content.text)


def _written_agp(
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
    """Who a message says that it is from, for whoever is refused before anything else is known of it."""
    sender = document.get("from")
    if isinstance(sender, str) and len(sender) <= limits.AGP_NAME_CHARS and _AGENT.match(sender.lower()):
        return sender.lower()
    return UNKNOWN_AGENT


def check_time(message: AgpMessage, now: float) -> None:
    """Refuse what was signed too long ago or ahead of our clock (ADP-49)."""
    at = find_instant(message.timestamp)
    if at is None:
        raise InvalidDocument(
            f"{message.timestamp[:40]!r} is not an RFC 3339 time.",
            path="$.timestamp",
            hint="Write it like 2026-06-18T10:00:00Z.",
        )
    if not now - limits.AGP_PAST_SECONDS <= at <= now + limits.AGP_FUTURE_SECONDS:
        raise OutOfTime(
            f"The message was signed at {message.timestamp}; it is {to_rfc3339(now)}.",
            path="$.timestamp",
            hint=f"Sign it anew: {limits.AGP_PAST_SECONDS} seconds of age and {limits.AGP_FUTURE_SECONDS} ahead are taken.",
        )


# --- Control (type `system`) ----------------------------------------------------------------------


def write_action(action: str, **members: Any) -> MessageContent:
    """The content of a control message. It is a text, so that the signature covers it (P-2)."""
    told = {name: value for name, value in members.items() if value is not None}
    return MessageContent(text=dump_json({"action": action, **told}).decode(), type=JSON)


def read_action(message: AgpMessage) -> JsonObject:
    """The object in the content of a control message, with its `action`."""
    document = parse_object(message.content.text.encode(), max_bytes=limits.AGP_FRAME_BYTES)
    if not isinstance(document.get("action"), str):
        raise InvalidDocument(
            "A control message has no action.", path="$.body.content", hint='Send {"action": "heartbeat"}.'
        )
    return document


def find_error_code(frame: str) -> str | None:
    """The code of a control message that says `error`; None for any other."""
    try:
        told = read_action(parse_message(frame))
    except WaypostError:
        return None
    return str(told.get("code", "internal")) if told["action"] == "error" else None


def acknowledged_ids(message: AgpMessage) -> tuple[str, ...]:
    """The messages that an `ack` covers: the ids in its content, which is signed. Others write `replyTo` alone."""
    named = tuple(message.content.text.split())
    if named:
        return named[: limits.AGP_ACK_IDS]
    return () if message.content.reply_to is None else (message.content.reply_to,)


def parse_agent(value: object, path: str = "$.from") -> str:
    """An Agent URI, `agent:{domain}`, in lower case as it is compared."""
    if not isinstance(value, str) or len(value) > limits.AGP_NAME_CHARS or not _AGENT.match(value.lower()):
        raise InvalidDocument(
            f"{str(value)[:64]!r} is not an Agent URI.", path=path, hint="Write it like agent:alice.example.com."
        )
    return value.lower()


def _text(document: JsonObject, name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidDocument(f"The member {name!r} is missing or no text.", path=f"$.{name}", hint="Send it.")
    if len(value) > _CHARS_agp[name]:
        raise InvalidDocument(f"The member {name!r} is too long.", path=f"$.{name}", hint="Use a shorter one.")
    return value


def _check_agent(agent: str, path: str) -> None:
    """The same few agents speak again and again."""
    parse_agent(agent, path)
    if len(_VALID_AGENTS) >= _VALID_AGENTS_MAX:
        _VALID_AGENTS.clear()
    _VALID_AGENTS.add(agent)


def _unsigned(body: JsonObject, name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= limits.AGP_ID_CHARS else None
