"""The counts behind the limits of connections, watches and WebSockets."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from waypost import limits
from waypost.errors import RateLimited, Unavailable
from waypost.model.principal import ANONYMOUS, Principal
from waypost.server.auth.callers import OpenSessions
from waypost.server.http.connections import ConnectionTable, most_connections


def test_connections_are_counted_by_address() -> None:
    table = ConnectionTable(2, is_proxy=lambda address: address == "10.0.0.9", descriptors=10_000)
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9", "", "", ""):
        assert table.find_refusal(address) is None
        table.add(address)
    refusal = table.find_refusal("10.0.0.1")
    assert refusal is not None
    assert refusal.retry_after
    assert table.find_refusal("10.0.0.2") is None
    table.upgrade()
    assert table.find_refusal("10.0.0.1") is not None  # a WebSocket is a connection, too
    table.remove("10.0.0.1", is_websocket=True)
    assert table.find_refusal("10.0.0.1") is None


def test_a_network_of_version_6_is_one_address() -> None:
    table = ConnectionTable(1, descriptors=10_000)
    table.add("2001:db8::1")
    assert table.find_refusal("2001:db8::2") is not None
    assert table.find_refusal("2001:db8:0:1::1") is None


def test_all_connections_have_a_limit() -> None:
    table = ConnectionTable(limits.CONNECTIONS + 1, descriptors=100_000)
    for _ in range(limits.CONNECTIONS):
        table.add("10.0.0.1")
    assert table.find_refusal("10.0.0.2") is not None


def test_some_descriptors_are_kept_for_files() -> None:
    table = ConnectionTable(descriptors=256)
    for _ in range(most_connections(256)):
        assert table.find_refusal("10.0.0.1") is None
        table.add("10.0.0.1")
    assert table.find_refusal("10.0.0.2") is not None
    assert most_connections(256) + 64 <= 256
    assert most_connections(10_000) + limits.RESERVED_DESCRIPTORS == 10_000


def test_handshakes_of_an_address_are_bounded_with_its_connections() -> None:
    """A few more than its connections: they are told why they are refused, after their handshake."""
    table = ConnectionTable(10, is_proxy=lambda address: address == "10.0.0.9", descriptors=10_000)
    for _ in range(4):
        table.add("10.0.0.1")
    begun = [table.begin_handshake("10.0.0.1") for _ in range(100)]
    assert begun.count(True) == 10 + limits.REFUSED_CONNECTIONS - 4
    assert not any(begun[begun.count(True) :])
    assert table.begin_handshake("10.0.0.2")
    assert all(table.begin_handshake("10.0.0.9") for _ in range(100))
    table.end_handshake("10.0.0.1")
    assert table.begin_handshake("10.0.0.1")


def test_all_handshakes_have_a_limit() -> None:
    table = ConnectionTable(limits.CONNECTIONS + 1, descriptors=256)
    begun = [table.begin_handshake(f"10.0.0.{number}") for number in range(256)]
    assert begun.count(True) == most_connections(256) + limits.REFUSED_CONNECTIONS
    table.end_handshake("10.0.0.1")
    assert table.begin_handshake("10.0.1.1")


class Reader:
    def __init__(self, table: ConnectionTable) -> None:
        self._table = table
        self.is_open = True

    def unread_bytes(self) -> int:
        return limits.UNREAD_BYTES // 2

    def abort(self) -> None:
        self.is_open = False
        self._table.flow(self)


def test_those_who_have_not_read_for_longest_make_room() -> None:
    table = ConnectionTable()
    first, second = Reader(table), Reader(table)
    table.stall(first, 10.0)
    assert table.has_room(limits.MIB, 10.0)
    table.stall(second, 11.0)
    assert not table.has_room(limits.MIB, 11.5)
    assert first.is_open
    assert table.has_room(limits.MIB, 10.0 + limits.UNREAD_SECONDS)
    assert (first.is_open, second.is_open) == (False, True)


def test_sessions_are_counted_by_subject_and_by_address() -> None:
    sessions = OpenSessions("watches", total=5, per_subject=2, per_address=3)
    alice, bob = (Principal(subject=name, scopes=frozenset(), via="token") for name in ("alice", "bob"))
    with ExitStack() as stack:
        for _ in range(2):
            sessions.check(alice, "10.0.0.1")
            stack.enter_context(sessions.open(alice, "10.0.0.1"))
        with pytest.raises(RateLimited, match="subject"):
            sessions.check(alice, "10.0.0.2")
        stack.enter_context(sessions.open(bob, "10.0.0.1"))
        with pytest.raises(RateLimited, match="address"):
            sessions.check(bob, "10.0.0.1")
        for address in ("10.0.0.3", "10.0.0.4"):
            stack.enter_context(sessions.open(ANONYMOUS, address))
        with pytest.raises(Unavailable):
            sessions.check(bob, "10.0.0.5")
    assert sessions.count == 0
    sessions.check(alice, "10.0.0.1")


def test_strangers_at_one_address_are_one_caller() -> None:
    sessions = OpenSessions("WebSockets", total=9, per_subject=1, per_address=5)
    with sessions.open(ANONYMOUS, "10.0.0.1"):
        with pytest.raises(RateLimited):
            sessions.check(ANONYMOUS, "10.0.0.1")
        sessions.check(ANONYMOUS, "10.0.0.2")
