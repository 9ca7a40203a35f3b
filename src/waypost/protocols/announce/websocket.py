"""Messages over a WebSocket (announce.md §6.5): one type byte, then JSON. Frames of the protocol below are not its
business."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, TooLarge
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.protocols.announce.messages import kind_of_message

SUBPROTOCOL = "agent-discovery"
StatusWord = Literal["done", "error", "subscribed"]


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
    """P-27: the end of a stream of answers, the start of a subscription, or what was wrong with a message."""

    status: StatusWord
    query_id: str | None = None
    count: int | None = None
    code: str | None = None
    message: str | None = None
    reason: str | None = None
    retry_after: int | None = None
    agent_id: str | None = None  # of the announcement that it is about
    expires_at: str | None = None
    supported: tuple[str, ...] | None = None
    cursor: str | None = None  # where a subscription can be taken up again

    def document(self, version: str = "v1.0") -> JsonObject:
        told: JsonObject = msgspec.to_builtins(self)
        return {"protocol_version": version, **told}


def write_frame(kind: AnnounceFrameType, message: JsonObject) -> bytes:
    data = bytes((kind,)) + dump_json(message)
    if len(data) > limits.SOCKET_MESSAGE_BYTES:
        raise TooLarge(
            f"The message has {len(data)} bytes; a socket carries {limits.SOCKET_MESSAGE_BYTES}.",
            path="$",
            hint="Shorten the metadata of the agent.",
        )
    return data


def write_message_frame(message: JsonObject) -> bytes:
    """The frame of an Announce, Query or Response, by its shape."""
    return write_frame(_TYPES[kind_of_message(message)], message)


def parse_frame(data: bytes) -> AnnounceFrame:
    """One binary message. The type byte decides, and the shape must agree with it (ANN-5)."""
    if not data:
        raise InvalidDocument("The frame is empty.", path="$", hint="Send a type byte, then JSON.")
    try:
        kind = AnnounceFrameType(data[0])
    except ValueError:
        raise InvalidDocument(
            f"0x{data[0]:02x} is no type of a frame.",
            path="$",
            hint="Start with 0x01 ANNOUNCE, 0x02 QUERY, 0x03 RESPONSE or 0x04 STATUS.",
            details={"reason": "unknown_type"},
        ) from None
    message = parse_object(data[1:], max_bytes=limits.SOCKET_MESSAGE_BYTES)
    if kind is not AnnounceFrameType.STATUS:
        _check_shape(kind, message)
    return AnnounceFrame(kind, message)


def parse_text(data: bytes) -> AnnounceFrame:
    """A text message: JSON without a type byte, as lenient readers take it (P-26)."""
    message = parse_object(data, max_bytes=limits.SOCKET_MESSAGE_BYTES)
    if "status" in message and "agent" not in message and "query" not in message:
        return AnnounceFrame(AnnounceFrameType.STATUS, message)
    return AnnounceFrame(_TYPES[kind_of_message(message)], message)


def parse_status(message: JsonObject) -> StatusMessage:
    try:
        return msgspec.convert(message, StatusMessage)
    except msgspec.ValidationError:
        raise InvalidDocument(
            "This is no STATUS.", path="$", hint='Send {"protocol_version":"v1.0","status":"done"}.'
        ) from None


def wants_subscription(message: JsonObject) -> bool:
    """Whether answers to a Query go on until the session ends (P-27)."""
    query = message.get("query")
    return message.get("subscribe") is True or (isinstance(query, dict) and query.get("subscribe") is True)


def _check_shape(kind: AnnounceFrameType, message: JsonObject) -> None:
    """A Response may leave `matched` out (P-6): then its shape is an Announce's."""
    shape = _TYPES[kind_of_message(message)]
    if shape is kind or (kind is AnnounceFrameType.RESPONSE and shape is AnnounceFrameType.ANNOUNCE):
        return
    raise InvalidDocument(
        f"The type byte says {kind.name}, the message is {shape.name}.", path="$", hint="Let the two agree."
    )
