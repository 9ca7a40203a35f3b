"""Where a record of mDNS that is too small for an announcement points to (announce.md P-23): a registry that has it whole.

A pointer is a stranger's word, and following it tells a stranger's server of us. One that leads to a registry which the user
named is followed there, with the token for it; any other one is left to a way out that guards itself, or to nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import httpx

from waypost import limits
from waypost.client.registries import http_client
from waypost.errors import TooLarge, Unavailable
from waypost.settings import Connection

Fetch = Callable[[str], Awaitable[bytes]]


def pointer_to(address: Connection) -> Callable[[str], str]:
    """The address of an agent's announcement in a registry."""
    return lambda agent_id: f"{address.base_url}/agents/{agent_id}"


def follower(registries: Sequence[Connection], elsewhere: Fetch | None = None) -> Fetch:
    async def fetch(url: str) -> bytes:
        for address in registries:
            if url.startswith(f"{address.base_url}/agents/"):
                return await _ask(address, url)
        if elsewhere is None:
            raise Unavailable("The pointer leads to a registry that nobody named.", path="mdns", hint="Name it.")
        return await elsewhere(url)

    return fetch


async def _ask(address: Connection, url: str) -> bytes:
    try:
        async with http_client(address) as http, http.stream("GET", url) as answer:
            if not answer.is_success:
                raise Unavailable(
                    f"The pointer leads to status {answer.status_code}.", path="mdns", hint="Wait for it."
                )
            return await _body(answer)
    except httpx.HTTPError as error:
        raise Unavailable(f"The pointer leads nowhere ({error}).", path="mdns", hint="Is that registry up?") from None


async def _body(answer: httpx.Response) -> bytes:
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > 2 * limits.ANNOUNCE_BYTES:  # with what a Response adds
            raise TooLarge("The pointer leads to more than an announcement.", path="mdns", hint="Ignore this record.")
    return body
