"""Announcements in datagrams (announce.md §6.2, §6.3): whole, in fragments, and the cookie that proves a source.

    {…                                     one message
    AD 01  id:8  index:1  count:1  data    a fragment; id is the start of the message's SHA-256
    AD 02  cookie:16                       "repeat your query with this": proves that answers reach who asked
    AD 03  cookie:16  message              a query with its proof

Nothing here knows a socket or a clock; `now` and the secret of the cookies are arguments.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, TooLarge

_FRAGMENT, _CHALLENGE, _PROVED = b"\xad\x01", b"\xad\x02", b"\xad\x03"
_ID_BYTES = 8
_HEAD_BYTES = 2 + _ID_BYTES + 2
DATA_BYTES = limits.DATAGRAM_BYTES - _HEAD_BYTES
COOKIE_BYTES = 16
CHALLENGE_BYTES = 2 + COOKIE_BYTES


class Whole(msgspec.Struct, frozen=True):
    data: bytes
    cookie: bytes | None = None


class Fragment(msgspec.Struct, frozen=True):
    id: bytes
    index: int
    count: int
    data: bytes


class Challenge(msgspec.Struct, frozen=True):
    cookie: bytes


def datagrams(message: bytes) -> list[bytes]:
    """The message as it is sent: in one piece while it fits, else in fragments. Never cut."""
    if len(message) <= limits.DATAGRAM_BYTES:
        return [message]
    count = -(-len(message) // DATA_BYTES)
    if count > limits.FRAGMENTS:
        raise TooLarge(
            f"The message has {len(message)} bytes; {limits.FRAGMENTS * DATA_BYTES} can be sent.",
            path="$",
            hint="Shorten the metadata, or announce it to a registry over HTTP.",
        )
    head = _FRAGMENT + _message_id(message)
    parts = (message[at : at + DATA_BYTES] for at in range(0, len(message), DATA_BYTES))
    return [head + bytes((index, count)) + part for index, part in enumerate(parts)]


def parse_datagram(data: bytes) -> Whole | Fragment | Challenge:
    if data[:1] == b"{":
        return Whole(data)
    kind = data[:2]
    if kind == _FRAGMENT and _HEAD_BYTES < len(data) <= limits.DATAGRAM_BYTES:
        index, count = data[_HEAD_BYTES - 2], data[_HEAD_BYTES - 1]
        if 2 <= count <= limits.FRAGMENTS and index < count:
            return Fragment(data[2 : 2 + _ID_BYTES], index, count, data[_HEAD_BYTES:])
    elif kind == _CHALLENGE and len(data) == CHALLENGE_BYTES:
        return Challenge(data[2:])
    elif kind == _PROVED and len(data) > CHALLENGE_BYTES:
        return Whole(data[CHALLENGE_BYTES:], data[2:CHALLENGE_BYTES])
    raise InvalidDocument("The datagram is none of the protocol.", path="$", hint="Send one JSON message.")


# --- Proof of a source ---------------------------------------------------------------------------


def padded(query: bytes) -> bytes:
    """A query as large as a datagram: whoever answers may send as much as it got (L5)."""
    return query + b" " * (limits.DATAGRAM_BYTES - len(query))


def cookie(secret: bytes, source: str, now: float) -> bytes:
    return _cookie(secret, source, int(now // limits.COOKIE_SECONDS))


def is_proved(secret: bytes, source: str, shown: bytes | None, now: float) -> bool:
    """Whether `source` got a cookie in this span or the one before."""
    if shown is None:
        return False
    span = int(now // limits.COOKIE_SECONDS)
    return any(hmac.compare_digest(_cookie(secret, source, each), shown) for each in (span, span - 1))


def challenge(shown: bytes) -> bytes:
    return _CHALLENGE + shown


def proved(shown: bytes, query: bytes) -> bytes:
    return _PROVED + shown + query


def _cookie(secret: bytes, source: str, span: int) -> bytes:
    return hmac.digest(secret, f"{span} {source}".encode(), "sha256")[:COOKIE_BYTES]


# --- Fragments -----------------------------------------------------------------------------------


class _Partial:
    __slots__ = ("bytes", "count", "parts", "started")

    def __init__(self, count: int, now: float) -> None:
        self.count = count
        self.started = now
        self.parts: dict[int, bytes] = {}
        self.bytes = 0


class Reassembly:
    """Messages that are on their way in pieces: bounded for each source, in all, and in time."""

    def __init__(self) -> None:
        self._partials: OrderedDict[tuple[str, bytes], _Partial] = OrderedDict()  # oldest first
        self._by_source: dict[str, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._partials)

    @property
    def bytes_held(self) -> int:
        return self._bytes

    def take(self, source: str, fragment: Fragment, now: float) -> bytes | None:
        """The message, once its last piece is here and its hash is right."""
        self.sweep(now)
        key = (source, fragment.id)
        partial = self._partials.get(key) or self._begin(key, fragment.count, now)
        if partial is None or partial.count != fragment.count or fragment.index in partial.parts:
            return None
        partial.parts[fragment.index] = fragment.data
        partial.bytes += len(fragment.data)
        self._bytes += len(fragment.data)
        if len(partial.parts) == partial.count:
            self._drop(key)
            message = b"".join(partial.parts[index] for index in range(partial.count))
            return message if _message_id(message) == fragment.id else None
        while self._bytes > limits.FRAGMENT_BYTES:
            self._drop(next(iter(self._partials)))
        return None

    def sweep(self, now: float) -> None:
        while self._partials:
            key, partial = next(iter(self._partials.items()))
            if 0 <= now - partial.started < limits.FRAGMENT_SECONDS:
                return
            self._drop(key)

    def _begin(self, key: tuple[str, bytes], count: int, now: float) -> _Partial | None:
        source = key[0]
        if self._by_source.get(source, 0) >= limits.FRAGMENT_PARTIALS:
            return None
        self._by_source[source] = self._by_source.get(source, 0) + 1
        self._partials[key] = _Partial(count, now)
        return self._partials[key]

    def _drop(self, key: tuple[str, bytes]) -> None:
        self._bytes -= self._partials.pop(key).bytes
        left = self._by_source[key[0]] - 1
        if left:
            self._by_source[key[0]] = left
        else:
            del self._by_source[key[0]]


def _message_id(message: bytes) -> bytes:
    return hashlib.sha256(message).digest()[:_ID_BYTES]
