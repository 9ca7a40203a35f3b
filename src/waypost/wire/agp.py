"""Messages of AGP (adp.md §6.3–6.7): one JSON object in one text frame, signed.

It reads, judges the shape (P-3) and writes. It verifies nothing: whose key that needs is found by the session, and what is not
signed (`contentType`, `replyTo`, other members) decides nothing but how a content is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, OutOfTime, TooLarge, UnsupportedType, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.times import find_instant, to_rfc3339
from waypost.wire.agp_signing import Sharing, SigningKey, sign, sign_each, signing_input

SUBPROTOCOL: Final = "adp-v1"
PROTOCOL: Final = "ADP/1.1"
TYPES: Final = ("chat", "task", "system", "ack")
NOBODY: Final = "agent:unknown.invalid"  # a name that nobody can have (RFC 2606)
CLOSES: Final = {  # the close code of each error (§6.6)
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
_CHARS = {
    "id": limits.AGP_ID_CHARS,
    "from": limits.AGP_NAME_CHARS,
    "to": limits.AGP_NAME_CHARS,
    "type": limits.AGP_NAME_CHARS,
    "timestamp": limits.AGP_NAME_CHARS,
}
_SEEN: set[str] = set()  # names that were found to be Agent URIs
_SEEN_MOST = 4096
_AGENT = re.compile(r"agent:[a-z0-9]([a-z0-9.:\[\]-]*[a-z0-9\]])?\Z")  # a domain; an address while developing


class Content(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is said, and how it wants to be shown."""

    text: str = ""
    type: str = PLAIN
    reply_to: str | None = None
    more: bool = False  # further parts of the same answer follow


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: str
    sender: str
    to: str
    type: str
    timestamp: str
    content: Content
    signature: str
    covered: bytes = b""  # what the signature is over

    @property
    def at(self) -> float:
        return find_instant(self.timestamp) or 0.0


def parse_message(frame: str | bytes) -> Message:
    """The message of a frame, with nothing verified yet."""
    return read_message(read_frame(frame))


def read_frame(frame: str | bytes) -> JsonObject:
    return parse_object(frame_bytes(frame), max_bytes=limits.AGP_FRAME_BYTES)


def frame_bytes(frame: str | bytes) -> bytes:
    if isinstance(frame, bytes):
        raise InvalidDocument("This is a binary frame.", path="$", hint="Send messages as text frames.")
    return frame.encode("utf-8", "surrogatepass")


def read_message(document: JsonObject) -> Message:
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
    if sender not in _SEEN or to not in _SEEN:
        _see(sender, "$.from")
        _see(to, "$.to")
    if kind not in TYPES:
        raise UnsupportedType(f"{kind[:32]!r} is not a type.", path="$.type", hint=f"Use {', '.join(TYPES)}.")
    if not isinstance(signature, str):
        raise InvalidDocument("The message is not signed.", path="$.signature", hint="Sign it (ADP-42).")
    content = Content(
        text=text or "",
        type=_unsigned(body, "contentType") or PLAIN,
        reply_to=_unsigned(body, "replyTo"),
        more=body.get("more") is True,
    )
    return Message(
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
    key: SigningKey, *, message_id: str, sender: str, to: str, kind: str, at: float, content: Content
) -> str:
    """The frame of a message, signed as of `at`."""
    timestamp, covered = _covered(message_id, sender, to, kind, at, content)
    return _written(message_id, sender, to, kind, timestamp, content, sign(key, covered))


class Unsigned(NamedTuple):
    """A message before it is signed, between two whose names are known."""

    id: str
    kind: str
    content: Content
    at: float


def write_each(key: SigningKey, sender: str, to: str, messages: Sequence[Unsigned], sharing: Sharing) -> Iterator[str]:
    """The frames of messages that leave together, in their order; one that cannot be written is told in its turn."""
    covered: list[tuple[str, bytes]] = []
    fault: WaypostError | None = None
    for one in messages:
        try:
            covered.append(_covered(one.id, sender, to, one.kind, one.at, one.content))
        except WaypostError as error:
            fault = error
            break
    signatures = sign_each(key, [each for _, each in covered], sharing)
    for one, (timestamp, _), signature in zip(messages, covered, signatures, strict=fault is None):
        yield _written(one.id, sender, to, one.kind, timestamp, one.content, signature)
    if fault is not None:
        raise fault


def _covered(message_id: str, sender: str, to: str, kind: str, at: float, content: Content) -> tuple[str, bytes]:
    """The time as it is written, and what is signed."""
    if len(content.text) > limits.AGP_CONTENT_BYTES // 4 and len(content.text.encode()) > limits.AGP_CONTENT_BYTES:
        raise TooLarge(
            f"The content has more than {limits.AGP_CONTENT_BYTES} bytes.",
            path="$.body.content",
            hint="Send it in parts, or send its address.",
        )
    timestamp = to_rfc3339(at)
    return timestamp, signing_input(message_id, sender, to, kind, timestamp, content.text)


def _written(message_id: str, sender: str, to: str, kind: str, timestamp: str, content: Content, signature: str) -> str:
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


def named_sender(document: JsonObject) -> str:
    """Who a message says that it is from, for whoever is refused before anything else is known of it."""
    sender = document.get("from")
    if isinstance(sender, str) and len(sender) <= limits.AGP_NAME_CHARS and _AGENT.match(sender.lower()):
        return sender.lower()
    return NOBODY


def check_time(message: Message, now: float) -> None:
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


def write_action(action: str, **members: Any) -> Content:
    """The content of a control message. It is a text, so that the signature covers it (P-2)."""
    told = {name: value for name, value in members.items() if value is not None}
    return Content(text=dump_json({"action": action, **told}).decode(), type=JSON)


def read_action(message: Message) -> JsonObject:
    """The object in the content of a control message, with its `action`."""
    document = parse_object(message.content.text.encode(), max_bytes=limits.AGP_FRAME_BYTES)
    if not isinstance(document.get("action"), str):
        raise InvalidDocument(
            "A control message has no action.", path="$.body.content", hint='Send {"action": "heartbeat"}.'
        )
    return document


def find_fault(frame: str) -> str | None:
    """The code of a control message that says `error`; None for any other."""
    try:
        told = read_action(parse_message(frame))
    except WaypostError:
        return None
    return str(told.get("code", "internal")) if told["action"] == "error" else None


def acknowledged_ids(message: Message) -> tuple[str, ...]:
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
    if len(value) > _CHARS[name]:
        raise InvalidDocument(f"The member {name!r} is too long.", path=f"$.{name}", hint="Use a shorter one.")
    return value


def _see(agent: str, path: str) -> None:
    """The same few agents speak again and again."""
    parse_agent(agent, path)
    if len(_SEEN) >= _SEEN_MOST:
        _SEEN.clear()
    _SEEN.add(agent)


def _unsigned(body: JsonObject, name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= limits.AGP_ID_CHARS else None
