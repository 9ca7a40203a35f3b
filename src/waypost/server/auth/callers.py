"""Callers before their request is read: their address behind trusted proxies, the host they asked for, their rate limits.

Each process counts rates for itself. In a cluster, each node allows its share: the rate divided by the nodes that are alive.
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from waypost import limits
from waypost.errors import Forbidden, Misdirected, RateLimited, Unavailable
from waypost.model.names import parse_authority
from waypost.model.principal import Principal
from waypost.rate_limit import RateLimiter
from waypost.server.http.admission import jittered
from waypost.server.http.asgi import Request, Scope

# `X-Forwarded-For` counts only if a proxy of the operator's list sent it, and is read from its end: each proxy vouches for the
# address that connected to it and for nothing before that. `Forwarded` (RFC 7239) and the other headers of proxies name no
# caller here: proxies that write them write `X-Forwarded-For`, too, and two headers could name two callers.

log = logging.getLogger("waypost.server")

UNKNOWN_CALLER = "unknown"  # the address of a caller behind a proxy that does not say, or may not say, who it is

_PROXY_HEADERS = frozenset(
    (b"x-forwarded-for", b"forwarded", b"x-real-ip", b"x-forwarded-host", b"x-forwarded-proto", b"via")
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    def __init__(self, trusted_proxies: Sequence[str] = ()) -> None:
        self._trusted: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in trusted_proxies)
        self._has_warned = False

    def client_address(self, scope: Scope) -> str:
        """The address of the caller; empty if it came over a Unix socket.

        A proxy on this machine that is not trusted, or names nobody, is not the caller: loopback has privileges."""
        client = scope.get("client")
        peer: str = client[0] if client else ""
        address = peer
        for previous in reversed(_forwarded_for(scope)) if self._trusted else ():
            if not self.is_trusted(address) or _find_address(previous) is None:
                break
            address = previous
        if address == peer and is_loopback(peer) and _is_proxied(scope):
            self._warn(peer)
            return UNKNOWN_CALLER
        return address

    def _warn(self, peer: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            reason = "names no caller in X-Forwarded-For" if self.is_trusted(peer) else "is not in trusted_proxies"
            log.warning("the proxy at %s %s: its anonymous callers share one rate limit", peer or "a socket", reason)

    def is_trusted(self, address: str) -> bool:
        """Whether the address is one of the operator's proxies."""
        parsed = _find_address(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _forwarded_for(scope: Scope) -> list[str]:
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return [part.strip() for part in ",".join(fields).split(",")] if fields else []


def _is_proxied(scope: Scope) -> bool:
    for name, _ in scope["headers"]:  # noqa: SIM110 - a third of the time of any()
        if name in _PROXY_HEADERS:
            return True
    return False


def _find_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


class TrustedHosts:
    """The host names and origins that are this service's own: the one list for HTTP and WebSockets (E3, W2).

    A page of another site can send requests to any address, and can point a DNS name of its own at this machine (rebinding),
    which makes it of the same origin. So the host must be a name of this service or an IP address, which no DNS name can
    imitate, and the page must come from that host.
    """

    def __init__(
        self,
        base_url: str,
        names: Iterable[str] = (),
        origins: Iterable[str] = (),
        is_hosted: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`names` are further host names, `is_hosted` accepts the domains of hosted agents, `origins` further sites."""
        parts = urlsplit(base_url)
        given = (parse_authority(name) for name in (parts.netloc, "localhost", *names))
        self._names = {name for name in given if name is not None}
        self._scheme = parts.scheme.lower()
        self._origins = {f"{parts.scheme}://{parts.netloc}".lower(), *(text.lower().rstrip("/") for text in origins)}
        self._is_hosted = is_hosted

    def check_host(self, request: Request, is_hosted: Callable[[str], bool] | None = None) -> None:
        name = request.host_name
        if name in self._names or _find_address(name) is not None or (name and (is_hosted or self._is_hosted)(name)):
            return
        host = request.header(b"host")
        raise Misdirected(
            "The request has no Host header." if host is None else f"{host[:80]!r} is not a name of this service.",
            path="Host",
            hint="Use the host of base_url, or have the operator add the name to the setting allowed_hosts.",
        )

    def check_origin(self, request: Request) -> None:
        """Refuse a request that a browser sent for a page of another site."""
        origin = request.header(b"origin")
        if not self.is_same_origin(request) and (origin is None or origin.lower() not in self._origins):
            raise Forbidden(
                "A page of another site may not do this.",
                path="Origin",
                hint="Open a page of this service, or have the operator add the site to the setting allowed_origins.",
            )

    def is_same_origin(self, request: Request) -> bool:
        """Whether the request comes from a page of the host it names, or from no page at all."""
        origin = request.header(b"origin")
        if (
            origin is None
        ):  # browsers send it with every write; the other header also tells of embedded pages and images
            return request.header(b"sec-fetch-site") in (None, "same-origin", "none")
        host = (request.header(b"host") or "").lower()
        return bool(host) and origin.lower() in [f"{scheme}://{host}" for scheme in self._schemes(request.host_name)]

    def _schemes(self, name: str) -> set[str]:
        """The schemes of this service's pages at a host: usually that of `base_url`, because the connection has another
        one behind a proxy that ends TLS."""
        address = _find_address(name)
        if name == "localhost" or (address is not None and address.is_loopback):
            return {self._scheme, "http"}  # past the proxy, on this machine
        return (
            {self._scheme, "https"} if self._is_hosted(name) else {self._scheme}
        )  # hosted domains have https (ADP-52)


# A rate limit applies to a subject, an IPv4 address or an IPv6 /64 network.


class CallerRateLimiter:
    """A rate per minute for each caller, with a burst of one minute. Raises RateLimited with the time to wait."""

    def __init__(
        self,
        now: Callable[[], float],
        per_minute: int,
        *,
        what: str = "requests",
        hint: str = "Slow down.",
        nodes: Callable[[], int] = lambda: 1,
    ) -> None:
        """`nodes`: how many share the rate. Each request then costs as many tokens, so that a caller has the same rate however
        many nodes there are."""
        self._now = now
        self._nodes = nodes
        self._per_minute = per_minute
        self._what = what
        self._hint = hint
        self._limiter: RateLimiter[str] = RateLimiter(per_minute / 60, per_minute, max_keys=limits.RATE_CALLERS)

    def take(self, caller: str, cost: int = 1) -> None:
        """A cost above the burst takes the whole burst."""
        now, cost = self._now(), min(cost * self._nodes(), self._per_minute)
        if not self._limiter.take(caller, now, cost):
            raise self._error(caller, now, cost)

    def check(self, caller: str) -> None:
        """Raise if nothing is left; take nothing."""
        now, cost = self._now(), min(self._nodes(), self._per_minute)
        if self._limiter.available(caller, now) < cost:
            raise self._error(caller, now, cost)

    def _error(self, caller: str, now: float, cost: int) -> RateLimited:
        wait = max(1, math.ceil(self._limiter.wait_seconds(caller, now, cost)))
        return RateLimited(f"More than {self._per_minute} {self._what} in a minute.", hint=self._hint, retry_after=wait)


class RateLimits:
    """The read and write rates of the service. Admins are exempt. A configured rate holds for every other caller; the
    defaults exempt loopback, where local tools are the operator's, unless a proxy may be there. A rate of 0 is no limit."""

    def __init__(
        self,
        now: Callable[[], float],
        reads: int | None = None,
        writes: int | None = None,
        *,
        exempts_loopback: bool = True,
        nodes: Callable[[], int] = lambda: 1,
    ) -> None:
        self._exempts_loopback = {
            "reads": exempts_loopback and reads is None,
            "writes": exempts_loopback and writes is None,
        }
        self._limiters = {
            "reads": _make_limiter(now, limits.READS_PER_MINUTE if reads is None else reads, "reads", nodes),
            "writes": _make_limiter(now, limits.WRITES_PER_MINUTE if writes is None else writes, "writes", nodes),
        }

    def read(self, principal: Principal, address: str, cost: int = 1) -> None:
        self._take("reads", principal, address, cost)

    def write(self, principal: Principal, address: str, cost: int = 1) -> None:
        self._take("writes", principal, address, cost)

    def _take(self, kind: str, principal: Principal, address: str, cost: int) -> None:
        limiter = self._limiters[kind]
        if limiter is None or principal.is_admin or (self._exempts_loopback[kind] and is_loopback(address)):
            return
        limiter.take(rate_limit_key(address) if principal.is_anonymous else f"subject {principal.subject}", cost)


def _make_limiter(
    now: Callable[[], float], per_minute: int, kind: str, nodes: Callable[[], int]
) -> CallerRateLimiter | None:
    hint = f"Wait as long as Retry-After says, or ask the operator for a higher rate_limit_{kind}."
    return CallerRateLimiter(now, per_minute, what=kind, hint=hint, nodes=nodes) if per_minute else None


class OpenSessions:
    """Counts the open sessions of a kind: all, those of each subject or of strangers at one address, and those of each
    address."""

    def __init__(self, kind: str, *, total: int, per_subject: int, per_address: int) -> None:
        self._kind = kind
        self._total = total
        self._per_subject = per_subject
        self._per_address = per_address
        self._by_caller: Counter[str] = Counter()
        self.count = 0

    def check(self, principal: Principal, address: str) -> None:
        """Raise if the caller may not open another one."""
        if self.count >= self._total:
            raise Unavailable(f"Too many {self._kind} are open.", hint="Try again later.", retry_after=jittered(10))
        for caller, most in self._callers(principal, address).items():
            if self._by_caller[caller] >= most:
                raise RateLimited(
                    f"This {caller.partition(' ')[0]} has {most} open {self._kind} already.",
                    path="Authorization",
                    hint="Close some of them.",
                    retry_after=jittered(10),
                )

    @contextmanager
    def open(self, principal: Principal, address: str) -> Iterator[None]:
        callers = list(self._callers(principal, address))
        self.count += 1
        self._by_caller.update(callers)
        try:
            yield
        finally:
            self.count -= 1
            self._by_caller.subtract(callers)
            for caller in callers:
                if self._by_caller[caller] <= 0:
                    del self._by_caller[caller]

    def _callers(self, principal: Principal, address: str) -> dict[str, int]:
        """As whom the caller counts, with the limit of each."""
        callers = {rate_limit_key(address): self._per_address} if address else {}
        if principal.via == "open":  # one subject for everybody, which says nothing
            return callers
        if principal.subject is None:
            return {f"stranger at {address}": self._per_subject, **callers}
        return {f"subject {principal.subject}": self._per_subject, **callers}


def is_loopback(address: str) -> bool:
    """A request without an address came over a Unix socket of this machine."""
    return address.startswith("127.") or address in ("::1", "")


def rate_limit_key(address: str) -> str:
    """One customer usually has a whole /64 of IPv6 addresses, so that network counts as one caller."""
    if ":" not in address:
        return f"address {address}"
    try:
        return f"network {ipaddress.ip_network((address.partition('%')[0], 64), strict=False)}"
    except ValueError:
        return f"address {address}"
