"""Which proxies and which host names are trusted.

`X-Forwarded-For` counts only if a proxy of the operator's list sent it, and is read from its end: each proxy vouches for
the address that connected to it and for nothing before that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from waypost.errors import Forbidden, Misdirected
from waypost.server.http.asgi import Request, Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    def __init__(self, trusted_proxies: Sequence[str] = ()) -> None:
        self._trusted: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in trusted_proxies)

    def client_address(self, scope: Scope) -> str:
        """The address of the caller; empty if it came over a Unix socket."""
        client = scope.get("client")
        address: str = client[0] if client else ""
        if not self._trusted:
            return address
        for previous in reversed(_forwarded_for(scope)):
            if not self._is_trusted(address) or _find_address(previous) is None:
                break
            address = previous
        return address

    def _is_trusted(self, address: str) -> bool:
        parsed = _find_address(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _forwarded_for(scope: Scope) -> list[str]:
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return [part.strip() for part in ",".join(fields).split(",")] if fields else []


def _find_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


class TrustedHosts:
    """Checks the Host and Origin headers of a WebSocket handshake (THREATS W2).

    A page of another site can open a WebSocket to any address, and can point a name of its own at this machine. So the
    page must be of this service, and the host one of its names or an IP address, which no DNS name can imitate.
    """

    def __init__(self, base_url: str, bound: str, names: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        parts = urlsplit(base_url)
        self._names = {name.lower().rstrip(".") for name in (parts.hostname or "", bound, "localhost", *names)}
        self._origins = {f"{parts.scheme}://{parts.netloc}".lower(), *(text.lower().rstrip("/") for text in origins)}

    def check(self, request: Request, is_hosted: Callable[[str], bool] = lambda name: False) -> None:
        """`is_hosted` accepts further names: the domains of hosted agents."""
        host = (request.header(b"host") or "").lower()
        name = host_name(host)
        if name not in self._names and _find_address(name) is None and not is_hosted(name):
            raise Misdirected(
                f"{host[:80]!r} is not a name of this service.",
                path="Host",
                hint="Use the host of base_url, or have the operator add the name to allowed_hosts.",
            )
        origin = request.header(b"origin")
        if origin is not None and origin.lower() not in {*self._origins, f"http://{host}", f"https://{host}"}:
            raise Forbidden(
                "A page of another site may not open a WebSocket here.",
                path="Origin",
                hint="Have the operator add the site to allowed_origins.",
            )


def host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")
