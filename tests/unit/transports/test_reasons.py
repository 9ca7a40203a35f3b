"""Reasons of failed connections."""

from __future__ import annotations

import errno

import pytest

from waypost.transports.port import describe_failure


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError("Multiple exceptions: one, two"), "Multiple exceptions: one, two"),
        (TimeoutError(), "TimeoutError"),
        (None, "it does not answer"),
    ],
)
def test_the_reason_is_the_text_of_the_system(error: Exception | None, expected: str) -> None:
    assert describe_failure(error) == expected
