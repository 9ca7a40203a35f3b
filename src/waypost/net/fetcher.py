"""Outgoing HTTP: every request that this service makes on behalf of others goes through `SafeFetcher`.

It resolves a name once, checks every address of the answer, connects to one of them and to nothing else, reads plain bytes
within limits of size and time, and follows redirects only within a site. It uses no proxy, cookie or header of a caller.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

import httpcore2
import msgspec

from waypost import __version__, limits
from waypost.domains.ports import PeerCheck
from waypost.errors import FetchFailed, RateLimited
from waypost.model.health import is_connect_only, is_socket, scheme_of
from waypost.net.address_policy import Address, AddressPolicy, address_denied
from waypost.net.dns.upstreams import StubResolver
from waypost.net.probe_target import check_endpoint, probe_target
from waypost.net.ssrf import (
    Cooldown,
    KeyedSemaphore,
    PinnedNetworkBackend,
    ReadBudget,
    client_tls_context,
    response_too_large,
)
from waypost.net.url import FetchTarget, is_same_site, join_url, parse_url
from waypost.registry.ports import FetchPurpose, FetchResponse
from waypost.trust.domain_claims import PROOF_LABEL, PROOF_PATH, ProofMethod

USER_AGENT: Final = f"Waypost/{__version__} (agent discovery; answer 410 to opt out of checks)"

HOP_HEADER: Final = b"X-Discovery-Hop"

_GONE: Final = 410

_REDIRECTS: Final = (301, 302, 303, 307, 308)

_LOOPBACK_NAME: Final = "localhost"

_HTTPS_PORT: Final = 443

_TLS_CONTEXTS: Final = 4  # cached contexts of a process: with and without `ca_file`, for TLS 1.3 alone and from 1.2


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of request may cost."""

    body_bytes: int
    redirects: int = 0
    https_only: bool = False
    plain_if_allowed: bool = False  # http only to networks that the operator has allowed
    is_configured: bool = False  # an operator named the address: it has slots of its own
    accept: str = "application/json"
    tls13_only: bool = False  # ADP-52
    connect_seconds: float = limits.FETCH_CONNECT_SECONDS
    total_seconds: float = limits.FETCH_TOTAL_SECONDS
    silence_seconds: float | None = None  # between two bytes; None: as long as the whole


