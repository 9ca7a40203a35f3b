"""A path is shown as any server would show it, also where its escapes are broken."""

from __future__ import annotations

import random
from urllib.parse import unquote

import pytest

from waypost.server.http.asgi import decode_path


@pytest.mark.parametrize(
    "raw", [b"/", b"/a/b", b"/a%2Fb", b"/%C3%BC", b"/%ff%C3", b"/%zz%2", b"/100%", b"/%e2%82%ac%41"]
)
def test_a_path_is_decoded_as_everywhere(raw: bytes) -> None:
    assert decode_path(raw) == unquote(raw.decode())


def test_any_mixture_of_escapes_is_decoded_as_everywhere() -> None:
    chance = random.Random(5)
    for _ in range(2000):
        raw = b"/" + bytes(chance.choices(b"ab%%%2F3AcC0zZ.~:/", k=chance.randrange(16)))
        assert decode_path(raw) == unquote(raw.decode()), raw
