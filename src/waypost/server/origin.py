"""Where a request comes from: the socket's address, or what a proxy that the operator named says of it.

Only a proxy on that list is believed, and only about the one who spoke to it: `X-Forwarded-For` is read from its end.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from waypost.server.asgi import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Origin:
    def __init__(self, trusted_proxies: Sequence[str] = ()) -> None:
        self._trusted: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in trusted_proxies)

    def address(self, scope: Scope) -> str:
        """The address of the caller; empty where there is none."""
        client = scope.get("client")
        found: str = client[0] if client else ""
        if not self._trusted or not self._is_trusted(found):
            return found
        for told in reversed(_forwarded(scope)):
            if _parsed(told) is None:
                return found  # what follows was written by the proxy; what cannot be read ends the chain
            found = told
            if not self._is_trusted(found):
                return found
        return found

    def _is_trusted(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _forwarded(scope: Scope) -> list[str]:
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return [part.strip() for part in ",".join(fields).split(",")] if fields else []


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
