"""SSRF guard: an httpcore2 network backend that connects to checked addresses only, and bounds what is read.

An HTTP library resolves the host name when it connects, and the answer may differ from the one that was checked (DNS
rebinding). This backend ignores the name and connects to the addresses that it was given.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import certifi
import httpcore2

from waypost.cache import LruCache
from waypost.domains.ports import PeerCheck, TlsPeer
from waypost.errors import ConfigurationError, FetchFailed
from waypost.net.address_policy import Address

Key = TypeVar("Key", bound=Hashable)

_ADDRESS_TRIES = 2  # addresses of one name


class KeyedSemaphore(Generic[Key]):
    """At most `limit` concurrent holders for each key. Keys that are not in use take no memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._semaphores: dict[Key, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def slot(self, key: Key) -> AsyncIterator[None]:
        semaphore, users = self._semaphores.get(key, (asyncio.Semaphore(self._limit), 0))
        self._semaphores[key] = (semaphore, users + 1)
        try:
            async with semaphore:
                yield
        finally:
            users = self._semaphores[key][1] - 1
            if users:
                self._semaphores[key] = (semaphore, users)
            else:
                del self._semaphores[key]


class Cooldown(Generic[Key]):
    """A minimum pause for each key. The `capacity` most recent keys are remembered."""

    def __init__(self, capacity: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready_at: LruCache[Key, float] = LruCache(capacity)

    def remaining_seconds(self, key: Key) -> float:
        return max(0.0, (self._ready_at.get(key) or 0.0) - self._clock())

    def start(self, key: Key, seconds: float) -> None:
        self._ready_at.put(key, self._clock() + seconds)


class ReadBudget:
    """How many bytes may still be read from the network."""

    def __init__(self, byte_count: int) -> None:
        self._remaining = byte_count

    def spend(self, byte_count: int) -> None:
        self._remaining -= byte_count
        if self._remaining < 0:
            raise response_too_large()


class PinnedNetworkBackend(httpcore2.AsyncNetworkBackend):
    """Connects to `addresses`, in order, whatever the host is called. `stack` releases the slots per address."""

    def __init__(
        self,
        addresses: Sequence[Address],
        budget: ReadBudget,
        slots: KeyedSemaphore[str],
        stack: AsyncExitStack,
        check: PeerCheck | None = None,
    ) -> None:
        self._addresses = addresses[:_ADDRESS_TRIES]
        self._budget = budget
        self._slots = slots
        self._stack = stack
        self._check = check
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore2's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for address in self._addresses:
            await self._stack.enter_async_context(self._slots.slot(str(address)))
            try:
                stream = await self._backend.connect_tcp(str(address), port, timeout=timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
                continue
            await _require_peer(stream, address)
            return BoundedStream(stream, self._budget, self._check)
        raise failure or httpcore2.ConnectError()

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("Unix sockets are not allowed.")

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class BoundedStream(httpcore2.AsyncNetworkStream):
    """Counts the bytes that are read, and has the TLS peer checked before anything is sent to it."""

    def __init__(
        self, stream: httpcore2.AsyncNetworkStream, budget: ReadBudget, check: PeerCheck | None = None
    ) -> None:
        self._stream = stream
        self._budget = budget
        self._check = check

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._stream.read(max_bytes, timeout)
        self._budget.spend(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        try:
            stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except httpcore2.ConnectError:
            raise FetchFailed(
                "The TLS handshake with the other server failed.",
                path="url",
                hint="Its certificate must be valid for the host name. Name a private authority in the setting fetch_ca.",
                details={"reason": "tls"},
            ) from None
        if self._check is not None:
            await _check_tls_peer(stream, self._check)
        return BoundedStream(stream, self._budget)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


async def _require_peer(stream: httpcore2.AsyncNetworkStream, address: Address) -> None:
    """S4: compare the address of the connected socket with the one that was checked."""
    peer = stream.get_extra_info("server_addr")
    if peer is None or ipaddress.ip_address(str(peer[0])) != address:
        await stream.aclose()
        raise FetchFailed(
            "The connection went to another address than the one that was checked.",
            path="url",
            details={"reason": "refused"},
        )


async def _check_tls_peer(stream: httpcore2.AsyncNetworkStream, check: PeerCheck) -> None:
    """Close the connection without sending a request if the check fails (ADP-12)."""
    tls: ssl.SSLObject = stream.get_extra_info("ssl_object")
    try:
        pending = check(TlsPeer(chain=_certificate_chain(tls), tls_version=tls.version() or ""))
        if inspect.isawaitable(pending):
            await pending
    except BaseException:
        await stream.aclose()
        raise


def _certificate_chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """The verified chain in DER, leaf first. Before Python 3.13, `ssl` has no public way to read more than the leaf."""
    if sys.version_info >= (3, 13):
        return tuple(tls.get_verified_chain())
    leaf = tls.getpeercert(binary_form=True)
    return () if leaf is None else (leaf,)


def response_too_large() -> FetchFailed:
    return FetchFailed(
        "The response is larger than the limit for this kind of request.", path="url", details={"reason": "too_large"}
    )


def client_tls_context(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certifi.where())
    context.load_default_certs()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise ConfigurationError(
                f"Cannot load certificate authorities from {ca_file}: {error.strerror or 'not PEM'}.",
                path="fetch_ca",
                hint="Name a PEM file.",
            ) from None
    return context
