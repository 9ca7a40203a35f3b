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

import httpcore2
import msgspec

from waypost import __version__, limits
from waypost.domains.ports import PeerCheck
from waypost.errors import FetchFailed, InvalidParameter, RateLimited
from waypost.model.health import is_connect_only, is_socket, scheme_of
from waypost.net.address_policy import Address, AddressPolicy, address_denied
from waypost.net.dns.stub_resolver import StubResolver
from waypost.net.ssrf import Cooldown, KeyedSemaphore, PinnedNetworkBackend, ReadBudget, too_large_error
from waypost.net.tls_context import client_tls_context
from waypost.net.url import FetchTarget, is_same_site, join_url, parse_url
from waypost.registry.ports import FetchPurpose, FetchResponse
from waypost.trust.domain_claims import PROOF_LABEL, PROOF_PATH, ProofMethod

USER_AGENT: Final = f"Waypost/{__version__} (agent discovery; answer 410 to opt out of checks)"

HOP_HEADER: Final = b"X-Discovery-Hop"

_GONE: Final = 410

_REDIRECTS: Final = (301, 302, 303, 307, 308)

_LOOPBACK_NAMES: Final = "localhost"

_TLS_CONTEXTS: Final = 4  # what a process trusts, by TLS 1.3 alone and by older ones too


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of request may cost."""

    body_bytes: int
    redirects: int = 0
    https_only: bool = False
    accept: str = "application/json"
    newest_tls: bool = False  # 1.3 and nothing before (ADP-52)
    connect_seconds: float = limits.FETCH_CONNECT_SECONDS
    total_seconds: float = limits.FETCH_TOTAL_SECONDS


FETCH_LIMITS: Final[dict[FetchPurpose, FetchLimits]] = {
    "health": FetchLimits(body_bytes=limits.FETCH_SMALL_BYTES, accept="*/*"),
    "card": FetchLimits(
        body_bytes=limits.FETCH_CARD_BYTES, redirects=limits.FETCH_REDIRECTS, accept="application/json, */*;q=0.5"
    ),
    "jwks": FetchLimits(body_bytes=limits.FETCH_CARD_BYTES, accept="application/jwk-set+json, application/json"),
    "peer": FetchLimits(
        body_bytes=limits.FETCH_PAGE_BYTES, redirects=limits.FETCH_REDIRECTS, accept="application/json, */*;q=0.5"
    ),
    "proof": FetchLimits(body_bytes=limits.FETCH_SMALL_BYTES, https_only=True, accept="text/plain"),
    "descriptor": FetchLimits(
        body_bytes=limits.DESCRIPTOR_BYTES,
        https_only=True,
        newest_tls=True,
        total_seconds=limits.DESCRIPTOR_SECONDS,
        accept="application/vnd.adp+json, application/json;q=0.9, */*;q=0.5",
    ),
    "index": FetchLimits(
        body_bytes=limits.INDEX_BYTES, https_only=True, newest_tls=True, total_seconds=limits.DESCRIPTOR_SECONDS
    ),
    "webhook": FetchLimits(body_bytes=limits.FETCH_SMALL_BYTES, https_only=True),
    "task": FetchLimits(body_bytes=2 * limits.TASK_RESULT_BYTES, https_only=True),
}


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for at a target; `headers` are ours, beside those that every request has."""

    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    connection: str = "close"


_GET: Final = OutgoingRequest()

_WEBSOCKET_UPGRADE: Final = OutgoingRequest(
    headers=(
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", base64.b64encode(b"waypost asks you").decode()),  # whoever answers is not held to it
    ),
    connection="Upgrade",
)

_PROBE_SCHEMES: Final = {"ws": "http", "wss": "https", "grpc": "http", "grpcs": "http", "tcp": "http"}


