"""URLs of outgoing requests: one spelling, and the same host and port for the libraries that would open them."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

import httpx2

from waypost.errors import WaypostError
from waypost.model.names import is_path_safe, parse_domain, slug, unslug
from waypost.net.url import FetchTarget, join_url, parse_url

BASE = parse_url("https://agents.example.com/a?b")


def fuzz(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    with suppress(WaypostError):
        _check(parse_url(text), text)
    with suppress(WaypostError):
        _check(parse_url(joined := join_url(BASE, text)), joined)
    with suppress(WaypostError):
        domain = parse_domain(text, "domain")
        assert parse_domain(domain, "domain") == domain
    with suppress(UnicodeEncodeError):
        text.encode()
        assert is_path_safe(slug(text))
        assert (unslug(slug(text)) or text) == text


def _check(target: FetchTarget, text: str) -> None:
    assert parse_url(str(target)) == target
    standard, library = urlsplit(text), httpx2.URL(str(target))
    assert standard.hostname == target.host == library.raw_host.decode().strip("[]")
    assert (standard.port or target.port) == target.port == (library.port or target.port)
    assert not standard.username and not standard.fragment  # noqa: PT018 - one statement about one URL
