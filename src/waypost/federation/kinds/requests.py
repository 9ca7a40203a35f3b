"""Requests to peers. Nothing of a caller is in them but the question itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urljoin, urlsplit

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.port import PeerMissing, PeerProblem, PeerRefusal
from waypost.federation.peers import Peer
from waypost.registry.ports import FetchPurpose, FetchResponse, OutboundSender

NOT_MODIFIED: Final = 304
GONE: Final = 410
BAD_REQUEST: Final = 400
_REFUSED: Final = (401, 403)
_ABSENT: Final = (404, 410, 501)  # the last one: an optional operation that a registry does not have
_REDIRECTS: Final = (301, 302, 303, 307, 308)

PATH_HEADER: Final = "ARD-Federation-Path"  # ard.md P-22


class PeerRequests:
    def __init__(self, sender: OutboundSender) -> None:
        self._sender = sender

    async def get(
        self, peer: Peer, url: str, headers: Mapping[str, str] | None = None, *, expected: Sequence[int] = ()
    ) -> FetchResponse:
        """`expected` are statuses that the caller understands."""
        response = await self._send(peer, url, "feed", "GET", b"", dict(headers or {}))
        if response.status in _REDIRECTS:
            raise PeerProblem(f"It redirects to {response.headers.get('location', '')[:200]!r}: add that address.")
        if not response.is_success and response.status not in (NOT_MODIFIED, GONE, *expected):
            raise PeerProblem(f"It answered with status {response.status}.")
        return response

    async def crawl(self, peer: Peer, url: str, headers: Mapping[str, str] | None = None) -> FetchResponse:
        """Read a document of a site. Redirects are followed within it."""
        host = urlsplit(url).hostname or ""
        for _ in range(limits.FETCH_REDIRECTS + 1):
            response = await self._send(peer, url, "crawl", "GET", b"", dict(headers or {}))
            if response.is_success or response.status == NOT_MODIFIED:
                return response
            if response.status in _ABSENT:
                raise PeerMissing(f"{url} answered with status {response.status}.")
            if response.status not in _REDIRECTS:
                raise PeerProblem(f"{url} answered with status {response.status}.")
            url = _redirected(url, host, response.headers.get("location", ""))
        raise PeerProblem(f"{url} redirects too many times.")

    async def ask(self, peer: Peer, url: str, body: bytes, path: tuple[str, ...]) -> FetchResponse:
        headers = {"Content-Type": "application/json"}
        if path:
            headers[PATH_HEADER] = ", ".join(path)
        response = await self._send(peer, url, "ask", "POST", body, headers)
        if not response.is_success:
            raise PeerProblem(f"It answered a question with status {response.status}.")
        return response

    async def _send(
        self, peer: Peer, url: str, purpose: FetchPurpose, method: str, body: bytes, headers: dict[str, str]
    ) -> FetchResponse:
        if peer.token and url.startswith(f"{peer.url}/"):
            headers["Authorization"] = f"Bearer {peer.token}"
        try:
            response = await self._sender.send(url, purpose, method=method, body=body, headers=list(headers.items()))
        except WaypostError as error:
            raise PeerProblem(error.message) from None
        if response.status in _REFUSED:
            raise PeerRefusal(f"It wants a token (status {response.status}): give it one with --token-file.")
        return response


def _redirected(url: str, host: str, location: str) -> str:
    """The target of a redirect, which must be on the same site and not leave https."""
    target = urljoin(url, location)
    parts, secure = urlsplit(target), urlsplit(url).scheme == "https"
    found = parts.hostname or ""
    is_same_site = found == host or found.endswith(f".{host}") or host.endswith(f".{found}")
    if not location or not is_same_site or "." not in found or (secure and parts.scheme != "https"):
        raise PeerProblem(f"{url} redirects to another site, or away from https.")
    return target
