"""What records of the DNS are made of: names and character-strings, from bytes and to bytes. Names here are never compressed
(rdata of the types that we read must not be, or was taken apart before).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from waypost.errors import InvalidDocument

_LABEL_BYTES: Final = 63

_NAME_BYTES: Final = 255

_STRING_BYTES: Final = 255

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")


def malformed_record(kind: str, what: str) -> InvalidDocument:
    """A record that breaks its format. Whoever reads several skips it, and says so."""
    return InvalidDocument(
        f"The {kind} record is malformed: {what}.", path=kind.lower(), details={"reason": "malformed"}
    )


def read_name(kind: str, data: bytes, start: int) -> tuple[str, int]:
    """The name in lower case without its final dot (the root is empty), and where it ends."""
    labels: list[str] = []
    at = start
    while True:
        if at >= len(data):
            raise malformed_record(kind, "a name ends before it is over")
        size = data[at]
        if size > _LABEL_BYTES:
            raise malformed_record(kind, "a name is compressed, or has a label of more than 63 octets")
        label = data[at + 1 : at + 1 + size]
        at += 1 + size
        if len(label) < size or at - start > _NAME_BYTES:
            raise malformed_record(kind, "a name ends before it is over, or never")
        if not size:
            return ".".join(labels), at
        labels.append(_label_text(label.lower()))


def write_name(name: str) -> bytes:
    """Of a name as `read_name` gives it; a final dot is fine."""
    bare = name.removesuffix(".").lower()
    labels = [label.encode("ascii", "replace") for label in bare.split(".")] if bare else []
    if any(not 0 < len(label) <= _LABEL_BYTES or not _PLAIN.issuperset(label) for label in labels):
        raise malformed_record("name", f"{name[:64]!r} is not a name of letters, digits, hyphens and underscores")
    data = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    if len(data) > _NAME_BYTES:
        raise malformed_record("name", "it has more than 255 octets")
    return data


def _label_text(label: bytes) -> str:
    """Odd octets are escaped, so that no two names look alike, and a dot inside a label is none between labels."""
    return "".join(chr(octet) if octet in _PLAIN else f"\\{octet:03d}" for octet in label)


def is_hostname(name: str) -> bool:
    """Whether certificates can be given for it: no escapes, no underscores (AID-4), not the root."""
    return bool(name) and all(
        label and set(label.encode("ascii", "replace")) <= _PLAIN - {0x5F} and not label.startswith("-")
        for label in name.split(".")
    )


def read_strings(data: bytes) -> tuple[bytes, ...]:
    """The character-strings of a TXT record."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        size = data[at]
        text = data[at + 1 : at + 1 + size]
        if len(text) < size:
            raise malformed_record("TXT", "a string ends before it is over")
        found.append(text)
        at += 1 + size
    return tuple(found)


def read_text(data: bytes) -> str:
    """A TXT record as one text: its strings joined, never those of others (C-6)."""
    try:
        return b"".join(read_strings(data)).decode("utf-8")
    except UnicodeDecodeError:
        raise malformed_record("TXT", "it is not UTF-8") from None


def write_text(text: str) -> bytes:
    """A text as character-strings of at most 255 octets; never broken inside a character."""
    data = text.encode()
    parts: list[bytes] = []
    while data or not parts:
        end = min(len(data), _STRING_BYTES)
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        parts.append(bytes((end,)) + data[:end])
        data = data[end:]
    return b"".join(parts)


# ---- SRV records (RFC 2782): rdata to values and back.


class SrvRecord(msgspec.Struct, frozen=True, kw_only=True):
    priority: int
    weight: int
    port: int
    target: str  # empty for ".": the service is decidedly not there


def parse_srv(data: bytes) -> SrvRecord:
    if len(data) < 7:
        raise malformed_record("SRV", "it is too short")
    priority, weight, port = struct.unpack_from("!HHH", data)
    target, end = read_name("SRV", data, 6)
    if end != len(data):
        raise malformed_record("SRV", "something follows the name")
    return SrvRecord(priority=priority, weight=weight, port=port, target=target)


def write_srv(record: SrvRecord) -> bytes:
    return struct.pack("!HHH", record.priority, record.weight, record.port) + write_name(record.target)


def select_srv(records: Iterable[bytes]) -> SrvRecord | None:
    """The one to use first: lowest priority, then largest weight. A choice by chance would change answers between two looks."""
    found = []
    for data in records:
        try:
            found.append(parse_srv(data))
        except InvalidDocument:
            continue
    return min(found, key=lambda one: (one.priority, -one.weight, one.target, one.port), default=None)
