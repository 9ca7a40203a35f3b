"""Where the proof of a domain is looked up: in its zone, or on its web server."""

from __future__ import annotations

from waypost.errors import FetchFailed
from waypost.net.fetching import SafeFetcher
from waypost.net.resolution import Resolver
from waypost.trust.domains import LABEL, WELL_KNOWN, Method

_HTTPS = 443


class PublishedProofs:
    """`ProofLookup` of registry/domains.py. `port` is for tests, which may not listen on the usual one."""

    def __init__(self, resolver: Resolver, fetcher: SafeFetcher, *, port: int = _HTTPS) -> None:
        self._resolver = resolver
        self._fetcher = fetcher
        self._authority_end = "" if port == _HTTPS else f":{port}"

    async def lines(self, domain: str, method: Method, perspective: int) -> list[str]:
        if method == "dns":
            texts = await self._resolver.texts(f"{LABEL}.{domain}", perspective)
            return [text.decode("ascii", "replace") for text in texts]
        fetched = await self._fetcher.fetch(f"https://{domain}{self._authority_end}{WELL_KNOWN}", "proof")
        if not fetched.is_success:
            raise FetchFailed(
                f"The web server of {domain} answered with status {fetched.status}.",
                path="$.domain",
                details={"reason": "status"},
            )
        return fetched.body.decode("ascii", "replace").splitlines()
