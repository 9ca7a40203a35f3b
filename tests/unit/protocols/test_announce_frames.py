"""Frames of the announce protocol: the type byte must match the JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.announce import announcement, key
from waypost import limits
from waypost.errors import InvalidDocument, TooLarge, WaypostError
from waypost.model.json import dump_json
from waypost.protocols.announce.websocket import (
    AnnounceFrameType,
    StatusMessage,
    parse_frame,
    parse_status,
    parse_text,
    wants_subscription,
    write_frame,
)

ANNOUNCE = announcement(key("a"), seq=1, at=1_780_000_000.0)
QUERY = {"protocol_version": "v1.0", "query": {"capability": "metrics"}}
RESPONSE = {**ANNOUNCE, "matched": True}


@pytest.mark.parametrize(
    ("message", "kind"),
    [(ANNOUNCE, AnnounceFrameType.ANNOUNCE), (QUERY, AnnounceFrameType.QUERY), (RESPONSE, AnnounceFrameType.RESPONSE)],
)
def test_a_message_comes_back_as_it_was_framed(message: dict[str, object], kind: AnnounceFrameType) -> None:
    read = parse_frame(write_frame(kind, message))
    assert (read.type, read.message) == (kind, message)
    assert parse_text(dump_json(message)) == read


def test_the_type_byte_and_the_shape_must_agree() -> None:
    """ANN-5."""
    for kind, message in [(1, QUERY), (1, RESPONSE), (2, ANNOUNCE), (3, QUERY)]:
        with pytest.raises(InvalidDocument, match="type byte"):
            parse_frame(bytes((kind,)) + dump_json(message))


def test_a_response_may_leave_matched_out() -> None:
    """P-6."""
    assert parse_frame(b"\x03" + dump_json(ANNOUNCE)).type is AnnounceFrameType.RESPONSE


@pytest.mark.parametrize("data", [b"", b"\x00{}", b"\x05{}", b"\xff" + dump_json(QUERY), b"{}", b"\x01", b"\x01[]"])
def test_an_empty_frame_and_an_unknown_type_are_errors(data: bytes) -> None:
    """W7."""
    with pytest.raises(WaypostError):
        parse_frame(data)


def test_a_message_has_at_most_64_kib() -> None:
    """W3."""
    room = limits.SOCKET_MESSAGE_BYTES - len(write_frame(AnnounceFrameType.STATUS, {"status": "error", "message": ""}))
    assert (
        len(write_frame(AnnounceFrameType.STATUS, {"status": "error", "message": "x" * room}))
        == limits.SOCKET_MESSAGE_BYTES
    )
    with pytest.raises(TooLarge):
        write_frame(AnnounceFrameType.STATUS, {"status": "error", "message": "x" * (room + 1)})
    with pytest.raises(TooLarge):
        parse_frame(b"\x04" + b" " * (limits.SOCKET_MESSAGE_BYTES + 1))


def test_a_status_message_omits_empty_members() -> None:
    done = StatusMessage(status="done", query_id="q", count=0)
    assert done.document() == {"protocol_version": "v1.0", "status": "done", "query_id": "q", "count": 0}
    assert parse_status(parse_frame(write_frame(AnnounceFrameType.STATUS, done.document())).message) == done
    assert parse_text(dump_json(done.document())).type is AnnounceFrameType.STATUS
    with pytest.raises(InvalidDocument):
        parse_status({"status": "maybe"})


def test_a_subscription_is_requested_beside_the_query_or_in_it() -> None:
    assert wants_subscription({**QUERY, "subscribe": True})
    assert wants_subscription({"query": {"capability": "*", "subscribe": True}})
    assert not wants_subscription(QUERY)
    assert not wants_subscription({"query": "*", "subscribe": "true"})


@given(st.binary(max_size=300) | st.builds(lambda head, tail: bytes((head,)) + tail, st.integers(0, 5), st.binary()))
def test_hostile_bytes_are_refused_and_never_crash(data: bytes) -> None:
    for read in (parse_frame, parse_text):
        try:
            read(data)
        except WaypostError:
            continue