@lru_cache(maxsize=_TLS_CONTEXTS)
def _tls_context(ca_file: Path | None, *, newest: bool = False) -> ssl.SSLContext:
    """Shared by all fetchers of a process that trust the same: nothing in it changes."""
    context = client_tls_context(ca_file)
    if newest:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class SafeFetcher:
    """`Fetcher`, `Sender` and `Prober` of registry/ports.py. One for a process: it holds who is being asked now."""

    def __init__(
        self,
        policy: AddressPolicy,
        resolver: StubResolver,
        *,
        ca_file: Path | None = None,
        own_origin: str | None = None,
        bounds: dict[FetchPurpose, FetchLimits] = FETCH_LIMITS,
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
        self._crowd: KeyedSemaphore[str] = KeyedSemaphore(limits.FETCH_PER_ADDRESS)
        self._pace: Cooldown[tuple[str, int]] = Cooldown(limits.FETCH_PACE_TARGETS, clock)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Loading all authorities takes longer than a request; a service that asks nobody does without."""
        return _tls_context(self._ca_file)

    @cached_property
    def _newest_tls(self) -> ssl.SSLContext:
        return _tls_context(self._ca_file, newest=True)

    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        """`check` sees who answered, after its handshake and before the request."""
        bounds = self._bounds[purpose]
        target = parse_url(url, https_only=bounds.https_only or check is not None)
        async with self._place():
            try:
                async with asyncio.timeout(bounds.total_seconds):
                    return await self._follow(target, purpose, bounds, check)
            except TimeoutError:
                raise _fetch_failed("timed_out", "The other server took too long.", "Try again later.") from None

    async def probe(self, endpoint: str) -> int | None:
        """Whether somebody answers: the status of an answer whose body is not read, or that a connection was made."""
        scheme = scheme_of(endpoint)
        target = _probe_target(endpoint)
        bounds = msgspec.structs.replace(self._bounds["health"], body_bytes=0)
        async with self._checks:
            try:
                async with asyncio.timeout(bounds.total_seconds):
                    if is_connect_only(scheme):
                        await self._reach(target, bounds)
                        return None
                    asked = _WEBSOCKET_UPGRADE if is_socket(scheme) else _GET
                    return (await self._hop(target, "health", bounds, asked=asked)).status
            except TimeoutError:
                raise _fetch_failed("timed_out", "The other server took too long.", "Try again later.") from None

    def check_endpoint(self, endpoint: str) -> None:
        """AddressDenied, where the endpoint names a number that is not asked."""
        try:
            target = _probe_target(endpoint)
        except InvalidParameter:
            return
        if target.address is not None and target.origin != self._own_origin:
            self._policy.check(target.address, target.port)

    async def _reach(self, target: FetchTarget, bounds: FetchLimits) -> None:
        """A connection and nothing more."""
        if target.origin == self._own_origin:
            raise address_denied("own")
        addresses = await self._addresses(target)
        for address in addresses:
            self._policy.check(address, target.port)
        self._keep_pace(addresses, target, "health")
        async with AsyncExitStack() as stack:
            network = PinnedNetworkBackend(addresses, ReadBudget(0), self._crowd, stack)
            try:
                stream = await network.connect_tcp(target.host, target.port, timeout=bounds.connect_seconds)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout, OSError):
                raise _fetch_failed("refused", "The other server cannot be reached.", "Does it run?") from None
            await stream.aclose()

    def check(self, url: str, purpose: FetchPurpose) -> None:
        """What can be said of an address without asking anybody: how it is written, and the number that it names."""
        target = parse_url(url, https_only=self._bounds[purpose].https_only)
        if target.origin == self._own_origin:
            raise address_denied("own")
        if target.address is not None:
            self._policy.check(target.address, target.port)

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        """One hop and no more: a redirect is an answer like any other."""
        bounds = self._bounds[purpose]
        target = parse_url(url, https_only=bounds.https_only)
        asked = OutgoingRequest(method=method, body=body, headers=tuple(headers))
        async with self._place():
            try:
                async with asyncio.timeout(bounds.total_seconds):
                    return await self._hop(target, purpose, bounds, asked=asked)
            except TimeoutError:
                raise _fetch_failed("timed_out", "The other server took too long.", "Try again later.") from None

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

    async def _follow(
        self, target: FetchTarget, purpose: FetchPurpose, bounds: FetchLimits, check: PeerCheck | None
    ) -> FetchResponse:
        """S6: each hop is checked as the first one was."""
        for _ in range(bounds.redirects + 1):
            fetched = await self._hop(target, purpose, bounds, check)
            location = fetched.headers.get("location")
            if fetched.status not in _REDIRECTS or not bounds.redirects or location is None:
                return fetched
            there = parse_url(join_url(target, location))
            if there.scheme != "https" or not is_same_site(target, there):
                raise _fetch_failed(
                    "redirect", "It redirects to another site, or away from https.", "Name the document's own address."
                )
            target = there
        raise _fetch_failed("redirect", "It redirects again and again.", "Name the document's own address.")

    async def _hop(
        self,
        target: FetchTarget,
        purpose: FetchPurpose,
        bounds: FetchLimits,
        check: PeerCheck | None = None,
        asked: OutgoingRequest = _GET,
    ) -> FetchResponse:
        if target.origin == self._own_origin:
            raise address_denied("own")
        addresses, _ = await asyncio.gather(self._addresses(target), self._prepare(target, bounds))
        for address in addresses:  # S5: one that is denied spoils all
            self._policy.check(address, target.port)
        self._keep_pace(addresses, target, purpose)
        async with AsyncExitStack() as stack:
            try:
                fetched = await self._ask(target, addresses, bounds, stack, check, asked)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout, OSError):
                raise _fetch_failed("refused", "The other server cannot be reached.", "Does it run?") from None
            except httpcore2.TimeoutException:
                raise _fetch_failed("timed_out", "The other server took too long.", "Try again later.") from None
            except (httpcore2.NetworkError, httpcore2.ProtocolError):
                raise _fetch_failed("protocol", "The other server broke off, or speaks no HTTP.", None) from None
        if purpose == "health" and fetched.status == _GONE:
            for address in addresses:
                self._pace.rest((str(address), target.port), limits.FETCH_OPT_OUT_SECONDS)
        return fetched

    async def _prepare(self, target: FetchTarget, bounds: FetchLimits) -> None:
        """Loading all authorities takes longer than a look-up: once, beside it, and not on the event loop."""
        wanted = "_newest_tls" if bounds.newest_tls else "_tls"
        if target.scheme == "https" and wanted not in self.__dict__:
            await asyncio.to_thread(getattr, self, wanted)

    async def _addresses(self, target: FetchTarget) -> Sequence[Address]:
        if target.address is not None:
            return [target.address]
        if target.host.split(".")[-1] == _LOOPBACK_NAMES:
            return self._policy.loopback()
        return await self._resolver.addresses(target.host)

    def _keep_pace(self, addresses: Sequence[Address], target: FetchTarget, purpose: FetchPurpose) -> None:
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
        target: FetchTarget,
        addresses: Sequence[Address],
        bounds: FetchLimits,
        stack: AsyncExitStack,
        check: PeerCheck | None,
        asked: OutgoingRequest = _GET,
    ) -> FetchResponse:
        allowance = ReadBudget(2 * bounds.body_bytes + 4 * limits.FETCH_HEADER_BYTES)
        origin = httpcore2.Origin(target.scheme.encode(), target.host.encode(), target.port)
        network = PinnedNetworkBackend(addresses, allowance, self._crowd, stack, check)
        tls = None if target.scheme == "http" else self._newest_tls if bounds.newest_tls else self._tls
        connection = httpcore2.AsyncHTTPConnection(origin, ssl_context=tls, network_backend=network)
        stack.push_async_callback(connection.aclose)
        response = await connection.handle_async_request(_build_request(target, bounds, asked))
        stack.push_async_callback(response.aclose)
        headers = _read_headers(response)
        body = b""
        if 200 <= response.status < 300 and bounds.body_bytes:
            body = await _read_body(response, headers, bounds.body_bytes)
        return FetchResponse(url=str(target), status=response.status, headers=headers, body=body)


def _probe_target(endpoint: str) -> FetchTarget:
    """An endpoint of an agent as an address of the web: a WebSocket is asked there, and others have a host and a port."""
    scheme = scheme_of(endpoint)
    return parse_url(_PROBE_SCHEMES.get(scheme, scheme) + endpoint[len(scheme) :])


def _build_request(target: FetchTarget, bounds: FetchLimits, asked: OutgoingRequest) -> httpcore2.Request:
    connect, total = bounds.connect_seconds, bounds.total_seconds
    length = [(b"Content-Length", str(len(asked.body)).encode())] if asked.method != "GET" else []
    return httpcore2.Request(
        asked.method,
        httpcore2.URL(
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


def _read_headers(response: httpcore2.Response) -> dict[str, str]:
    if sum(len(name) + len(value) + 4 for name, value in response.headers) > limits.FETCH_HEADER_BYTES:
        raise too_large_error()
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


async def _read_body(response: httpcore2.Response, headers: dict[str, str], most: int) -> bytes:
    """S7: as it was sent, never unpacked; a few bytes can hold gigabytes."""
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise _fetch_failed("encoding", "The answer is compressed, which was not asked for.", "Serve it plain.")
    if headers.get("content-length", "").isdigit() and int(headers["content-length"]) > most:
        raise too_large_error()
    content = bytearray()
    async for part in response.aiter_stream():
        content += part
        if len(content) > most:
            raise too_large_error()
    return bytes(content)


def _fetch_failed(reason: str, message: str, hint: str | None) -> FetchFailed:
    return FetchFailed(message, path="url", hint=hint, details={"reason": reason})


# ---- Where the proof of a domain is looked up: in its zone, or on its web server.

_HTTPS_PORT = 443


class DomainProofLookup:
    """`ProofLookup` of registry/domain_claims.py. `port` is for tests, which may not listen on the usual one."""

    def __init__(self, resolver: StubResolver, fetcher: SafeFetcher, *, port: int = _HTTPS_PORT) -> None:
        self._resolver = resolver
        self._fetcher = fetcher
        self._authority_end = "" if port == _HTTPS_PORT else f":{port}"

    async def lines(self, domain: str, method: ProofMethod, perspective: int) -> list[str]:
        if method == "dns":
            texts = await self._resolver.texts(f"{PROOF_LABEL}.{domain}", perspective)
            return [text.decode("ascii", "replace") for text in texts]
        fetched = await self._fetcher.fetch(f"https://{domain}{self._authority_end}{PROOF_PATH}", "proof")
        if not fetched.is_success:
            raise FetchFailed(
                f"The web server of {domain} answered with status {fetched.status}.",
                path="$.domain",
                details={"reason": "status"},
            )
        return fetched.body.decode("ascii", "replace").splitlines()
