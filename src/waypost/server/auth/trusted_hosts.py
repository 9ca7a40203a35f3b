"""Where a request comes from: the socket's address, or what a proxy that the operator named says of it.

Only a proxy on that list is believed, and only about the one who spoke to it: `X-Forwarded-For` is read from its end.
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

    def address(self, scope: Scope) -> str:
        """The address of the caller; empty where there is none."""
        client = scope.get("client")
        found: str = client[0] if client else ""
        if not self._trusted or not self._is_trusted(found):
            return found
        for told in reversed(_forwarded_for(scope)):
            if _parse_address(told) is None:
                return found  # what follows was written by the proxy; what cannot be read ends the chain
            found = told
            if not self._is_trusted(found):
                return found
        return found

    def _is_trusted(self, address: str) -> bool:
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _forwarded_for(scope: Scope) -> list[str]:
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return [part.strip() for part in ",".join(fields).split(",")] if fields else []


def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


# ---- By which names a WebSocket may call this service, and whose pages may (THREATS W2).
#
# A page of another site can open a socket to any address, and can point a name of its own at this machine. So the page must be
# ours, and the name must be one that belongs to us; an address belongs to nobody's DNS.


class TrustedHosts:
    def __init__(self, base_url: str, bound: str, names: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        own = urlsplit(base_url)
        self._names = {name.lower().rstrip(".") for name in (own.hostname or "", bound, "localhost", *names)}
        self._origins = {f"{own.scheme}://{own.netloc}".lower(), *(text.lower().rstrip("/") for text in origins)}

    def check(self, request: Request, is_hosted: Callable[[str], bool] = lambda name: False) -> None:
        """`is_hosted` knows further names, those of agents that are answered for here."""
        host = (request.header(b"host") or "").lower()
        name = host_name(host)
        if name not in self._names and not _is_address(name) and not is_hosted(name):
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


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
