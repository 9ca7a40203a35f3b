"""The one way out: every request that this service makes on behalf of others goes through `SafeFetcher`.

It looks a name up once, checks every address of the answer, connects to one of those and to nothing else, reads plain bytes
within bounds of size and time, and follows redirects only within a site. No proxy, no cookie, no caller's header.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import httpcore
import msgspec

from waypost import __version__, limits
from waypost.domains.ports import Check
from waypost.errors import FetchFailed, InvalidParameter, RateLimited
from waypost.model.health import is_bare, is_socket, scheme_of
from waypost.net.addresses import Address, AddressPolicy, denied
from waypost.net.authorities import client_context
from waypost.net.guarding import Allowance, GuardedNetwork, too_large
from waypost.net.pacing import Crowd, Pace
from waypost.net.resolution import Resolver
from waypost.net.urls import Target, is_same_site, join_url, parse_url
from waypost.registry.fetching import Fetched, Purpose

USER_AGENT: Final = f"Waypost/{__version__} (agent discovery; answer 410 to opt out of checks)"
HOP_HEADER: Final = b"X-Discovery-Hop"
_GONE: Final = 410
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_LOOPBACK_NAMES: Final = "localhost"
_CONTEXTS: Final = 4  # what a process trusts, by TLS 1.3 alone and by older ones too


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of request may cost."""

    body_bytes: int
    redirects: int = 0
    https_only: bool = False
    accept: str = "application/json"
    newest_tls: bool = False  # 1.3 and nothing before (ADP-52)
    connect_seconds: float = limits.FETCH_CONNECT_SECONDS
    total_seconds: float = limits.FETCH_TOTAL_SECONDS


