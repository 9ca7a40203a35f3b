"""Datagrams: whole messages, bounded reassembly of fragments, cookies that prove a source."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost import limits
from waypost.errors import InvalidDocument, TooLarge, WaypostError
from waypost.protocols.announce.packets import (
    CHALLENGE_BYTES,
    DATA_BYTES,
    CookieChallenge,
    Fragment,
    FragmentReassembly,
    WholeDatagram,
    is_valid_cookie,
    make_cookie,
    pad_query,
    parse_datagram,
    split_datagrams,
    write_challenge,
    write_with_cookie,
)

MOST = limits.FRAGMENTS * DATA_BYTES
SECRET = b"s" * 32


def fragments(message: bytes) -> list[Fragment]:
    parts = [parse_datagram(data) for data in split_datagrams(message)]
    assert all(isinstance(part, Fragment) for part in parts)
    return [part for part in parts if isinstance(part, Fragment)]


def message(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@given(st.integers(513, MOST), st.randoms(use_true_random=False))
@example(513, random.Random(0))
@example(MOST, random.Random(0))
def test_fragments_in_any_order_and_twice_give_the_message_once(size: int, order: random.Random) -> None:
    said = message(size)
    parts = fragments(said) * 2
    order.shuffle(parts)
    reassembly = FragmentReassembly()
    given_back = [found for part in parts if (found := reassembly.add("a", part, 0.0)) is not None]
    assert given_back[0] == said
    assert reassembly.byte_count <= limits.FRAGMENT_BYTES


def test_512_bytes_are_one_datagram_and_one_more_are_two() -> None:
    """ANN-31."""
    whole = b"{" + b"x" * 511
    assert split_datagrams(whole) == [whole]
    assert parse_datagram(whole) == WholeDatagram(whole)
    assert [len(data) for data in split_datagrams(whole + b"x")] == [512, 25]


def test_a_message_longer_than_16_fragments_is_refused_and_never_truncated() -> None:
    assert len(split_datagrams(b"x" * MOST)) == 16
    with pytest.raises(TooLarge):
        split_datagrams(b"x" * (MOST + 1))


def test_a_fragment_that_is_late_comes_to_nothing() -> None:
    first, second = fragments(message(700))
    reassembly = FragmentReassembly()
    assert reassembly.add("a", first, 0.0) is None
    assert reassembly.add("a", second, limits.FRAGMENT_SECONDS) is None
    assert reassembly.add("a", first, limits.FRAGMENT_SECONDS + 1) == message(700)


def test_time_that_runs_backwards_keeps_nothing_for_ever() -> None:
    first, second = fragments(message(700))
    reassembly = FragmentReassembly()
    reassembly.add("a", first, 1000.0)
    assert reassembly.add("a", second, 10.0) is None
    assert len(reassembly) == 1


def test_pieces_of_two_sources_are_not_put_together() -> None:
    first, second = fragments(message(700))
    reassembly = FragmentReassembly()
    assert reassembly.add("a", first, 0.0) is None
    assert reassembly.add("b", second, 0.0) is None


def test_a_message_whose_hash_is_wrong_is_dropped() -> None:
    first, second = fragments(message(700))
    forged = Fragment(second.id, second.index, second.count, b"x" * len(second.data))
    reassembly = FragmentReassembly()
    reassembly.add("a", first, 0.0)
    assert reassembly.add("a", forged, 0.0) is None
    assert (len(reassembly), reassembly.byte_count) == (0, 0)


def test_one_source_has_at_most_32_partial_messages() -> None:
    """L7."""
    reassembly = FragmentReassembly()
    for seed in range(limits.FRAGMENT_PARTIALS + 10):
        reassembly.add("a", fragments(message(700, seed))[0], 0.0)
    assert len(reassembly) == limits.FRAGMENT_PARTIALS
    reassembly.add("b", fragments(message(700))[0], 0.0)
    assert len(reassembly) == limits.FRAGMENT_PARTIALS + 1
    assert reassembly.add("b", fragments(message(700))[1], 0.0) == message(700)


def test_fragments_of_all_sources_use_at_most_one_mebibyte_and_new_ones_are_accepted() -> None:
    """L7."""
    reassembly = FragmentReassembly()
    for number in range(limits.FRAGMENT_BYTES // DATA_BYTES + 500):
        reassembly.add(f"source {number}", fragments(message(700, number))[0], 0.0)
        assert reassembly.byte_count <= limits.FRAGMENT_BYTES
    first, second = fragments(message(900))
    reassembly.add("late", first, 0.0)
    assert reassembly.add("late", second, 0.0) == message(900)
    reassembly.sweep(limits.FRAGMENT_SECONDS)
    assert (len(reassembly), reassembly.byte_count) == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xad",
        b"\xad\x01" + bytes(8) + b"\x00\x02",  # no data
        b"\xad\x01" + bytes(8) + b"\x02\x02x",  # an index past the count
        b"\xad\x01" + bytes(8) + b"\x00\x01x",  # a count of one
        b"\xad\x01" + bytes(8) + b"\x00\x11x",  # a count past 16
        b"\xad\x01" + bytes(8) + b"\x00\x02" + b"x" * (DATA_BYTES + 1),
        b"\xad\x02" + bytes(15),
        b"\xad\x03" + bytes(16),
        b"\xad\x04" + bytes(40),
    ],
)
def test_an_invalid_datagram_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidDocument):
        parse_datagram(data)


@given(st.binary(max_size=600), st.sampled_from([b"", b"\xad\x01", b"\xad\x02", b"\xad\x03", b"{"]))
def test_hostile_bytes_are_refused_and_never_crash(tail: bytes, head: bytes) -> None:
    reassembly = FragmentReassembly()
    try:
        read = parse_datagram(head + tail)
    except WaypostError:
        return
    if isinstance(read, Fragment):
        assert reassembly.add("a", read, 0.0) is None


def test_a_cookie_proves_its_source_for_a_while() -> None:
    """L5."""
    now = 1_780_000_000.0
    shown = make_cookie(SECRET, "10.0.0.1:4000", now)
    assert parse_datagram(write_challenge(shown)) == CookieChallenge(shown)
    assert parse_datagram(write_with_cookie(shown, b"{}")) == WholeDatagram(b"{}", shown)
    assert is_valid_cookie(SECRET, "10.0.0.1:4000", shown, now + limits.COOKIE_SECONDS)
    assert not is_valid_cookie(SECRET, "10.0.0.1:4000", shown, now + 3 * limits.COOKIE_SECONDS)
    assert not is_valid_cookie(SECRET, "10.0.0.2:4000", shown, now)
    assert not is_valid_cookie(b"t" * 32, "10.0.0.1:4000", shown, now)
    assert not is_valid_cookie(SECRET, "10.0.0.1:4000", None, now)


def test_a_challenge_is_smaller_than_any_query() -> None:
    smallest = b'{"query":{"agent_id":"a"}}'
    assert len(smallest) > CHALLENGE_BYTES
    assert len(pad_query(smallest)) == limits.DATAGRAM_BYTES
