"""Announcements in the TXT record of a DNS-SD service (announce.md §6.1, §6.2): whole in chunks, or as a pointer.

It knows the bytes of the record and the names around it. Who answers whom, and when, is the responder's business.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, TooLarge
from waypost.model.json import JsonObject, dump_json

SERVICE = "_agentsc._tcp.local."

_NAME_CHARS = 58  # of a label's 63, beside a dash and four digits

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")

_KEY_ID = re.compile(r"sha256:[0-9a-f]{64}\Z")

_URL = re.compile(r"https?://[\x21-\x7e]{1,2040}\Z")

_NUMBER = re.compile(rb"(?:0|[1-9][0-9]?)\Z")

_DIGEST_CHARS = 16


class TxtMessage(msgspec.Struct, frozen=True):
    """The whole message."""

    message: bytes
    agent_id: str | None = None  # as the record says; None: the record is the bare document


class TxtPointer(msgspec.Struct, frozen=True):
    """Where the whole message is, and which key it must carry."""

    agent_id: str
    url: str
    key_id: str


def write_txt_message(message: bytes, agent_id: str, version: str = "v1.0") -> bytes:
    """The record with the message in it, or TooLarge: then a pointer is what is left."""
    chunks = list(_chunked(message))
    head = [f"pv={version}", f"id={agent_id.lower()}", f"n={len(chunks)}", f"h={_digest(message)}"]
    record = _strings([each.encode() for each in head] + chunks)
    if len(record) > limits.TXT_BYTES or len(chunks) > limits.TXT_CHUNKS:
        raise TooLarge(
            f"The announcement fills {len(record)} bytes of a TXT record; {limits.TXT_BYTES} fit.",
            path="$",
            hint="Sign with an Ed25519 or P-256 key, shorten the metadata, or name a registry to point at.",
        )
    return record


def write_txt_pointer(pointer: TxtPointer, version: str = "v1.0") -> bytes:
    parts = (f"pv={version}", f"id={pointer.agent_id.lower()}", f"u={pointer.url}", f"k={pointer.key_id}")
    if not _URL.match(pointer.url) or not _KEY_ID.match(pointer.key_id) or len(pointer.url) > 253:
        raise InvalidDocument(
            "A pointer is an http(s) address of at most 253 characters and a key id.",
            path="$",
            hint="Use the address of /agents/{id} at the registry.",
        )
    return _strings([part.encode() for part in parts])


def parse_txt(record: bytes) -> TxtMessage | TxtPointer:
    """What the record says. Anything that two readers could put together differently is refused."""
    if len(record) > limits.TXT_READ_BYTES:
        raise TooLarge(f"A TXT record of {len(record)} bytes.", path="$", hint=f"At most {limits.TXT_READ_BYTES}.")
    strings = list(_split(record))
    if strings and strings[0].lstrip()[:1] == b"{":
        return TxtMessage(b"".join(strings))
    members = _members(strings)
    agent_id = members.get(b"id", b"").decode("ascii", "replace").lower()
    if not _ID.match(agent_id) or b"pv" not in members:
        raise _malformed("The TXT record names no agent.")
    if b"u" in members:
        return _read_pointer(members, agent_id)
    return TxtMessage(_assembled(members), agent_id)


def instance_label(agent_id: str, agent_name: str | None, digits: int) -> str:
    """`{agent_name or the first 8 of the id}-{4 hex}`; other digits are the way out of a conflict of names."""
    return f"{(agent_name or agent_id[:8])[:_NAME_CHARS].rstrip('-')}-{digits & 0xFFFF:04x}"


def host_name(agent_id: str) -> str:
    return f"{agent_id.lower()}.local."


def _read_pointer(members: dict[bytes, bytes], agent_id: str) -> TxtPointer:
    url = members[b"u"].decode("ascii", "replace")
    key_id = members.get(b"k", b"").decode("ascii", "replace")
    if not _URL.match(url) or not _KEY_ID.match(key_id):
        raise _malformed("The pointer of the TXT record is no address with a key id.")
    return TxtPointer(agent_id, url, key_id)


def _assembled(members: dict[bytes, bytes]) -> bytes:
    count = members.get(b"n", b"")
    if not _NUMBER.match(count) or not 0 < int(count) <= limits.TXT_CHUNKS:
        raise _malformed("The TXT record does not say of how many chunks it is made.")
    chunks = [members.get(b"%d" % index) for index in range(int(count))]
    if any(chunk is None for chunk in chunks):
        raise _malformed("A chunk of the TXT record is missing.")
    message = b"".join(chunk for chunk in chunks if chunk is not None)
    if members.get(b"h", b"").lower() != _digest(message).encode():
        raise _malformed("The chunks of the TXT record do not add up to what it names.")
    return message


def _members(strings: list[bytes]) -> dict[bytes, bytes]:
    """Names are compared without case, and the first of a name counts (RFC 6763 §6.4)."""
    found: dict[bytes, bytes] = {}
    for string in strings:
        name, equals, value = string.partition(b"=")
        if name and equals:
            found.setdefault(name.lower(), value)
    return found


def _chunked(message: bytes) -> Iterator[bytes]:
    start, index = 0, 0
    while start < len(message):
        name = b"%d=" % index
        room = limits.TXT_STRING_BYTES - len(name)
        yield name + message[start : start + room]
        start, index = start + room, index + 1


def _strings(parts: list[bytes]) -> bytes:
    return b"".join(bytes((len(part),)) + part for part in parts)


def _split(record: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(record):
        end = at + 1 + record[at]
        if end > len(record):
            raise _malformed("A string of the TXT record is longer than the record.")
        yield record[at + 1 : end]
        at = end


def _digest(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()[:_DIGEST_CHARS]


def _malformed(message: str) -> InvalidDocument:
    return InvalidDocument(message, path="$", hint="Write pv, id, n, h and the chunks 0, 1, … (or pv, id, u and k).")


# ---- Announcements in datagrams (announce.md §6.2, §6.3): whole, in fragments, and the cookie that proves a source.
#
#     {…                                     one message
#     AD 01  id:8  index:1  count:1  data    a fragment; id is the start of the message's SHA-256
#     AD 02  cookie:16                       "repeat your query with this": proves that answers reach who asked
#     AD 03  cookie:16  message              a query with its proof
#
# Nothing here knows a socket or a clock; `now` and the secret of the cookies are arguments.

_FRAGMENT, _CHALLENGE, _PROVED = b"\xad\x01", b"\xad\x02", b"\xad\x03"

_ID_BYTES = 8

_HEAD_BYTES = 2 + _ID_BYTES + 2

DATA_BYTES = limits.DATAGRAM_BYTES - _HEAD_BYTES

COOKIE_BYTES = 16

CHALLENGE_BYTES = 2 + COOKIE_BYTES


class WholeDatagram(msgspec.Struct, frozen=True):
    data: bytes
    cookie: bytes | None = None


class Fragment(msgspec.Struct, frozen=True):
    id: bytes
    index: int
    count: int
    data: bytes


class CookieChallenge(msgspec.Struct, frozen=True):
    cookie: bytes


def split_datagrams(message: bytes) -> list[bytes]:
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


def parse_datagram(data: bytes) -> WholeDatagram | Fragment | CookieChallenge:
    if data[:1] == b"{":
        return WholeDatagram(data)
    kind = data[:2]
    if kind == _FRAGMENT and _HEAD_BYTES < len(data) <= limits.DATAGRAM_BYTES:
        index, count = data[_HEAD_BYTES - 2], data[_HEAD_BYTES - 1]
        if 2 <= count <= limits.FRAGMENTS and index < count:
            return Fragment(data[2 : 2 + _ID_BYTES], index, count, data[_HEAD_BYTES:])
    elif kind == _CHALLENGE and len(data) == CHALLENGE_BYTES:
        return CookieChallenge(data[2:])
    elif kind == _PROVED and len(data) > CHALLENGE_BYTES:
        return WholeDatagram(data[CHALLENGE_BYTES:], data[2:CHALLENGE_BYTES])
    raise InvalidDocument("The datagram is none of the protocol.", path="$", hint="Send one JSON message.")


# --- Proof of a source ---------------------------------------------------------------------------


def pad_query(query: bytes) -> bytes:
    """A query as large as a datagram: whoever answers may send as much as it got (L5)."""
    return query + b" " * (limits.DATAGRAM_BYTES - len(query))


def make_cookie(secret: bytes, source: str, now: float) -> bytes:
    return _cookie(secret, source, int(now // limits.COOKIE_SECONDS))


def is_valid_cookie(secret: bytes, source: str, shown: bytes | None, now: float) -> bool:
    """Whether `source` got a cookie in this span or the one before."""
    if shown is None:
        return False
    span = int(now // limits.COOKIE_SECONDS)
    return any(hmac.compare_digest(_cookie(secret, source, each), shown) for each in (span, span - 1))


def write_challenge(shown: bytes) -> bytes:
    return _CHALLENGE + shown


def write_with_cookie(shown: bytes, query: bytes) -> bytes:
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


class FragmentReassembly:
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


# ---- How an announcement is made to fit (announce.md §6.2, P-23): as it is, compact, in pieces, or as a pointer.
#
# The ladder knows sizes. Signing is an argument: what is left out must be left out before the signature.

Carrier = Literal["mdns", "udp"]

Packaging = Literal["whole", "compact", "pieces", "pointer", "none"]

SignAgent = Callable[[JsonObject], JsonObject]  # an agent → its signed Announce

_STAMPS = ("__seq", "__iat")


class FittedAnnouncement(msgspec.Struct, frozen=True):
    """A message and how it travels: `pieces` are TXT chunks or UDP fragments; `none`: this carrier cannot take it."""

    message: JsonObject
    rung: Packaging


def compact_agent(agent: JsonObject) -> JsonObject:
    """The agent without what it can be found without: no name, of the metadata the stamps against replay alone."""
    bare = {name: value for name, value in agent.items() if name not in ("agent_name", "metadata")}
    metadata = agent.get("metadata") or {}
    stamps = {name: metadata[name] for name in _STAMPS if name in metadata}
    return {**bare, "metadata": stamps} if stamps else bare


def fit_announcement(
    agent: JsonObject, sign: SignAgent, carrier: Carrier, *, can_point: bool = False
) -> FittedAnnouncement:
    """The first rung that holds. A compact agent is signed anew, so `sign` gives it a stamp of its own: two contents
    under one sequence would look like a stolen key (P-17)."""
    whole = sign(agent)
    if _size(whole) <= limits.DATAGRAM_BYTES:
        return FittedAnnouncement(whole, "whole")
    small = sign(compact_agent(agent))
    if _size(small) > limits.DATAGRAM_BYTES:
        small = sign({**compact_agent(agent), "public_key": _bare_key(small["agent"].get("public_key"))})
    if _size(small) <= limits.DATAGRAM_BYTES:
        return FittedAnnouncement(small, "compact")
    for message in (whole, small):
        if _fits_in_pieces(message, carrier):
            return FittedAnnouncement(message, "pieces")
    return FittedAnnouncement(whole, "pointer" if can_point and carrier == "mdns" else "none")


def _bare_key(pem: Any) -> Any:
    """The base64 of a key without its PEM lines, which readers take too (§1): sixty bytes that a P-256 key needs
    here."""
    if not isinstance(pem, str) or "-----BEGIN PUBLIC KEY-----" not in pem:
        return pem
    return "".join(line.strip() for line in pem.splitlines() if not line.startswith("-----"))


def _size(message: JsonObject) -> int:
    return len(dump_json(message))


def _fits_in_pieces(message: JsonObject, carrier: Carrier) -> bool:
    data = dump_json(message)
    if carrier == "udp":
        return len(data) <= limits.FRAGMENTS * DATA_BYTES
    with suppress(TooLarge):
        return bool(write_txt_message(data, str(message["agent"].get("agent_id"))))
    return False