BOUNDS: Final[dict[Purpose, Bounds]] = {
    "health": Bounds(body_bytes=limits.FETCH_SMALL_BYTES, accept="*/*"),
    "card": Bounds(
        body_bytes=limits.FETCH_CARD_BYTES, redirects=limits.FETCH_REDIRECTS, accept="application/json, */*;q=0.5"
    ),
    "jwks": Bounds(body_bytes=limits.FETCH_CARD_BYTES, accept="application/jwk-set+json, application/json"),
    "peer": Bounds(
        body_bytes=limits.FETCH_PAGE_BYTES, redirects=limits.FETCH_REDIRECTS, accept="application/json, */*;q=0.5"
    ),
    "proof": Bounds(body_bytes=limits.FETCH_SMALL_BYTES, https_only=True, accept="text/plain"),
    "descriptor": Bounds(
        body_bytes=limits.DESCRIPTOR_BYTES,
        https_only=True,
        newest_tls=True,
        total_seconds=limits.DESCRIPTOR_SECONDS,
        accept="application/vnd.adp+json, application/json;q=0.9, */*;q=0.5",
    ),
    "index": Bounds(
        body_bytes=limits.INDEX_BYTES, https_only=True, newest_tls=True, total_seconds=limits.DESCRIPTOR_SECONDS
    ),
    "webhook": Bounds(body_bytes=limits.FETCH_SMALL_BYTES, https_only=True),
    "task": Bounds(body_bytes=2 * limits.TASK_RESULT_BYTES, https_only=True),
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for at a target; `headers` are ours, beside those that every request has."""

    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    connection: str = "close"


_PLAIN: Final = Asked()
_UPGRADE: Final = Asked(
    headers=(
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", base64.b64encode(b"waypost asks you").decode()),  # whoever answers is not held to it
    ),
    connection="Upgrade",
)
_AS_WEB: Final = {"ws": "http", "wss": "https", "grpc": "http", "grpcs": "http", "tcp": "http"}


@lru_cache(maxsize=_CONTEXTS)
def _context(ca_file: Path | None, *, newest: bool = False) -> ssl.SSLContext:
    """Shared by all fetchers of a process that trust the same: nothing in it changes."""
    context = client_context(ca_file)
    if newest:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class SafeFetcher:
    """`Fetcher`, `Sender` and `Prober` of registry/fetching.py. One for a process: it holds who is being asked now."""

    def __init__(
        self,
        policy: AddressPolicy,
        resolver: Resolver,
        *,
        ca_file: Path | None = None,
        own_origin: str | None = None,
        bounds: dict[Purpose, Bounds] = BOUNDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._bounds = bounds
        self._ca_file = ca_file
        self._own_origin = own_origin  # this service as others reach it, perhaps behind a proxy
        if ca_file is not None:
            _ = self._tls  # a mistake in the settings is told at the start
        self._all = asyncio.Semaphore(limits.FETCH_AT_ONCE)
        self._checks = asyncio.Semaphore(limits.HEALTH_AT_ONCE)  # dead endpoints take no place of others
        self._waiting = 0
        self._crowd: Crowd[str] = Crowd(limits.FETCH_PER_ADDRESS)
        self._pace: Pace[tuple[str, int]] = Pace(limits.FETCH_PACE_TARGETS, clock)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Loading all authorities takes longer than a request; a service that asks nobody does without."""
        return _context(self._ca_file)

    @cached_property
    def _newest_tls(self) -> ssl.SSLContext:
        return _context(self._ca_file, newest=True)

    async def fetch(self, url: str, purpose: Purpose, *, check: Check | None = None) -> Fetched:
        """`check` sees who answered, after its handshake and before the request."""
        bounds = self._bounds[purpose]
        target = parse_url(url, https_only=bounds.https_only or check is not None)
        async with self._place():
            try:
                async with asyncio.timeout(bounds.total_seconds):
                    return await self._follow(target, purpose, bounds, check)
            except TimeoutError:
                raise _failed("timed_out", "The other server took too long.", "Try again later.") from None

    async def probe(self, endpoint: str) -> int | None:
        """Whether somebody answers: the status of an answer whose body is not read, or that a connection was made."""
        scheme = scheme_of(endpoint)
        target = _target_of(endpoint)
        bounds = msgspec.structs.replace(self._bounds["health"], body_bytes=0)
        async with self._checks:
            try:
                async with asyncio.timeout(bounds.total_seconds):
                    if is_bare(scheme):
                        await self._reach(target, bounds)
                        return None
                    asked = _UPGRADE if is_socket(scheme) else _PLAIN
                    return (await self._hop(target, "health", bounds, asked=asked)).status
            except TimeoutError:
                raise _failed("timed_out", "The other server took too long.", "Try again later.") from None

    def check_endpoint(self, endpoint: str) -> None:
        """AddressDenied, where the endpoint names a number that is not asked."""
        try:
            target = _target_of(endpoint)
        except InvalidParameter:
            return
        if target.address is not None and target.origin != self._own_origin:
            self._policy.check(target.address, target.port)

    async def _reach(self, target: Target, bounds: Bounds) -> None:
        """A connection and nothing more."""
        if target.origin == self._own_origin:
            raise denied("own")
        addresses = await self._addresses(target)
        for address in addresses:
            self._policy.check(address, target.port)
        self._keep_pace(addresses, target, "health")
        async with AsyncExitStack() as stack:
            network = GuardedNetwork(addresses, Allowance(0), self._crowd, stack)
            try:
                stream = await network.connect_tcp(target.host, target.port, timeout=bounds.connect_seconds)
            except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError):
                raise _failed("refused", "The other server cannot be reached.", "Does it run?") from None
            await stream.aclose()

    def check(self, url: str, purpose: Purpose) -> None:
        """What can be said of an address without asking anybody: how it is written, and the number that it names."""
        target = parse_url(url, https_only=self._bounds[purpose].https_only)
        if target.origin == self._own_origin:
            raise denied("own")
        if target.address is not None:
            self._policy.check(target.address, target.port)

    async def send(
        self,
        url: str,
        purpose: Purpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Fetched:
        """One hop and no more: a redirect is an answer like any other."""
        bounds = self._bounds[purpose]
        target = parse_url(url, https_only=bounds.https_only)
        asked = Asked(method=method, body=body, headers=tuple(headers))
        async with self._place():
            try:
                async with asyncio.timeout(bounds.total_seconds):
                    return await self._hop(target, purpose, bounds, asked=asked)
            except TimeoutError:
                raise _failed("timed_out", "The other server took too long.", "Try again later.") from None

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._waiting >= limits.FETCH_WAITING:
            raise RateLimited("Too many requests wait to go out.", retry_after=5)
        self._waiting += 1
        try:
            async with self._all:
                yield
        finally:
            self._waiting -= 1

    async def _follow(self, target: Target, purpose: Purpose, bounds: Bounds, check: Check | None) -> Fetched:
        """S6: each hop is checked as the first one was."""
        for _ in range(bounds.redirects + 1):
            fetched = await self._hop(target, purpose, bounds, check)
            location = fetched.headers.get("location")
            if fetched.status not in _REDIRECTS or not bounds.redirects or location is None:
                return fetched
            there = parse_url(join_url(target, location))
            if there.scheme != "https" or not is_same_site(target, there):
                raise _failed(
                    "redirect", "It redirects to another site, or away from https.", "Name the document's own address."
                )
            target = there
        raise _failed("redirect", "It redirects again and again.", "Name the document's own address.")

    async def _hop(
        self, target: Target, purpose: Purpose, bounds: Bounds, check: Check | None = None, asked: Asked = _PLAIN
    ) -> Fetched:
        if target.origin == self._own_origin:
            raise denied("own")
        addresses, _ = await asyncio.gather(self._addresses(target), self._prepare(target, bounds))
        for address in addresses:  # S5: one that is denied spoils all
            self._policy.check(address, target.port)
        self._keep_pace(addresses, target, purpose)
        async with AsyncExitStack() as stack:
            try:
                fetched = await self._ask(target, addresses, bounds, stack, check, asked)
            except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError):
                raise _failed("refused", "The other server cannot be reached.", "Does it run?") from None
            except httpcore.TimeoutException:
                raise _failed("timed_out", "The other server took too long.", "Try again later.") from None
            except (httpcore.NetworkError, httpcore.ProtocolError):
                raise _failed("protocol", "The other server broke off, or speaks no HTTP.", None) from None
        if purpose == "health" and fetched.status == _GONE:
            for address in addresses:
                self._pace.rest((str(address), target.port), limits.FETCH_OPT_OUT_SECONDS)
        return fetched

    async def _prepare(self, target: Target, bounds: Bounds) -> None:
        """Loading all authorities takes longer than a look-up: once, beside it, and not on the event loop."""
        wanted = "_newest_tls" if bounds.newest_tls else "_tls"
        if target.scheme == "https" and wanted not in self.__dict__:
            await asyncio.to_thread(getattr, self, wanted)

    async def _addresses(self, target: Target) -> Sequence[Address]:
        if target.address is not None:
            return [target.address]
        if target.host.split(".")[-1] == _LOOPBACK_NAMES:
            return self._policy.loopback()
        return await self._resolver.addresses(target.host)

    def _keep_pace(self, addresses: Sequence[Address], target: Target, purpose: Purpose) -> None:
        """S8: however many agents name one endpoint, it is checked by the clock."""
        if purpose != "health":
            return
        keys = [(str(address), target.port) for address in addresses]
        wait = max(map(self._pace.wait_seconds, keys))
        if wait > 0:
            raise RateLimited("This endpoint was checked a moment ago.", path="url", retry_after=int(wait) + 1)
        for key in keys:
            self._pace.rest(key, limits.FETCH_HEALTH_PAUSE_SECONDS)

    async def _ask(
        self,
        target: Target,
        addresses: Sequence[Address],
        bounds: Bounds,
        stack: AsyncExitStack,
        check: Check | None,
        asked: Asked = _PLAIN,
    ) -> Fetched:
        allowance = Allowance(2 * bounds.body_bytes + 4 * limits.FETCH_HEADER_BYTES)
        origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
        network = GuardedNetwork(addresses, allowance, self._crowd, stack, check)
        tls = None if target.scheme == "http" else self._newest_tls if bounds.newest_tls else self._tls
        connection = httpcore.AsyncHTTPConnection(origin, ssl_context=tls, network_backend=network)
        stack.push_async_callback(connection.aclose)
        response = await connection.handle_async_request(_request(target, bounds, asked))
        stack.push_async_callback(response.aclose)
        headers = _headers(response)
        body = b""
        if 200 <= response.status < 300 and bounds.body_bytes:
            body = await _body(response, headers, bounds.body_bytes)
        return Fetched(url=str(target), status=response.status, headers=headers, body=body)


