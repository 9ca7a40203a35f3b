"""Encrypted cursors."""

from __future__ import annotations

import pytest

from waypost.errors import InvalidCursor
from waypost.trust.cursor_cipher import CursorCipher

SEAL = CursorCipher(bytes(range(64)))


def test_a_sealed_cursor_opens_only_with_its_purpose_and_context() -> None:
    sealed = SEAL.seal("page", b"payload", "alice", "filter")
    assert SEAL.open("page", sealed, "alice", "filter") == b"payload"
    for purpose, context in (("watch", ("alice", "filter")), ("page", ("bob", "filter")), ("page", ("alice",))):
        with pytest.raises(InvalidCursor):
            SEAL.open(purpose, sealed, *context)
    with pytest.raises(InvalidCursor):
        CursorCipher(bytes(64)).open("page", sealed, "alice", "filter")


def test_every_changed_character_is_noticed() -> None:
    sealed = SEAL.seal("page", b"payload")
    for place in range(len(sealed)):
        changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        with pytest.raises(InvalidCursor):
            SEAL.open("page", changed)


def test_a_sealed_cursor_reveals_nothing_of_the_payload() -> None:
    assert b"payload" not in SEAL.seal("page", b"payload").encode()
    with pytest.raises(ValueError, match="512"):
        CursorCipher(b"short")


def test_a_cursor_is_written_in_one_way_only() -> None:
    seal = CursorCipher(bytes(64))
    for size in range(1, 9):
        cursor = seal.seal("list", bytes(size))
        for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
            if last != cursor[-1]:
                with pytest.raises(InvalidCursor):
                    seal.open("list", cursor[:-1] + last)