FETCH_LIMITS: Final[dict[FetchPurpose, FetchLimits]] = {
    "health": FetchLimits(body_bytes=limits.FETCH_SMALL_BYTES, accept="*/*"),
    "card": FetchLimits(
        body_bytes=limits.FETCH_CARD_BYTES, redirects=limits.FETCH_REDIRECTS, accept="application/json, */*;q=0.5"
    ),
    "jwks": FetchLimits(body_bytes=limits.FETCH_CARD_BYTES, accept="application/jwk-set+json, application/json"),
    "peer": FetchLimits(
        body_bytes=limits.FETCH_PAGE_BYTES, redirects=limits.FETCH_REDIRECTS, accept="application/json, */*;q=0.5"
    ),
    "feed": FetchLimits(
        body_bytes=2 * limits.FETCH_PAGE_BYTES,
        plain_if_allowed=True,
        is_configured=True,
        accept="application/x-ndjson, application/json;q=0.9, */*;q=0.5",
        total_seconds=limits.PEER_FETCH_SECONDS,
        silence_seconds=limits.PEER_SILENCE_SECONDS,
    ),
    "ask": FetchLimits(
        body_bytes=limits.ASK_BYTES,
        plain_if_allowed=True,
        is_configured=True,
        total_seconds=limits.ASK_SECONDS,
    ),
    "crawl": FetchLimits(
        body_bytes=limits.FETCH_CATALOG_BYTES,
        plain_if_allowed=True,
        accept="application/ai-catalog+json, application/json;q=0.9, */*;q=0.5",
        total_seconds=limits.DESCRIPTOR_SECONDS,
    ),
    "proof": FetchLimits(body_bytes=limits.FETCH_SMALL_BYTES, https_only=True, accept="text/plain"),
    "descriptor": FetchLimits(
        body_bytes=limits.DESCRIPTOR_BYTES,
        https_only=True,
        tls13_only=True,
        total_seconds=limits.DESCRIPTOR_SECONDS,
        accept="application/vnd.adp+json, application/json;q=0.9, */*;q=0.5",
    ),
    "index": FetchLimits(
        body_bytes=limits.INDEX_BYTES, https_only=True, tls13_only=True, total_seconds=limits.DESCRIPTOR_SECONDS
    ),
    "webhook": FetchLimits(body_bytes=limits.FETCH_SMALL_BYTES, https_only=True),
    "task": FetchLimits(body_bytes=2 * limits.TASK_RESULT_BYTES, https_only=True),
}


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Method, body and additional headers of a request."""

    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    connection: str = "close"


_GET: Final = OutgoingRequest()

_WEBSOCKET_UPGRADE: Final = OutgoingRequest(
    headers=(
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        (
            "Sec-WebSocket-Key",
            base64.b64encode(b"waypost asks you").decode(),
        ),  # only the status is read: any key will do
    ),
    connection="Upgrade",
)


@lru_cache(maxsize=_TLS_CONTEXTS)
def _tls_context(ca_file: Path | None, tls13_only: bool) -> ssl.SSLContext:
    """Shared by all fetchers of a process. Loading the authorities takes longer than a request."""
    context = client_tls_context(ca_file)
    if tls13_only:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def import_backend() -> None:
    """Import what httpcore2 otherwise imports with its first connection, on the event loop."""
    asyncio.run(httpcore2.AnyIOBackend().sleep(0))


class SafeFetcher:
    """`Fetcher`, `Sender` and `Prober` of registry/ports.py. A process has one: it counts concurrent requests."""

    def __init__(
        self,
        policy: AddressPolicy,
        resolver: StubResolver,
        *,
        ca_file: Path | None = None,
        own_origin: str | None = None,
        fetch_limits: dict[FetchPurpose, FetchLimits] = FETCH_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._limits = fetch_limits
        self._ca_file = ca_file
        self._own_origin = own_origin  # this service as others reach it, perhaps behind a proxy
        if ca_file is not None:
            _tls_context(ca_file, False)  # report a mistake in the settings at the start
        self._tls_contexts: dict[bool, ssl.SSLContext] = {}  # by `tls13_only`
        self._tls_loading = asyncio.Lock()
        self._slots = asyncio.Semaphore(limits.FETCH_CONCURRENCY)
        self._probe_slots = asyncio.Semaphore(limits.HEALTH_CONCURRENCY)  # dead endpoints must not delay other requests
        self._queued = 0
        self._address_slots: KeyedSemaphore[str] = KeyedSemaphore(limits.FETCH_PER_ADDRESS)
        self._peer_slots: KeyedSemaphore[str] = KeyedSemaphore(limits.PEERS)  # a long poll occupies one for long
        self._cooldown: Cooldown[tuple[str, int]] = Cooldown(limits.FETCH_PACED_ADDRESSES, clock)

    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        """`check` sees the TLS peer after the handshake and before the request."""
        bounds = self._limits[purpose]
        target = parse_url(url, https_only=bounds.https_only or check is not None)
        async with self._slot(), _deadline(bounds):
            return await self._follow_redirects(target, purpose, bounds, check)

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        """Follows no redirect: the response is returned as it is."""
        bounds = self._limits[purpose]
        target = parse_url(url, https_only=bounds.https_only)
        request = OutgoingRequest(method=method, body=body, headers=tuple(headers))
        async with self._slot(), _deadline(bounds):
            return await self._fetch_once(target, purpose, bounds, request=request)

    async def probe(self, endpoint: str) -> int | None:
        """The status of the response, whose body is not read; None where only a connection is made."""
        scheme = scheme_of(endpoint)
        target = probe_target(endpoint)
        bounds = msgspec.structs.replace(self._limits["health"], body_bytes=0)
        async with self._probe_slots, _deadline(bounds):
            if is_connect_only(scheme):
                await self._connect(target, bounds)
                return None
            request = _WEBSOCKET_UPGRADE if is_socket(scheme) else _GET
            return (await self._fetch_once(target, "health", bounds, request=request)).status

    def check(self, url: str, purpose: FetchPurpose) -> None:
        """Reject what can be rejected without a lookup: a malformed URL, this service itself, a denied IP address."""
        target = parse_url(url, https_only=self._limits[purpose].https_only)
        if target.origin == self._own_origin:
            raise address_denied("own")
        if target.address is not None:
            self._policy.check(target.address, target.port)

    def check_endpoint(self, endpoint: str) -> None:
        check_endpoint(endpoint, self._policy, self._own_origin)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        if self._queued >= limits.FETCH_WAITING:
            raise RateLimited("Too many outgoing requests are queued.", retry_after=5)
        self._queued += 1
        try:
            async with self._slots:
                yield
        finally:
            self._queued -= 1

    async def _follow_redirects(
        self, target: FetchTarget, purpose: FetchPurpose, bounds: FetchLimits, check: PeerCheck | None
    ) -> FetchResponse:
        """S6: every redirect target is checked like the first URL."""
        hint = "Name the document's own address."
        for _ in range(bounds.redirects + 1):
            response = await self._fetch_once(target, purpose, bounds, check)
            location = response.headers.get("location")
            if response.status not in _REDIRECTS or not bounds.redirects or location is None:
                return response
            redirected = parse_url(join_url(target, location))
            if redirected.scheme != "https" or not is_same_site(target, redirected):
                raise _fetch_failed("redirect", "The URL redirects to another site, or away from https.", hint)
            target = redirected
        raise _fetch_failed("redirect", "The URL redirects too many times.", hint)

    async def _fetch_once(
        self,
        target: FetchTarget,
        purpose: FetchPurpose,
        bounds: FetchLimits,
        check: PeerCheck | None = None,
        request: OutgoingRequest = _GET,
    ) -> FetchResponse:
        addresses, tls = await asyncio.gather(self._checked_addresses(target), self._load_tls_context(target, bounds))
        if bounds.plain_if_allowed and target.scheme == "http" and not all(map(self._policy.is_listed, addresses)):
            raise _fetch_failed(
                "plain", "Plain http is used only within networks of the setting allow_cidrs.", "Name an https address."
            )
        if purpose == "health":
            self._start_cooldown(addresses, target)
        async with AsyncExitStack() as stack:
            try:
                response = await self._request(target, addresses, bounds, stack, tls, check, request)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout, OSError):
                raise _unreachable() from None
            except httpcore2.TimeoutException:
                raise _timed_out() from None
            except (httpcore2.NetworkError, httpcore2.ProtocolError):
                message = "The other server closed the connection early, or does not speak HTTP."
                raise _fetch_failed("protocol", message, None) from None
        if purpose == "health" and response.status == _GONE:
            for address in addresses:
                self._cooldown.start((str(address), target.port), limits.FETCH_OPT_OUT_SECONDS)
        return response

    async def _connect(self, target: FetchTarget, bounds: FetchLimits) -> None:
        """Open a connection and close it."""
        addresses = await self._checked_addresses(target)
        self._start_cooldown(addresses, target)
        async with AsyncExitStack() as stack:
            backend = PinnedNetworkBackend(addresses, ReadBudget(0), self._address_slots, stack)
            try:
                stream = await backend.connect_tcp(target.host, target.port, timeout=bounds.connect_seconds)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout, OSError):
                raise _unreachable() from None
            await stream.aclose()

    async def _load_tls_context(self, target: FetchTarget, bounds: FetchLimits) -> ssl.SSLContext | None:
        """In a thread, beside the lookup: the first load blocks for longer than a request takes. Requests that start together
        wait for one load: several would take the processor from the event loop."""
        if target.scheme != "https":
            return None
        kind, contexts = bounds.tls13_only, self._tls_contexts
        if kind not in contexts:
            async with self._tls_loading:
                contexts[kind] = await asyncio.to_thread(_tls_context, self._ca_file, kind)
        return contexts[kind]

    async def _checked_addresses(self, target: FetchTarget) -> Sequence[Address]:
        """S5: one denied address rejects the whole target."""
        if target.origin == self._own_origin:
            raise address_denied("own")
        addresses = await self._resolve(target)
        for address in addresses:
            self._policy.check(address, target.port)
        return addresses

    async def _resolve(self, target: FetchTarget) -> Sequence[Address]:
        if target.address is not None:
            return [target.address]
        if target.host.split(".")[-1] == _LOOPBACK_NAME:
            return self._policy.loopback()
        return await self._resolver.addresses(target.host)

    def _start_cooldown(self, addresses: Sequence[Address], target: FetchTarget) -> None:
        """S8: an endpoint is checked at most once per pause, however many agents name it."""
        keys = [(str(address), target.port) for address in addresses]
        seconds = max(map(self._cooldown.remaining_seconds, keys))
        if seconds > 0:
            raise RateLimited("This endpoint was checked a moment ago.", path="url", retry_after=int(seconds) + 1)
        for key in keys:
            self._cooldown.start(key, limits.FETCH_HEALTH_PAUSE_SECONDS)

    async def _request(
        self,
        target: FetchTarget,
        addresses: Sequence[Address],
        bounds: FetchLimits,
        stack: AsyncExitStack,
        tls: ssl.SSLContext | None,
        check: PeerCheck | None,
        request: OutgoingRequest,
    ) -> FetchResponse:
        budget = ReadBudget(2 * bounds.body_bytes + 4 * limits.FETCH_HEADER_BYTES)
        origin = httpcore2.Origin(target.scheme.encode(), target.host.encode(), target.port)
        slots = self._peer_slots if bounds.is_configured else self._address_slots
        backend = PinnedNetworkBackend(addresses, budget, slots, stack, check)
        connection = httpcore2.AsyncHTTPConnection(origin, ssl_context=tls, network_backend=backend)
        stack.push_async_callback(connection.aclose)
        response = await connection.handle_async_request(_build_request(target, bounds, request))
        stack.push_async_callback(response.aclose)
        headers = _read_headers(response)
        body = b""
        if 200 <= response.status < 300 and bounds.body_bytes:
            body = await _read_body(response, headers, bounds.body_bytes)
        return FetchResponse(url=str(target), status=response.status, headers=headers, body=body)


@asynccontextmanager
async def _deadline(bounds: FetchLimits) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(bounds.total_seconds):
            yield
    except TimeoutError:
        raise _timed_out() from None


def _build_request(target: FetchTarget, bounds: FetchLimits, request: OutgoingRequest) -> httpcore2.Request:
    connect, silence = bounds.connect_seconds, bounds.silence_seconds or bounds.total_seconds
    length = [(b"Content-Length", str(len(request.body)).encode())] if request.method != "GET" else []
    return httpcore2.Request(
        request.method,
        httpcore2.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.target.encode()
        ),
        headers=[
            (b"Host", target.authority.encode()),
            (b"User-Agent", USER_AGENT.encode()),
            (b"Accept", bounds.accept.encode()),
            (b"Accept-Encoding", b"identity"),
            (HOP_HEADER, b"1"),
            (b"Connection", request.connection.encode()),
            *length,
            *((name.encode("ascii"), value.encode("ascii")) for name, value in request.headers),
        ],
        content=request.body or None,
        extensions={"timeout": {"connect": connect, "read": silence, "write": connect, "pool": connect}},
    )


def _read_headers(response: httpcore2.Response) -> dict[str, str]:
    if sum(len(name) + len(value) + 4 for name, value in response.headers) > limits.FETCH_HEADER_BYTES:
        raise response_too_large()
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


async def _read_body(response: httpcore2.Response, headers: dict[str, str], max_bytes: int) -> bytes:
    """S7: a compressed body is rejected, since a few bytes can expand to gigabytes."""
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        message = "The response is compressed, though the request asked for identity encoding."
        raise _fetch_failed("encoding", message, "Serve it uncompressed.")
    if headers.get("content-length", "").isdigit() and int(headers["content-length"]) > max_bytes:
        raise response_too_large()
    content = bytearray()
    async for part in response.aiter_stream():
        content += part
        if len(content) > max_bytes:
            raise response_too_large()
    return bytes(content)


def _fetch_failed(reason: str, message: str, hint: str | None) -> FetchFailed:
    return FetchFailed(message, path="url", hint=hint, details={"reason": reason})


def _timed_out() -> FetchFailed:
    return _fetch_failed("timed_out", "The other server took too long to answer.", "Try again later.")


def _unreachable() -> FetchFailed:
    return _fetch_failed("refused", "Cannot connect to the other server.", "Check that it is running.")


class DomainProofLookup:
    """`ProofLookup` of registry/domain_claims.py: reads the proof of a domain from its zone or its web server.

    `port` is for tests, which may not be allowed to listen on 443.
    """

    def __init__(self, resolver: StubResolver, fetcher: SafeFetcher, *, port: int = _HTTPS_PORT) -> None:
        self._resolver = resolver
        self._fetcher = fetcher
        self._port_suffix = "" if port == _HTTPS_PORT else f":{port}"

    async def lines(self, domain: str, method: ProofMethod, perspective: int) -> list[str]:
        if method == "dns":
            texts = await self._resolver.texts(f"{PROOF_LABEL}.{domain}", perspective)
            return [text.decode("ascii", "replace") for text in texts]
        response = await self._fetcher.fetch(f"https://{domain}{self._port_suffix}{PROOF_PATH}", "proof")
        if not response.is_success:
            raise FetchFailed(
                f"The web server of {domain} answered with status {response.status}.",
                path="$.domain",
                details={"reason": "status"},
            )
        return response.body.decode("ascii", "replace").splitlines()
