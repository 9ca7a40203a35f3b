"""A document at an address, fetched on behalf of whoever typed the command: with their network, without their tokens."""

from __future__ import annotations

import httpx

from waypost import limits
from waypost.client.problems import error_of_transport
from waypost.errors import InvalidParameter, InvalidRequest, TooLarge, Unavailable
from waypost.settings import is_loopback

_SCHEMES = ("http", "https")
_REDIRECTS = 3


def fetch(address: str, timeout: float) -> tuple[bytes, str]:
    """The document, and the address that gave it after redirects."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise InvalidParameter(f"{address!r} is not an address: {error}.", path="URL") from None
    if url.scheme not in _SCHEMES or not url.host:
        raise InvalidParameter(f"{address!r} is not an address of the web.", path="URL", hint="Use https or http.")
    try:
        with (
            httpx.Client(
                timeout=timeout,
                follow_redirects=True,
                max_redirects=_REDIRECTS,
                trust_env=not is_loopback(url.host),  # a proxy never stands before loopback
            ) as http,
            http.stream(
                "GET", url, headers={"User-Agent": "waypost", "Accept": "application/json, */*;q=0.5"}
            ) as answer,
        ):
            _check_status(answer, address)
            return _read(answer, address), str(answer.url)
    except httpx.HTTPError as error:
        raise error_of_transport(error, address) from error


def _check_status(answer: httpx.Response, address: str) -> None:
    if answer.is_success:
        return
    kind = Unavailable if answer.is_server_error else InvalidRequest
    raise kind(f"{address} answered with status {answer.status_code}.", path="URL", hint="Is the document there?")


def _read(answer: httpx.Response, address: str) -> bytes:
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > limits.DOCUMENT_BYTES:
            raise TooLarge(f"{address} has more than {limits.DOCUMENT_BYTES} bytes.", path="URL")
    return bytes(content)
