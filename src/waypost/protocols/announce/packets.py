"""Announcements in TXT records of DNS-SD (announce.md §6.1, §6.2) and in UDP datagrams: whole, in pieces, or as a
pointer.

Bytes only: no sockets and no clock; `now` and the secret of cookies are arguments.
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
_NAME_CHARS = 58  # of 63 in a label, without a dash and four digits
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_KEY_ID = re.compile(r"sha256:[0-9a-f]{64}\Z")
_URL = re.compile(r"https?://[\x21-\x7e]{1,2040}\Z")
_NUMBER = re.compile(rb"(?:0|[1-9][0-9]?)\Z")
_DIGEST_CHARS = 16


class TxtMessage(msgspec.Struct, frozen=True):
    """A record with the whole message."""

    message: bytes
    agent_id: str | None = None  # as in the record; None if the record is the bare document


class TxtPointer(msgspec.Struct, frozen=True):
    """A record with the URL of the message, and the key that it must have."""

    agent_id: str
    url: str
    key_id: str


def write_txt_message(message: bytes, agent_id: str, version: str = "v1.0") -> bytes:
    """Return the record with the message; raises TooLarge if only a pointer fits."""
    chunks = list(_split_message(message))
    head = [f"pv={version}", f"id={agent_id.lower()}", f"n={len(chunks)}", f"h={_digest(message)}"]
    record = _strings([each.encode() for each in head] + chunks)
    if len(record) > limits.TXT_BYTES or len(chunks) > limits.TXT_CHUNKS:
        raise TooLarge(
            f"The announcement needs {len(record)} bytes of a TXT record; at most {limits.TXT_BYTES} are allowed.",
            path="$",
            hint="Sign with an Ed25519 or P-256 key, shorten the metadata, or configure a registry to point at.",
        )
    return record


def write_txt_pointer(pointer: TxtPointer, version: str = "v1.0") -> bytes:
    parts = (f"pv={version}", f"id={pointer.agent_id.lower()}", f"u={pointer.url}", f"k={pointer.key_id}")
    if not _URL.match(pointer.url) or not _KEY_ID.match(pointer.key_id) or len(pointer.url) > 253:
        raise InvalidDocument(
            "A pointer must be an http(s) URL of at most 253 characters and a key id.",
            path="$",
            hint="Use the URL of /agents/{id} at the registry.",
        )
    return _strings([part.encode() for part in parts])


def parse_txt(record: bytes) -> TxtMessage | TxtPointer:
    """Parse a record. Records that two readers could assemble differently are rejected."""
    if len(record) > limits.TXT_READ_BYTES:
        raise TooLarge(
            f"The TXT record has {len(record)} bytes.", path="$", hint=f"At most {limits.TXT_READ_BYTES} are allowed."
        )
    strings = list(_split(record))
    if strings and strings[0].lstrip()[:1] == b"{":
        return TxtMessage(b"".join(strings))
    members = _members(strings)
    agent_id = members.get(b"id", b"").decode("ascii", "replace").lower()
    if not _ID.match(agent_id) or b"pv" not in members:
        raise _malformed("The TXT record has no agent id or version.")
    if b"u" in members:
        return _read_pointer(members, agent_id)
    return TxtMessage(_assemble(members), agent_id)


def instance_label(agent_id: str, agent_name: str | None, digits: int) -> str:
    """Return `{agent_name or the first 8 of the id}-{4 hex}`; other digits resolve name conflicts."""
    return f"{(agent_name or agent_id[:8])[:_NAME_CHARS].rstrip('-')}-{digits & 0xFFFF:04x}"


def host_name(agent_id: str) -> str:
    return f"{agent_id.lower()}.local."


def _read_pointer(members: dict[bytes, bytes], agent_id: str) -> TxtPointer:
    url = members[b"u"].decode("ascii", "replace")
    key_id = members.get(b"k", b"").decode("ascii", "replace")
    if not _URL.match(url) or not _KEY_ID.match(key_id):
        raise _malformed("The pointer of the TXT record is not a URL with a key id.")
    return TxtPointer(agent_id, url, key_id)


def _assemble(members: dict[bytes, bytes]) -> bytes:
    count = members.get(b"n", b"")
    if not _NUMBER.match(count) or not 0 < int(count) <= limits.TXT_CHUNKS:
        raise _malformed("The TXT record does not state its number of chunks.")
    chunks = [members.get(b"%d" % index) for index in range(int(count))]
    if any(chunk is None for chunk in chunks):
        raise _malformed("A chunk of the TXT record is missing.")
    message = b"".join(chunk for chunk in chunks if chunk is not None)
    if members.get(b"h", b"").lower() != _digest(message).encode():
        raise _malformed("The chunks of the TXT record do not match its digest.")
    return message


def _members(strings: list[bytes]) -> dict[bytes, bytes]:
    """Return the members: names are case-insensitive, and the first of a name counts (RFC 6763 §6.4)."""
    members: dict[bytes, bytes] = {}
    for string in strings:
        name, equals, value = string.partition(b"=")
        if name and equals:
            members.setdefault(name.lower(), value)
    return members


def _split_message(message: bytes) -> Iterator[bytes]:
    start, index = 0, 0
    while start < len(message):
        name = b"%d=" % index
        size = limits.TXT_STRING_BYTES - len(name)
        yield name + message[start : start + size]
        start, index = start + size, index + 1


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


# --- Datagrams (announce.md §6.2, §6.3) -----------------------------------------------------------
#
#     {…                                     one message
#     AD 01  id:8  index:1  count:1  data    a fragment; id is the start of the message's SHA-256
#     AD 02  cookie:16                       "repeat your query with this": proves the source address
#     AD 03  cookie:16  message              a query with its proof

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
    """Return the datagrams of a message: one if it fits, else fragments."""
    if len(message) <= limits.DATAGRAM_BYTES:
        return [message]
    count = -(-len(message) // DATA_BYTES)
    if count > limits.FRAGMENTS:
        raise TooLarge(
            f"The message has {len(message)} bytes; at most {limits.FRAGMENTS * DATA_BYTES} are allowed.",
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
    raise InvalidDocument("The datagram is not an announce packet.", path="$", hint="Send one JSON message.")


# --- Cookies: proof of the source address ---------------------------------------------------------


def pad_query(query: bytes) -> bytes:
    """Pad a query to the size of a datagram: a reply may be as large as the query (L5)."""
    return query + b" " * (limits.DATAGRAM_BYTES - len(query))


def make_cookie(secret: bytes, source: str, now: float) -> bytes:
    return _cookie(secret, source, int(now // limits.COOKIE_SECONDS))


def is_valid_cookie(secret: bytes, source: str, cookie: bytes | None, now: float) -> bool:
    """Return whether `source` got the cookie in this time span or the previous one."""
    if cookie is None:
        return False
    span = int(now // limits.COOKIE_SECONDS)
    return any(hmac.compare_digest(_cookie(secret, source, each), cookie) for each in (span, span - 1))


def write_challenge(cookie: bytes) -> bytes:
    return _CHALLENGE + cookie


def write_with_cookie(cookie: bytes, query: bytes) -> bytes:
    return _PROVED + cookie + query


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
    """Incomplete messages: bounded per source, in total bytes, and in time."""

    def __init__(self) -> None:
        self._partials: OrderedDict[tuple[str, bytes], _Partial] = OrderedDict()  # oldest first
        self._by_source: dict[str, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._partials)

    @property
    def byte_count(self) -> int:
        return self._bytes

    def add(self, source: str, fragment: Fragment, now: float) -> bytes | None:
        """Add a fragment; return the message when it is complete and its hash is right."""
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


# --- Packaging: as it is, compact, in pieces, or as a pointer (announce.md §6.2, P-23) ------------

Carrier = Literal["mdns", "udp"]
Packaging = Literal["whole", "compact", "pieces", "pointer", "none"]
SignAgent = Callable[[JsonObject], JsonObject]  # agent → signed Announce
_STAMPS = ("__seq", "__iat")


class FittedAnnouncement(msgspec.Struct, frozen=True):
    """A message and its packaging: `pieces` are TXT chunks or UDP fragments; `none` means that it does not fit."""

    message: JsonObject
    packaging: Packaging


def compact_agent(agent: JsonObject) -> JsonObject:
    """Return the agent without its name, and with only the replay stamps of its metadata."""
    bare = {name: value for name, value in agent.items() if name not in ("agent_name", "metadata")}
    metadata = agent.get("metadata") or {}
    stamps = {name: metadata[name] for name in _STAMPS if name in metadata}
    return {**bare, "metadata": stamps} if stamps else bare


def fit_announcement(
    agent: JsonObject, sign: SignAgent, carrier: Carrier, *, can_point: bool = False
) -> FittedAnnouncement:
    """Return the first packaging that fits. A compact agent is signed separately and `sign` gives it its own stamp: two
    contents under one sequence would look like a stolen key (P-17)."""
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
    """Return the base64 of a key without PEM lines, which is also accepted (§1): it saves the bytes that a P-256 key
    needs."""
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
