"""The connections of this process: how many there are, by address, and which of them hold answers that nobody reads.

A connection beyond a limit is told so and closed. So that descriptors never run out, fewer connections are accepted than the
system allows: records, indexes and models are files, too.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from waypost import limits
from waypost.errors import Unavailable
from waypost.server.auth.callers import rate_limit_key
from waypost.server.http.admission import jittered


class Stalled(Protocol):
    """A connection with more unread bytes than its buffer should hold."""

    def unread_bytes(self) -> int: ...

    def abort(self) -> None: ...


class ConnectionTable:
    """Counts connections that carry HTTP and those that became WebSockets, which have a limit of their own (`SOCKETS`).

    `is_proxy` names addresses that have no limit: a trusted proxy carries the connections of many callers. Connections over
    a Unix socket have no address, and no limit.
    """

    def __init__(
        self,
        per_address: int = limits.CONNECTIONS_PER_ADDRESS,
        *,
        is_proxy: Callable[[str], bool] = lambda address: False,
        descriptors: int | None = None,
    ) -> None:
        self._per_address = per_address
        self._is_proxy = is_proxy
        self._most = most_connections(descriptor_limit() if descriptors is None else descriptors)
        self._by_address: Counter[str] = Counter()
        self._http = 0
        self._websockets = 0
        self._handshakes: Counter[str] = Counter()  # of TLS, by address
        self._all_handshakes = 0
        self._stalled: dict[Stalled, float] = {}  # since when; the longest first
        self.refused = 0  # connections that are open only to be told why they are refused
        self.waiting_bytes = 0  # of requests behind one that is being answered on the same connection

    def find_refusal(self, address: str) -> Unavailable | None:
        """Why a connection of this address is refused, or None."""
        if self._http >= limits.CONNECTIONS or self._http + self._websockets >= self._most:
            return Unavailable(
                "All connections of this service are in use.",
                hint="Try again later.",
                retry_after=jittered(limits.RETRY_SECONDS),
            )
        if self._is_limited(address) and self._by_address[rate_limit_key(address)] >= self._per_address:
            return Unavailable(
                f"This address has {self._per_address} open connections already.",
                hint="Close some, or have the operator raise max_connections_per_address.",
                retry_after=jittered(limits.RETRY_SECONDS),
            )
        return None

    def begin_handshake(self, address: str) -> bool:
        """Whether a connection of this address may begin a TLS handshake; then `end_handshake` is due.

        A few more than the connections that are allowed may: only after its handshake a client can be told that there are
        too many."""
        most = min(limits.CONNECTIONS, self._most) + limits.REFUSED_CONNECTIONS
        if self._http + self._websockets + self._all_handshakes >= most:
            return False
        key = rate_limit_key(address)
        if self._is_limited(address):
            allowed = self._per_address + limits.REFUSED_CONNECTIONS
            if self._by_address[key] + self._handshakes[key] >= allowed:
                return False
        self._handshakes[key] += 1
        self._all_handshakes += 1
        return True

    def end_handshake(self, address: str) -> None:
        self._all_handshakes -= 1
        _decrease(self._handshakes, rate_limit_key(address))

    def add(self, address: str) -> None:
        self._http += 1
        if self._is_limited(address):
            self._by_address[rate_limit_key(address)] += 1

    def upgrade(self) -> None:
        """A connection became a WebSocket."""
        self._http -= 1
        self._websockets += 1

    def remove(self, address: str, *, is_websocket: bool = False) -> None:
        if is_websocket:
            self._websockets -= 1
        else:
            self._http -= 1
        if self._is_limited(address):
            _decrease(self._by_address, rate_limit_key(address))

    def _is_limited(self, address: str) -> bool:
        return bool(address) and not self._is_proxy(address)

    # --- Answers that nobody reads ---------------------------------------------------------------

    def stall(self, connection: Stalled, now: float) -> None:
        self._stalled.setdefault(connection, now)

    def flow(self, connection: Stalled) -> None:
        self._stalled.pop(connection, None)

    def has_room(self, size: int, now: float) -> bool:
        """Whether an answer of this size may be buffered. Connections that have not been read from for a while make room,
        the longest first: many slow readers together must not take the memory."""
        unread = sum(connection.unread_bytes() for connection in self._stalled)
        if not unread:
            return True  # however long: there is one
        for connection, since in list(self._stalled.items()):
            if unread + size <= limits.UNREAD_BYTES or now - since < limits.UNREAD_SECONDS:
                break
            unread -= connection.unread_bytes()
            connection.abort()
        return unread + size <= limits.UNREAD_BYTES


def _decrease(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


# --- Descriptors ----------------------------------------------------------------------------------


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as needed and allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.DESCRIPTORS if hard == resource.RLIM_INFINITY else min(limits.DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def most_connections(descriptors: int) -> int:
    """How many connections leave enough descriptors for files."""
    if descriptors == resource.RLIM_INFINITY:
        return limits.DESCRIPTORS
    return max(descriptors // 4, descriptors - limits.RESERVED_DESCRIPTORS)
