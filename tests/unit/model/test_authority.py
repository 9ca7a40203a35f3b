"""The value of a Host header: which host it names."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest

from waypost.model.names import parse_authority


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("agents.example", "agents.example"),
        ("Agents.EXAMPLE:8440", "agents.example"),
        ("agents.example.", "agents.example"),
        ("agents.example.:8440", "agents.example"),
        ("localhost:", "localhost"),
        ("127.0.0.1:8440", "127.0.0.1"),
        ("[::1]:8440", "::1"),
        ("[0:0::1]", "::1"),
        ("[::FFFF:127.0.0.1]", str(IPv6Address("::ffff:127.0.0.1"))),  # its text differs between Python versions
        ("under_score.example", "under_score.example"),
    ],
)
def test_a_host_is_compared_without_case_port_brackets_and_final_dot(text: str, host: str) -> None:
    assert parse_authority(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        ":8440",
        "a b",
        "a,b",
        "localhost, evil.test",
        "user@localhost",
        "localhost/",
        "localhost#evil.test",
        "localhost\\evil.test",
        "localhost:80:80",
        "localhost:8x",
        "localhost:123456",
        "::1",
        "[::1",
        "[::1]evil.test",
        "[::1%25eth0]",
        "[v1.x]",
        "[localhost]",
        "loc\u0430lhost",
        "localhost\n",
        "x" * 255,
    ],
)
def test_anything_else_names_no_host(text: str) -> None:
    assert parse_authority(text) is None
