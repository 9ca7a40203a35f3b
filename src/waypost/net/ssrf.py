"""How often and how many at once: a registry asks strangers on behalf of strangers, and must hurt neither."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

import httpcore2

from waypost.domains.ports import PeerCheck, TlsPeer
from waypost.errors import FetchFailed
from waypost.net.address_policy import Address

Key = TypeVar("Key", bound=Hashable)


class KeyedSemaphore(Generic[Key]):
    """At most so many at once for each key. Remembers only keys that somebody uses."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._gates: dict[Key, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def place(self, key: Key) -> AsyncIterator[None]:
        gate, users = self._gates.get(key, (asyncio.Semaphore(self._each), 0))
        self._gates[key] = (gate, users + 1)
        try:
            async with gate:
                yield
        finally:
            users = self._gates[key][1] - 1
            if users:
                self._gates[key] = (gate, users)
            else:
                del self._gates[key]

    def __len__(self) -> int:
        return len(self._gates)


class Cooldown(Generic[Key]):
    """Not before a time for each key; the keys that were used last are remembered."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._not_before: OrderedDict[Key, float] = OrderedDict()

    def wait_seconds(self, key: Key) -> float:
        return max(0.0, self._not_before.get(key, 0.0) - self._clock())

    def rest(self, key: Key, seconds: float) -> None:
        self._not_before[key] = self._clock() + seconds
        self._not_before.move_to_end(key)
        while len(self._not_before) > self._most:
            self._not_before.popitem(last=False)


# ---- The network under an outgoing request: it goes to an address that was checked, and to no other, and reads so
# much and no more.
#
# A client library looks a name up when it connects; between the check and that look-up the answer can change. So the library is
# given a network of our own, which ignores the name and knows the addresses.

_ADDRESS_TRIES = 2  # addresses of one name


class ReadBudget:
    """Bytes that may still be read."""

    def __init__(self, most: int) -> None:
        self.left = most

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise too_large_error()


class PinnedNetworkBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses given, in their order, whatever the host is called. `stack` keeps the places taken."""

    def __init__(
        self,
        addresses: Sequence[Address],
        allowance: ReadBudget,
        crowd: KeyedSemaphore[str],
        stack: AsyncExitStack,
        check: PeerCheck | None = None,
    ) -> None:
        self._addresses = addresses[:_ADDRESS_TRIES]
        self._allowance = allowance
        self._crowd = crowd
        self._stack = stack
        self._check = check
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore2's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        last: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for address in self._addresses:
            await self._stack.enter_async_context(self._crowd.place(str(address)))
            try:
                stream = await self._plain.connect_tcp(str(address), port, timeout=timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
                continue
            await self._check_peer(stream, address)
            return BoundedStream(stream, self._allowance, self._check, (address, port))
        raise last or httpcore2.ConnectError()

    async def _check_peer(self, stream: httpcore2.AsyncNetworkStream, address: Address) -> None:
        """S4: not what was asked for, but what is there."""
        peer = stream.get_extra_info("server_addr")
        if peer is None or ipaddress.ip_address(str(peer[0])) != address:
            await stream.aclose()
            raise FetchFailed(
                "The connection went elsewhere than it was meant to.", path="url", details={"reason": "refused"}
            )

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("no sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await self._plain.sleep(seconds)


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A stream that counts what is read, and shows who is at its other end before anything is asked."""

    def __init__(
        self,
        inner: httpcore2.AsyncNetworkStream,
        allowance: ReadBudget,
        check: PeerCheck | None = None,
        address: tuple[Address, int] | None = None,
    ) -> None:
        self._inner = inner
        self._allowance = allowance
        self._check = check
        self._address = address

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._inner.read(max_bytes, timeout)
        self._allowance.spend(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        try:
            stream = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except httpcore2.ConnectError:
            raise FetchFailed(
                "The other server could not prove who it is.",
                path="url",
                hint="Its certificate must be valid for the name; name a private authority in the setting fetch_ca.",
                details={"reason": "tls"},
            ) from None
        if self._check is not None:
            await self._judge(stream, server_hostname or "")
        return BoundedStream(stream, self._allowance)

    async def _judge(self, stream: httpcore2.AsyncNetworkStream, host: str) -> None:
        """Whatever is wrong with the peer, it is sent nothing (ADP-12)."""
        try:
            waiting = self._check(_tls_peer(stream, host, self._address)) if self._check is not None else None
            if inspect.isawaitable(waiting):
                await waiting
        except BaseException:
            await stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _tls_peer(stream: httpcore2.AsyncNetworkStream, host: str, address: tuple[Address, int] | None) -> TlsPeer:
    tls: ssl.SSLObject = stream.get_extra_info("ssl_object")
    leaf = tls.getpeercert(binary_form=True)
    number, port = address if address is not None else ("", 0)
    return TlsPeer(
        host=host,
        port=port,
        address=str(number),
        certificate=leaf,
        chain=_verified_chain(tls) or ((leaf,) if leaf else ()),
        tls_version=tls.version() or "",
    )


def _verified_chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """The chain as it was verified. Public from Python 3.13 on; before, its twin below, or nothing."""
    inner: Any = tls if hasattr(tls, "get_verified_chain") else getattr(tls, "_sslobj", None)
    chain = inner.get_verified_chain() if hasattr(inner, "get_verified_chain") else ()
    return tuple(one if isinstance(one, bytes) else ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in chain or ())


def too_large_error() -> FetchFailed:
    return FetchFailed(
        "The answer is larger than is read for this purpose.", path="url", details={"reason": "too_large"}
    )
