"""DNS rdata: names, character-strings, SRV (RFC 2782) and TLSA records, from bytes and to bytes; certificates that match a TLSA.

Names are never compressed: the rdata of these types must not be, or was decompressed before.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost.errors import InvalidDocument

_LABEL_BYTES: Final = 63

_NAME_BYTES: Final = 255

_STRING_BYTES: Final = 255

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")


def malformed_record(kind: str, problem: str) -> InvalidDocument:
    """Return the error for an invalid record. Readers of several records skip it with a warning."""
    return InvalidDocument(
        f"The {kind} record is malformed: {problem}.", path=kind.lower(), details={"reason": "malformed"}
    )


def read_name(kind: str, data: bytes, start: int) -> tuple[str, int]:
    """Return the name in lower case without its final dot (the root is empty), and its end offset."""
    labels: list[str] = []
    at = start
    while True:
        if at >= len(data):
            raise malformed_record(kind, "a name is truncated")
        size = data[at]
        if size > _LABEL_BYTES:
            raise malformed_record(kind, "a name is compressed, or has a label of more than 63 octets")
        label = data[at + 1 : at + 1 + size]
        at += 1 + size
        if len(label) < size or at - start > _NAME_BYTES:
            raise malformed_record(kind, "a name is truncated or too long")
        if not size:
            return ".".join(labels), at
        labels.append(_label_text(label.lower()))


def write_name(name: str) -> bytes:
    """Encode a name as `read_name` returns it; a final dot is allowed."""
    bare = name.removesuffix(".").lower()
    labels = [label.encode("ascii", "replace") for label in bare.split(".")] if bare else []
    if any(not 0 < len(label) <= _LABEL_BYTES or not _PLAIN.issuperset(label) for label in labels):
        raise malformed_record(
            "name", f"{name[:64]!r} has characters other than letters, digits, hyphens and underscores"
        )
    data = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    if len(data) > _NAME_BYTES:
        raise malformed_record("name", "it has more than 255 octets")
    return data


def _label_text(label: bytes) -> str:
    """Escape other octets, so that different names have different texts, and a dot inside a label is not a
    separator."""
    return "".join(chr(octet) if octet in _PLAIN else f"\\{octet:03d}" for octet in label)


def is_hostname(name: str) -> bool:
    """Return whether certificates can be issued for the name: no escapes, no underscores (AID-4), not the root."""
    return bool(name) and all(
        label and set(label.encode("ascii", "replace")) <= _PLAIN - {0x5F} and not label.startswith("-")
        for label in name.split(".")
    )


def read_strings(data: bytes) -> tuple[bytes, ...]:
    """Return the character-strings of a TXT record."""
    strings: list[bytes] = []
    at = 0
    while at < len(data):
        size = data[at]
        text = data[at + 1 : at + 1 + size]
        if len(text) < size:
            raise malformed_record("TXT", "a string is truncated")
        strings.append(text)
        at += 1 + size
    return tuple(strings)


def read_text(data: bytes) -> str:
    """Return a TXT record as one text: its own strings joined, never those of other records (C-6)."""
    try:
        return b"".join(read_strings(data)).decode("utf-8")
    except UnicodeDecodeError:
        raise malformed_record("TXT", "it is not UTF-8") from None


def write_text(text: str) -> bytes:
    """Encode a text as character-strings of at most 255 octets, split at character boundaries."""
    data = text.encode()
    parts: list[bytes] = []
    while data or not parts:
        end = min(len(data), _STRING_BYTES)
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        parts.append(bytes((end,)) + data[:end])
        data = data[end:]
    return b"".join(parts)


class SrvRecord(msgspec.Struct, frozen=True, kw_only=True):
    priority: int
    weight: int
    port: int
    target: str  # empty for ".": the service is not available


def parse_srv(data: bytes) -> SrvRecord:
    if len(data) < 7:
        raise malformed_record("SRV", "it is too short")
    priority, weight, port = struct.unpack_from("!HHH", data)
    target, end = read_name("SRV", data, 6)
    if end != len(data):
        raise malformed_record("SRV", "it has bytes after the name")
    return SrvRecord(priority=priority, weight=weight, port=port, target=target)


def write_srv(record: SrvRecord) -> bytes:
    return struct.pack("!HHH", record.priority, record.weight, record.port) + write_name(record.target)


def select_srv(records: Iterable[bytes]) -> SrvRecord | None:
    """Return the record with the lowest priority, then the largest weight: deterministic, unlike a weighted random
    choice."""
    valid = []
    for data in records:
        with suppress(InvalidDocument):
            valid.append(parse_srv(data))
    return min(valid, key=lambda record: (record.priority, -record.weight, record.target, record.port), default=None)


# TLSA (RFC 6698, RFC 7671). PKIX is required in addition (ADP-54) and checked elsewhere, whatever the usage.

_PKIX_EE, DANE_EE = 1, 3  # 0 and 2 name an authority

_FULL, SPKI = 0, 1

SHA256, _SHA512 = 1, 2  # 0 is an exact match

_DIGESTS: Final = {SHA256: hashlib.sha256, _SHA512: hashlib.sha512}

_SIZES: Final = {SHA256: 32, _SHA512: 64}

TlsaMatch = Literal["match", "mismatch", "unusable"]


class TlsaRecord(msgspec.Struct, frozen=True, kw_only=True):
    usage: int
    selector: int
    matching: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.usage} {self.selector} {self.matching} {self.data.hex()}"

    @property
    def is_usable(self) -> bool:
        """Whether its parameters are known and its data has the right length (D5)."""
        known = self.usage <= DANE_EE and self.selector <= SPKI and self.matching <= _SHA512
        return known and bool(self.data) and len(self.data) == _SIZES.get(self.matching, len(self.data))


def parse_tlsa(data: bytes) -> TlsaRecord:
    if len(data) < 3:
        raise malformed_record("TLSA", "it is too short")
    return TlsaRecord(usage=data[0], selector=data[1], matching=data[2], data=data[3:])


def write_tlsa(record: TlsaRecord) -> bytes:
    return bytes((record.usage, record.selector, record.matching)) + record.data


def tlsa_of(certificate: bytes, *, usage: int = DANE_EE, selector: int = SPKI, matching: int = SHA256) -> TlsaRecord:
    """Make the record of a DER certificate; by default in the form that ADP-10 recommends."""
    return TlsaRecord(usage=usage, selector=selector, matching=matching, data=_matched(certificate, selector, matching))


def match_tlsa(record: TlsaRecord, chain: Sequence[bytes]) -> TlsaMatch:
    """Match a DER chain, leaf first. Usages that name an authority need the rest of the chain; without it they are
    unusable."""
    if not record.is_usable or not chain:
        return "unusable"
    candidates = chain[:1] if record.usage in (_PKIX_EE, DANE_EE) else chain[1:]
    if not candidates:
        return "unusable"
    found = any(hmac.compare_digest(_matched(one, record.selector, record.matching), record.data) for one in candidates)
    return "match" if found else "mismatch"


def match_any(records: Iterable[TlsaRecord], chain: Sequence[bytes]) -> tuple[TlsaMatch, TlsaRecord | None]:
    """One match suffices, so that keys can be rotated; it is a mismatch if all usable records fail (AID-24)."""
    results = [(match_tlsa(record, chain), record) for record in records]
    for expected in ("match", "mismatch"):
        for result, record in results:
            if result == expected:
                return result, record
    return "unusable", None


def _matched(certificate: bytes, selector: int, matching: int) -> bytes:
    data = certificate if selector == _FULL else _spki(certificate)
    digest = _DIGESTS.get(matching)
    return data if digest is None else digest(data).digest()


def _spki(certificate: bytes) -> bytes:
    key = x509.load_der_x509_certificate(certificate).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
