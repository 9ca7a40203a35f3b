"""By which names a WebSocket may call this service, and whose pages may (THREATS W2).

A page of another site can open a socket to any address, and can point a name of its own at this machine. So the page must be
ours, and the name must be one that belongs to us; an address belongs to nobody's DNS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from waypost.errors import Forbidden, Misdirected
from waypost.server.asgi import Request


class Hosts:
    def __init__(self, base_url: str, bound: str, names: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        own = urlsplit(base_url)
        self._names = {name.lower().rstrip(".") for name in (own.hostname or "", bound, "localhost", *names)}
        self._origins = {f"{own.scheme}://{own.netloc}".lower(), *(text.lower().rstrip("/") for text in origins)}

    def check(self, request: Request, is_hosted: Callable[[str], bool] = lambda name: False) -> None:
        """`is_hosted` knows further names, those of agents that are answered for here."""
        host = (request.header(b"host") or "").lower()
        name = name_of(host)
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


def name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
