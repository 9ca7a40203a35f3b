"""Announcements in the TXT record of a DNS-SD service (announce.md §6.1, §6.2): whole in chunks, or as a pointer.

It knows the bytes of the record and the names around it. Who answers whom, and when, is the responder's business.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, TooLarge

SERVICE = "_agentsc._tcp.local."
_NAME_CHARS = 58  # of a label's 63, beside a dash and four digits
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_KEY_ID = re.compile(r"sha256:[0-9a-f]{64}\Z")
_URL = re.compile(r"https?://[\x21-\x7e]{1,2040}\Z")
_NUMBER = re.compile(rb"(?:0|[1-9][0-9]?)\Z")
_DIGEST_CHARS = 16


class Inline(msgspec.Struct, frozen=True):
    """The whole message."""

    message: bytes
    agent_id: str | None = None  # as the record says; None: the record is the bare document


class Pointer(msgspec.Struct, frozen=True):
    """Where the whole message is, and which key it must carry."""

    agent_id: str
    url: str
    key_id: str


def write_inline(message: bytes, agent_id: str, version: str = "v1.0") -> bytes:
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


def write_pointer(pointer: Pointer, version: str = "v1.0") -> bytes:
    parts = (f"pv={version}", f"id={pointer.agent_id.lower()}", f"u={pointer.url}", f"k={pointer.key_id}")
    if not _URL.match(pointer.url) or not _KEY_ID.match(pointer.key_id) or len(pointer.url) > 253:
        raise InvalidDocument(
            "A pointer is an http(s) address of at most 253 characters and a key id.",
            path="$",
            hint="Use the address of /agents/{id} at the registry.",
        )
    return _strings([part.encode() for part in parts])


def read_txt(record: bytes) -> Inline | Pointer:
    """What the record says. Anything that two readers could put together differently is refused."""
    if len(record) > limits.TXT_READ_BYTES:
        raise TooLarge(f"A TXT record of {len(record)} bytes.", path="$", hint=f"At most {limits.TXT_READ_BYTES}.")
    strings = list(_split(record))
    if strings and strings[0].lstrip()[:1] == b"{":
        return Inline(b"".join(strings))
    members = _members(strings)
    agent_id = members.get(b"id", b"").decode("ascii", "replace").lower()
    if not _ID.match(agent_id) or b"pv" not in members:
        raise _malformed("The TXT record names no agent.")
    if b"u" in members:
        return _read_pointer(members, agent_id)
    return Inline(_assembled(members), agent_id)


def instance_label(agent_id: str, agent_name: str | None, digits: int) -> str:
    """`{agent_name or the first 8 of the id}-{4 hex}`; other digits are the way out of a conflict of names."""
    return f"{(agent_name or agent_id[:8])[:_NAME_CHARS].rstrip('-')}-{digits & 0xFFFF:04x}"


def host_name(agent_id: str) -> str:
    return f"{agent_id.lower()}.local."


def _read_pointer(members: dict[bytes, bytes], agent_id: str) -> Pointer:
    url = members[b"u"].decode("ascii", "replace")
    key_id = members.get(b"k", b"").decode("ascii", "replace")
    if not _URL.match(url) or not _KEY_ID.match(key_id):
        raise _malformed("The pointer of the TXT record is no address with a key id.")
    return Pointer(agent_id, url, key_id)


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
