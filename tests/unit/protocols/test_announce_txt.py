"""The TXT record of an announcement: chunks or a pointer, without ambiguity."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.announce import AGENT_ID, announcement, key
from support.signing import key_of
from waypost import limits
from waypost.errors import InvalidDocument, TooLarge, WaypostError
from waypost.model.json import dump_json, parse_object
from waypost.protocols.announce.packets import (
    TxtMessage,
    TxtPointer,
    host_name,
    instance_label,
    parse_txt,
    write_txt_message,
    write_txt_pointer,
)
from waypost.trust.announce.signed_announcement import sign_announcement

KEY_ID = "sha256:" + "ab" * 32


def strings(*parts: bytes) -> bytes:
    return b"".join(bytes((len(part),)) + part for part in parts)


@given(st.binary(min_size=1, max_size=1180))
@example(b"x" * 253)
@example(b"x" * 254)
@example(b"=" * 600)
def test_whatever_is_written_is_read_back_byte_for_byte(message: bytes) -> None:
    record = write_txt_message(message, AGENT_ID)
    assert len(record) <= limits.TXT_BYTES
    assert parse_txt(record) == TxtMessage(message, AGENT_ID)


def test_the_layout_is_that_of_the_protocol() -> None:
    """P-22."""
    message = b"m" * 300
    record = write_txt_message(message, AGENT_ID.upper())
    digest = hashlib.sha256(message).hexdigest()[:16].encode()
    head = (b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"n=2", b"h=" + digest)
    assert record == strings(*head, b"0=" + b"m" * 253, b"1=" + b"m" * 47)


def test_a_record_takes_1300_bytes_and_not_one_more() -> None:
    most = max(size for size in range(1100, 1300) if _fits(size))
    assert len(write_txt_message(b"x" * most, AGENT_ID)) == limits.TXT_BYTES
    with pytest.raises(TooLarge) as refused:
        write_txt_message(b"x" * (most + 1), AGENT_ID)
    assert refused.value.hint


def _fits(size: int) -> bool:
    try:
        write_txt_message(b"x" * size, AGENT_ID)
    except TooLarge:
        return False
    return True


def test_a_message_signed_with_rsa_fits_a_record_though_no_datagram() -> None:
    message = dump_json(sign_announcement({"agent_id": AGENT_ID, "capabilities": {}, "transport": {}}, key_of("rsa")))
    assert len(message) > limits.DATAGRAM_BYTES
    assert parse_txt(write_txt_message(message, AGENT_ID)) == TxtMessage(message, AGENT_ID)


def test_chunks_may_come_in_any_order_and_names_in_any_case() -> None:
    digest = hashlib.sha256(b"abc").hexdigest()[:16].encode()
    record = strings(b"1=c", b"N=2", b"H=" + digest.upper(), b"ID=" + AGENT_ID.upper().encode(), b"PV=v1.1", b"0=ab")
    assert parse_txt(record) == TxtMessage(b"abc", AGENT_ID)


def test_a_record_that_is_the_bare_document_is_read_too() -> None:
    message = dump_json(announcement(key("a"), seq=1, at=1.0))
    record = strings(message[:200], message[200:400], message[400:])
    assert parse_txt(record) == TxtMessage(message)
    assert parse_object(parse_txt(record).message)["agent"]["agent_id"] == AGENT_ID  # type: ignore[union-attr]


def test_a_pointer_is_read_back() -> None:
    pointer = TxtPointer(AGENT_ID, f"https://registry.example/agents/{AGENT_ID}", KEY_ID)
    assert parse_txt(write_txt_pointer(pointer)) == pointer


@pytest.mark.parametrize(
    "pointer",
    [
        TxtPointer(AGENT_ID, "ftp://registry.example/", KEY_ID),
        TxtPointer(AGENT_ID, "https://registry.example/ x", KEY_ID),
        TxtPointer(AGENT_ID, "https://registry.example/" + "x" * 240, KEY_ID),
        TxtPointer(AGENT_ID, "https://registry.example/", "sha256:ab"),
    ],
)
def test_a_pointer_that_cannot_be_followed_is_not_written(pointer: TxtPointer) -> None:
    with pytest.raises(InvalidDocument):
        write_txt_pointer(pointer)


GOOD = write_txt_message(b"x" * 600, AGENT_ID)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x00",
        b"\xff" + b"x" * 10,  # L3: a length that lies
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode()),
        strings(b"pv=v1.0", b"id=../../etc", b"n=1", b"h=0", b"0=x"),
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"n=99", b"h=0", b"0=x"),
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"n=0", b"h=0"),
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"n=01", b"h=0", b"0=x"),
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"n=2", b"h=0", b"0=x"),
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"u=file:///etc/passwd", b"k=" + KEY_ID.encode()),
        strings(b"pv=v1.0", b"id=" + AGENT_ID.encode(), b"u=https://a.example/", b"k=none"),
        b"\x01x" * (limits.TXT_READ_BYTES // 2 + 1),
    ],
)
def test_a_record_that_does_not_add_up_is_refused(record: bytes) -> None:
    """L3."""
    with pytest.raises(WaypostError):
        parse_txt(record)


@given(st.integers(1, 90))
def test_a_chunk_that_was_changed_is_noticed(at: int) -> None:
    record = bytearray(GOOD)
    record[-at] ^= 1
    with pytest.raises(InvalidDocument, match="do not match its digest"):
        parse_txt(bytes(record))


@given(st.integers(0, len(GOOD) - 1))
def test_a_truncated_record_is_never_taken_for_the_message(cut: int) -> None:
    with pytest.raises(WaypostError):
        parse_txt(GOOD[:cut])


@given(st.binary(max_size=400))
def test_hostile_bytes_are_refused_and_never_crash(record: bytes) -> None:
    try:
        parse_txt(record)
    except WaypostError:
        return


def test_names_are_labels_of_at_most_63_characters() -> None:
    """P-21."""
    assert instance_label(AGENT_ID, "data-processor", 0x1A2B) == "data-processor-1a2b"
    assert instance_label(AGENT_ID, None, 7) == "3cde1b52-0007"
    assert len(instance_label(AGENT_ID, "x" * 63, 0xFFFFF)) == 63
    assert host_name(AGENT_ID.upper()) == f"{AGENT_ID}.local."
