"""Announce messages over a WebSocket (announce.md §6.5): a type byte, then JSON."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, TooLarge
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.protocols.announce.messages import kind_of_message

SUBPROTOCOL = "agent-discovery"
Status = Literal["done", "error", "subscribed"]


class AnnounceFrameType(IntEnum):
    ANNOUNCE = 1
    QUERY = 2
    RESPONSE = 3
    STATUS = 4


_TYPES = {
    "announce": AnnounceFrameType.ANNOUNCE,
    "query": AnnounceFrameType.QUERY,
    "response": AnnounceFrameType.RESPONSE,
}


class AnnounceFrame(msgspec.Struct, frozen=True):
    type: AnnounceFrameType
    message: JsonObject


class StatusMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """P-27: the end of a stream of responses, the start of a subscription, or an error."""

    status: Status
    query_id: str | None = None
    count: int | None = None
    code: str | None = None
    message: str | None = None
    reason: str | None = None
    retry_after: int | None = None
    agent_id: str | None = None  # of the announcement that it refers to
    expires_at: str | None = None
    ttl: int | None = None  # the granted one
    supported: tuple[str, ...] | None = None
    cursor: str | None = None  # for resuming a subscription

    def document(self, version: str = "v1.0") -> JsonObject:
        members: JsonObject = msgspec.to_builtins(self)
        return {"protocol_version": version, **members}


def write_frame(kind: AnnounceFrameType, message: JsonObject) -> bytes:
    data = bytes((kind,)) + dump_json(message)
    if len(data) > limits.SOCKET_MESSAGE_BYTES:
        raise TooLarge(
            f"The message has {len(data)} bytes; at most {limits.SOCKET_MESSAGE_BYTES} are allowed.",
            path="$",
            hint="Shorten the metadata of the agent.",
        )
    return data


def parse_frame(data: bytes) -> AnnounceFrame:
    """Parse a binary message. Its kind must agree with the type byte (ANN-5)."""
    if not data:
        raise InvalidDocument("The frame is empty.", path="$", hint="Send a type byte, then JSON.")
    try:
        kind = AnnounceFrameType(data[0])
    except ValueError:
        raise InvalidDocument(
            f"0x{data[0]:02x} is not a frame type.",
            path="$",
            hint="Start with 0x01 ANNOUNCE, 0x02 QUERY, 0x03 RESPONSE or 0x04 STATUS.",
            details={"reason": "unknown_type"},
        ) from None
    message = parse_object(data[1:], max_bytes=limits.SOCKET_MESSAGE_BYTES)
    if kind is not AnnounceFrameType.STATUS:
        _check_kind(kind, message)
    return AnnounceFrame(kind, message)


def parse_text(data: bytes) -> AnnounceFrame:
    """Parse a text message: JSON without a type byte (P-26)."""
    message = parse_object(data, max_bytes=limits.SOCKET_MESSAGE_BYTES)
    if "status" in message and "agent" not in message and "query" not in message:
        return AnnounceFrame(AnnounceFrameType.STATUS, message)
    return AnnounceFrame(_TYPES[kind_of_message(message)], message)


def parse_status(message: JsonObject) -> StatusMessage:
    try:
        return msgspec.convert(message, StatusMessage)
    except msgspec.ValidationError:
        raise InvalidDocument(
            "This is not a STATUS message.", path="$", hint='Send {"protocol_version":"v1.0","status":"done"}.'
        ) from None


def wants_subscription(message: JsonObject) -> bool:
    """Return whether a Query asks for responses until the session ends (P-27)."""
    query = message.get("query")
    return message.get("subscribe") is True or (isinstance(query, dict) and query.get("subscribe") is True)


def _check_kind(kind: AnnounceFrameType, message: JsonObject) -> None:
    """A Response may lack `matched` (P-6): then it looks like an Announce."""
    actual = _TYPES[kind_of_message(message)]
    if actual is kind or (kind is AnnounceFrameType.RESPONSE and actual is AnnounceFrameType.ANNOUNCE):
        return
    raise InvalidDocument(
        f"The type byte is {kind.name}, but the message is {actual.name}.",
        path="$",
        hint="Send the matching type byte.",
    )