def _target_of(endpoint: str) -> Target:
    """An endpoint of an agent as an address of the web: a WebSocket is asked there, and others have a host and a port."""
    scheme = scheme_of(endpoint)
    return parse_url(_AS_WEB.get(scheme, scheme) + endpoint[len(scheme) :])


def _request(target: Target, bounds: Bounds, asked: Asked) -> httpcore.Request:
    connect, total = bounds.connect_seconds, bounds.total_seconds
    length = [(b"Content-Length", str(len(asked.body)).encode())] if asked.method != "GET" else []
    return httpcore.Request(
        asked.method,
        httpcore.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.target.encode()
        ),
        headers=[
            (b"Host", target.authority.encode()),
            (b"User-Agent", USER_AGENT.encode()),
            (b"Accept", bounds.accept.encode()),
            (b"Accept-Encoding", b"identity"),
            (HOP_HEADER, b"1"),
            (b"Connection", asked.connection.encode()),
            *length,
            *((name.encode("ascii"), value.encode("ascii")) for name, value in asked.headers),
        ],
        content=asked.body or None,
        extensions={"timeout": {"connect": connect, "read": total, "write": connect, "pool": connect}},
    )


def _headers(response: httpcore.Response) -> dict[str, str]:
    if sum(len(name) + len(value) + 4 for name, value in response.headers) > limits.FETCH_HEADER_BYTES:
        raise too_large()
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


async def _body(response: httpcore.Response, headers: dict[str, str], most: int) -> bytes:
    """S7: as it was sent, never unpacked; a few bytes can hold gigabytes."""
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise _failed("encoding", "The answer is compressed, which was not asked for.", "Serve it plain.")
    if headers.get("content-length", "").isdigit() and int(headers["content-length"]) > most:
        raise too_large()
    content = bytearray()
    async for part in response.aiter_stream():
        content += part
        if len(content) > most:
            raise too_large()
    return bytes(content)


def _failed(reason: str, message: str, hint: str | None) -> FetchFailed:
    return FetchFailed(message, path="url", hint=hint, details={"reason": reason})
